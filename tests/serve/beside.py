"""Views and measurements beside the texts: one at a time, a few that wait, and texts go on."""

import json
import os

from client import Server, Tap, equal

tap = Tap()
server = Server("--slots", "2", "--queue", "1", "--context", "256", "--drain-timeout", "1")
MOST = 8  # at work or waiting
TALE = "He said that it was so, and that it had been so for as long as he could say. " * 600
PROMPT = {"prompt": "He said", "max_tokens": 12, "temperature": 0}
waiting = []


def begin(path, body):
    """A request whose answer nobody reads yet."""
    data = json.dumps(body).encode()
    connection = server.connect()
    connection.sendall(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        "Content-Length: %d\r\n\r\n" % (path, len(data))).encode() + data)
    return connection


def queue():
    """As many as may wait; then no more, of whatever kind, until one is through."""
    for n in range(MOST):
        waiting.append(begin("/v1/measure", {"input": TALE}))
        assert server.wait_for("views", n + 1), n
    for path, body in [("/v1/measure", {"input": "a b"}), ("/v1/headlight/lens", {"input": "a"}),
                       ("/v1/headlight/tokens", {"input": "a"}),
                       ("/v1/headlight/rank", {"input": "a"}),
                       ("/v1/headlight/evaluate", {"input": TALE[:600], "settings": [[]]})]:
        status, headers, data = server.ask("POST", path, body)
        equal([status, data["error"]["code"], headers["Retry-After"]],
              [429, "rate_limit_exceeded", "1"])


def faults():
    """What is wrong is said at once, not after the wait."""
    equal(server.post("/v1/headlight/lens", {"input": "a", "off": ["L9"]})[0], 400)
    equal(server.post("/v1/measure", {})[0], 400)


def texts():
    """They are made meanwhile: the one that works is still at it afterwards."""
    for _ in range(3):
        equal(server.post("/v1/completions", PROMPT)[0], 200)
    equal(server.metric("views"), MOST)


def priority():
    """The threads that look stand back behind those that make texts."""
    nices = []
    folder = "/proc/%d/task" % server.process.pid
    for task in os.listdir(folder):
        with open("%s/%s/stat" % (folder, task)) as file:
            nices.append(int(file.read().rsplit(")", 1)[1].split()[16]))
    assert min(nices) < max(nices), nices
    equal(max(nices) - min(nices), min(10, 19 - min(nices)))


def leaving():
    """Who goes away leaves the queue, whether it waits or works."""
    for connection in waiting[1:]:
        connection.close()
    assert server.wait_for("views", 1, 3), server.metric("views")
    waiting[0].close()
    assert server.wait_for("views", 0), server.metric("views")


def order():
    """Those that wait have their turn, and get their own answers."""
    inputs = ["He said", "She went to", "It was a dark night and"]
    asked = [begin("/v1/headlight/lens", {"input": text}) for text in inputs]
    for connection, n_tokens in zip(asked, [2, 3, 6]):
        data = b""
        while b'"lens":' not in data or not data.rstrip().endswith(b"}"):
            data += connection.recv(65536)
        equal(len(json.loads(data.split(b"\r\n\r\n", 1)[1])["tokens"]), n_tokens)
        connection.close()
    assert server.wait_for("views", 0)


def ends():
    """A measurement that would take longer than a drain may is cut."""
    waiting[:] = [begin("/v1/measure", {"input": TALE})]
    assert server.wait_for("views", 1)
    equal(server.close(), 0)


for test in [queue, faults, texts, priority, leaving, order, ends]:
    tap.run(test.__name__, test)
tap.finish()
