"""Views and measurements beside texts: they run one at a time, a few wait, and texts continue."""

import json
import os

from client import Server, Tap, equal

tap = Tap()
server = Server("--slots", "2", "--queue", "1", "--context", "256", "--drain-timeout", "1")
MOST = 8  # limit of requests that work or wait
TALE = "He said that it was so, and that it had been so for as long as he could say. " * 600
PROMPT = {"prompt": "He said", "max_tokens": 12, "temperature": 0}
waiting = []


def begin(path, body):
    """Sends a request without reading its answer."""
    data = json.dumps(body).encode()
    connection = server.connect()
    connection.sendall(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        "Content-Length: %d\r\n\r\n" % (path, len(data))).encode() + data)
    return connection


def queue():
    """The allowed number of requests waits; further ones of any kind are refused until one is done."""
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
    """Invalid requests are refused at once, not after waiting."""
    equal(server.post("/v1/headlight/lens", {"input": "a", "off": ["L9"]})[0], 400)
    equal(server.post("/v1/measure", {})[0], 400)


def texts():
    """Texts are generated at the same time: the view is still working afterwards."""
    for _ in range(3):
        equal(server.post("/v1/completions", PROMPT)[0], 200)
    equal(server.metric("views"), MOST)


def priority():
    """Threads of views have a lower priority than those that generate texts."""
    nices = []
    folder = "/proc/%d/task" % server.process.pid
    for task in os.listdir(folder):
        with open("%s/%s/stat" % (folder, task)) as file:
            nices.append(int(file.read().rsplit(")", 1)[1].split()[16]))
    assert min(nices) < max(nices), nices
    equal(max(nices) - min(nices), min(10, 19 - min(nices)))


def leaving():
    """A client that disconnects leaves the queue, whether it waits or works."""
    for connection in waiting[1:]:
        connection.close()
    assert server.wait_for("views", 1, 3), server.metric("views")
    waiting[0].close()
    assert server.wait_for("views", 0), server.metric("views")


def order():
    """Waiting requests are processed in order, and get their own answers."""
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
    """A measurement that would take longer than the time for a drain is cut."""
    waiting[:] = [begin("/v1/measure", {"input": TALE})]
    assert server.wait_for("views", 1)
    equal(server.close(), 0)


for test in [queue, faults, texts, priority, leaving, order, ends]:
    tap.run(test.__name__, test)
tap.finish()
