"""What the system allows, and what one client may take: few files, closed logs, no more threads,
limits per address and per token."""

import json
import os
import resource
import signal
import socket
import subprocess
import tempfile

from client import Server, Tap, equal, is_sanitized, read_all

tap = Tap()
PROGRAM = os.environ.get("HEADLIGHT", "build/headlight")
LONG = {"prompt": "He said", "max_tokens": 480, "temperature": 0, "ignore_eos": True}
SHORT = {"prompt": "He said", "max_tokens": 2, "temperature": 0}


def with_files(most):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))}


def few_files():
    """With 64 files it takes fewer connections, and with 24 it does not start."""
    server = Server("--slots", "2", **with_files(64))
    crowd = [server.connect() for _ in range(100)]
    for _ in range(3):
        equal(server.post("/v1/completions", SHORT)[0], 200)
    assert 16 <= server.metric("connections") < 64, server.metric("connections")
    equal(server.post("/v1/measure", {"input": "He said that it was so."})[0], 200)
    for connection in crowd:
        connection.close()
    equal(server.close(), 0)
    result = subprocess.run([PROGRAM, "serve", "models/demo", "--port", "0"], capture_output=True,
                            text=True, timeout=60, **with_files(24))
    assert result.returncode == 4 and "24 files (ulimit -n)" in result.stderr, result


def closed_log():
    """Nobody reads its output any more: it still serves, drains and ends as usual."""
    server = Server("--slots", "2")
    server.process.stdout.close()
    server.process.stderr.close()
    equal(server.post("/v1/completions", SHORT)[0], 200)
    server.process.send_signal(signal.SIGTERM)
    equal(server.process.wait(timeout=20), 0)


def begin(server, source="127.0.0.1", token=None, to="127.0.0.1", body=None):
    """Begins a request, which is in progress when this returns."""
    data = json.dumps(body or LONG).encode()
    made = socket.create_connection((to, server.port), 20, source_address=(source, 0))
    made.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s"
                  "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                  % ("Authorization: Bearer %s\r\n" % token if token else "", len(data))).encode()
                 + data)
    return made


def status_and_body(made):
    data = read_all(made)
    made.close()
    return int(data.split()[1]), data


def per_peer():
    """At most two requests from an address, over any number of connections; others are not affected."""
    server = Server("--slots", "4", "--max-per-peer", "2")
    asked = [begin(server, "127.0.0.2") for _ in range(4)]
    equal(status_and_body(begin(server, "127.0.0.3"))[0], 200)
    answers = [status_and_body(made) for made in asked]
    equal(sorted(status for status, _ in answers), [200, 200, 429, 429])
    refused = next(data for status, data in answers if status == 429)
    assert b"2 requests from this address are active; at most 2 are allowed" in refused, refused
    assert b"Retry-After: 1" in refused, refused
    equal(status_and_body(begin(server, "127.0.0.2"))[0], 200)
    equal(server.close(), 0)


def own_address():
    """An address of this machine in its network; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # for UDP, this sends nothing
            address = probe.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address


def others():
    """By default, another address gets half of all requests, and this machine all of them."""
    address = own_address()
    if address is None:
        print("# SKIP this machine has no address but its own")
        return
    server = Server("--host", "0.0.0.0", "--token", "sesame", "--slots", "1", "--queue", "1",
                    "--stall-timeout", "600")  # 18 requests at a time
    server.token = "sesame"
    loud = dict(LONG, stream=True, headlight={"rows": ["entropy", "normalized", "renyi2", "entropy_nosink"]})
    far, near = [], []

    def ask(n_asked, source, to):
        """Requests one more text that is not read: it takes the slot, and earlier ones are parked."""
        made = begin(server, source, "sesame", to, loud)
        assert server.wait_for("texts_parked_total", n_asked - 1), n_asked
        return made

    for n in range(1, 10):
        far.append(ask(n, address, address))
    equal(server.metric("requests_working"), 9)
    for _ in range(3):
        status, data = status_and_body(begin(server, address, "sesame", address))
        equal(status, 429)
        assert b"9 requests from this address are active; at most 9 are allowed" in data, data
    for made in far[:5]:
        made.close()
    assert server.wait_for("requests_working", 4)
    for n in range(10, 24):  # this machine may have all 18
        near.append(ask(n, "127.0.0.2", "127.0.0.1"))
    equal(server.metric("requests_working"), 18)
    near.pop(0).close()
    assert server.wait_for("requests_working", 17)
    equal(status_and_body(begin(server, address, "sesame", address))[0], 200)
    for made in far + near:
        made.close()
    equal(server.close(), 0)


def per_token():
    """One request at a time with each token of a file."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("first\n\nsecond\n")
        file.flush()
        server = Server("--slots", "4", "--token-file", file.name, "--max-per-token", "1")
    asked = [begin(server, token="first") for _ in range(3)]
    equal(status_and_body(begin(server, token="second"))[0], 200)
    answers = [status_and_body(made) for made in asked]
    equal(sorted(status for status, _ in answers), [200, 429, 429])
    assert any(b"with this token are active; at most 1" in data for _, data in answers), answers
    equal(status_and_body(begin(server, token="first"))[0], 200)
    equal(status_and_body(begin(server, token="third"))[0], 401)
    server.token = "second"
    equal(server.close(), 0)


def few_threads():
    """Without enough threads it does not start, and says why."""
    if is_sanitized():
        return
    result = subprocess.run(
        [PROGRAM, "serve", "models/demo", "--port", "0", "--threads", "200"], capture_output=True,
        text=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (800 << 20, 800 << 20)))
    assert result.returncode == 4 and "twice 200 are needed" in result.stderr, result


def no_more_threads():
    """When the system grants no more threads, it refuses requests and continues."""
    if is_sanitized():
        return
    server = Server("--slots", "2", "--threads", "3")
    text = "He said that it was so, and that it had been so for as long as he could say. " * 20
    asked = [("/v1/completions", SHORT), ("/v1/measure", {"input": text}),
             ("/v1/headlight/lens", {"input": "He said"}), ("/v1/headlight/rank", {"input": text}),
             ("/v1/headlight/evaluate", {"input": text, "settings": [["L0"]]})]
    for path, body in asked:
        equal(server.post(path, body)[0], 200)
    pid = server.process.pid
    under_way = [begin(server), begin(server)]
    assert server.wait_for("slots_busy", 2)
    with open("/proc/%d/statm" % pid) as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (now, resource.RLIM_INFINITY))
    statuses = set()
    for path, body in asked * 3:
        try:
            statuses.add(server.post(path, body)[0])
        except OSError:  # without memory it can only close the connection
            statuses.add(500)
    assert statuses <= {200, 429, 500}, statuses
    for made in under_way:  # requests under way may fail for lack of memory
        assert status_and_body(made)[0] in (200, 500)
    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for path, body in asked:
        equal(server.post(path, body)[0], 200)
    equal(server.close(), 0)


for test in [few_files, closed_log, per_peer, others, per_token, few_threads, no_more_threads]:
    tap.run(test.__doc__.splitlines()[0].rstrip(".:"), test)
tap.finish()
