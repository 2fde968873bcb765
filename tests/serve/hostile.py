"""Hostile and faulty clients: each is refused or limited, and afterwards the server still answers
others."""

import json
import os
import signal
import socket
import struct
import threading
import time

from client import Server, Tap, equal, read_all

tap = Tap()
TOKEN = "a token of ours"
JSON = "Content-Type: application/json\r\n"
server = Server("--slots", "2", "--queue", "2", "--request-timeout", "2", "--stall-timeout", "2",
                "--max-body", "64", "--max-connections", "200", "--context", "512",
                "--token", TOKEN, "--allow-host", "lamp.example")
server.token = TOKEN
LONG = {"prompt": "He said", "max_tokens": 480, "temperature": 0, "ignore_eos": True}
# Numbers of all heads for every token: more than sockets and pipes hold.
LOUD = dict(LONG, max_tokens=500, stream=True,
            headlight={"rows": ["entropy", "normalized", "renyi2", "entropy_nosink", "lookback_prompt"]})


def answers():
    """Returns whether the server answers in time."""
    begun = time.monotonic()
    status, data = server.post("/v1/completions", {"prompt": "He said", "max_tokens": 2,
                                                   "temperature": 0})
    equal([status, data["choices"][0]["text"]], [200, ", \u201c"])
    assert time.monotonic() - begun < 10


def request(method, path, headers="", body=b"", host=None, token=TOKEN):
    if isinstance(body, dict):
        body = json.dumps(body).encode()
        headers += JSON
    if body:
        headers += "Content-Length: %d\r\n" % len(body)
    if token:
        headers += "Authorization: Bearer %s\r\n" % token
    host = "Host: %s\r\n" % (host or "127.0.0.1:%d" % server.port) if host != "" else ""
    return ("%s %s HTTP/1.1\r\n%s%sConnection: close\r\n\r\n" % (method, path, host, headers)
            ).encode("latin-1") + body


def status_of(data):
    return int(data.split()[1]) if data.startswith(b"HTTP/1.") else None


def refuses(wanted, *arguments, **more):
    data = server.raw(request(*arguments, **more))
    assert status_of(data) == wanted, data[:300]
    return data


def hosts():
    refuses(403, "GET", "/v1/models", host="evil.example")
    refuses(403, "GET", "/v1/models", host="evil.example:%d" % server.port)
    refuses(403, "GET", "/", host="127.0.0.1.evil.example")
    refuses(403, "GET", "/v1/models", host="192.168.0.1")
    refuses(400, "GET", "/v1/models", host="")  # HTTP/1.1 without a Host
    refuses(200, "GET", "/v1/models", host="localhost")
    refuses(200, "GET", "/v1/models", host="[::1]:80")
    refuses(200, "GET", "/v1/models", host="LAMP.example")


def origins():
    here = "http://127.0.0.1:%d" % server.port
    for origin in ("http://evil.example", "null", "file://", here + ".evil.example",
                   "http://127.0.0.1:1", "https://", ""):
        if origin:
            refuses(403, "POST", "/v1/completions", "Origin: %s\r\n" % origin, {"prompt": "a"})
    data = refuses(200, "GET", "/v1/models", "Origin: %s\r\n" % here)
    assert b"Access-Control" not in data, data
    refuses(403, "GET", "/v1/models", "Sec-Fetch-Site: cross-site\r\n")
    refuses(405, "OPTIONS", "/v1/completions", "Origin: %s\r\n" % here)


def tokens():
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "x" * len(TOKEN)):
        data = refuses(401, "GET", "/v1/models", token=wrong)
        assert b"WWW-Authenticate: Bearer" in data, data
        refuses(401, "POST", "/v1/completions", "", {"prompt": "a"}, token=wrong)
        refuses(401, "GET", "/metrics", token=wrong)
    refuses(401, "GET", "/v1/models", "Authorization: Basic %s\r\n" % TOKEN, token=None)
    refuses(200, "GET", "/health", token=None)
    refuses(200, "GET", "/", token=None)


def types():
    body = b'{"prompt": "a"}'
    refuses(415, "POST", "/v1/completions", "Content-Type: text/plain\r\n", body)
    refuses(415, "POST", "/v1/completions", "Content-Type: application/jsonx\r\n", body)
    refuses(415, "POST", "/v1/completions", "", body)
    refuses(200, "POST", "/v1/completions", "Content-Type: application/json; charset=utf-8\r\n",
            body)


def bad_json():
    for body in (b"", b"{", b"nonsense", b'{"prompt": "a"} trailing', b'{"prompt": "\xff\xfe"}',
                 b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "\\u0000"}', b"\x00" * 64,
                 b'{"max_tokens": 99999999999999999999, "prompt": "a"}'):
        refuses(400, "POST", "/v1/completions", JSON, body)


def deep_json():
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        body = opening * 8000 + b"1" + closing * 8000
        refuses(400, "POST", "/v1/completions", JSON, body)


def long_headers():
    data = server.raw(request("GET", "/health", "X-Long: %s\r\n" % ("x" * (1 << 20))))
    assert status_of(data) in (413, 431, 494, None), data[:200]
    data = server.raw(request("GET", "/health", "X-A: b\r\n" * 100000))
    assert status_of(data) in (413, 431, 494, None), data[:200]
    data = server.raw(request("GET", "/" + "x" * (1 << 20)))
    assert status_of(data) in (414, 431, None), data[:200]


def long_bodies():
    refuses(413, "POST", "/v1/completions", JSON, b" " * (10 << 20))
    chunked = request("POST", "/v1/completions", JSON + "Transfer-Encoding: chunked\r\n")
    data = server.raw(chunked + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 160 + b"0\r\n\r\n")
    equal(status_of(data), 413)
    data = server.raw(request("POST", "/v1/completions",
                              JSON + "Content-Length: 99999999999999999999999\r\n"))
    assert status_of(data) in (400, 413, None), data[:200]
    data = server.raw(request("POST", "/v1/completions", JSON + "Content-Length: -5\r\n"))
    assert status_of(data) in (400, 413, None), data[:200]


def no_http():
    for data in (b"\r\n" * 5000, b"\x16\x03\x01\x02\x00" + os.urandom(500), b"GET\r\n\r\n",
                 b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost:\x00\r\n\r\n",
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with server.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            assert status_of(read_all(connection)) not in (200, 500)


def framing():
    """Requests whose bytes two readers could interpret differently: refused with 400 and closed, before
    later bytes are read as a request."""
    host = "Host: 127.0.0.1:%d\r\n" % server.port
    body = '{"prompt": "a", "max_tokens": 1}'
    post = "POST /v1/completions HTTP/1.1\r\n" + JSON + "Authorization: Bearer %s\r\n" % TOKEN
    length = "Content-Length: %d\r\n" % len(body)
    chunks = "%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    inner = "GET /health HTTP/1.1\r\n" + host + "\r\n"
    for name, data in [
            ("both lengths", host + "Transfer-Encoding: chunked\r\n" + length + "\r\n" + chunks),
            ("two lengths", host + length + "Content-Length: 5\r\n\r\n" + body),
            ("the same length twice", host + length + length + "\r\n" + body),
            ("a list of lengths", host + "Content-Length: 5, 5\r\n\r\n" + body),
            ("two hosts", host + host + length + "\r\n" + body),
            ("a NUL in a value", host + "X: a\0b\r\n" + length + "\r\n" + body),
            ("a NUL in Host", "Host: 127.0.0.1\0evil\r\n" + length + "\r\n" + body),
            ("a space before the colon", host + "Transfer-Encoding : chunked\r\n\r\n" + chunks),
            ("a folded field", host + "X: a\r\n b\r\n" + length + "\r\n" + body),
            ("a line feed alone", host + "X: a\nTransfer-Encoding: chunked\r\n\r\n" + chunks),
            ("two tokens", host + "Authorization: Bearer x\r\n" + length + "\r\n" + body),
            ("a chunk size that is none", host + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n"),
            ("a long chunk extension", host + "Transfer-Encoding: chunked\r\n\r\n5;" + "e" * 100000)]:
        data = server.raw((post + data + inner).encode("latin-1"))
        assert status_of(data) == 400, (name, data[:200])
        assert data.count(b"HTTP/1.1 ") == 1 and b"Connection: close" in data, (name, data[:400])
        assert b'"message"' in data, data
    # The same as the second request on a connection.
    good = request("GET", "/health").replace(b"Connection: close\r\n", b"")
    data = server.raw(good + (post + host + length + length + "\r\n" + body + inner).encode())
    equal([data.count(b"HTTP/1.1 200"), data.count(b"HTTP/1.1 400"), data.count(b"HTTP/1.1 ")],
          [1, 1, 2])
    query = "&".join("a%d=1" % i for i in range(500))
    refuses(400, "GET", "/health?" + query)
    refuses(431, "GET", "/health", "Cookie: %s\r\n" % "; ".join("c%d=v" % i for i in range(1000)))
    refuses(431, "GET", "/health", "".join("Cookie: c%d=v\r\n" % i for i in range(1000)))
    refuses(501, "POST", "/v1/completions", JSON + "Transfer-Encoding: gzip\r\n")
    refuses(505, "GET / HTTP/3.0\r\n", "")
    refuses(400, "GET", "http://127.0.0.1/health")
    refuses(400, "GET", "/health%00")
    refuses(400, "GET", "/health%zz")
    refuses(200, "GET", "/health?" + query[:100], token=None)


def bodies():
    """All forms of a valid request, also byte by byte."""
    body = b'{"prompt": "He said", "max_tokens": 2, "temperature": 0}'
    chunked = request("POST", "/v1/completions", JSON + "Transfer-Encoding: chunked\r\n")
    pieces = b"".join(b"%X;x=y\r\n%s\r\n" % (len(body[i:i + 9]), body[i:i + 9])
                      for i in range(0, len(body), 9))
    equal(status_of(server.raw(chunked + pieces + b"0\r\nX-Trailer: a\r\n\r\n")), 200)
    whole = request("POST", "/v1/completions", JSON, body)
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(whole)):
            connection.sendall(whole[at:at + 1])
        equal(status_of(read_all(connection)), 200)
    with server.connect() as connection:
        connection.sendall(request("POST", "/v1/completions", JSON + "Expect: 100-continue\r\n"
                                   "Content-Length: %d\r\n" % len(body)))
        equal(status_of(connection.recv(4096)), 100)
        connection.sendall(body)
        equal(status_of(read_all(connection)), 200)
    data = server.raw(request("HEAD", "/health"))
    assert status_of(data) == 200 and data.endswith(b"\r\n\r\n"), data
    data = server.raw(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
    equal(status_of(data), 200)


def half_sent():
    """Requests that never end are cut, however slowly their bytes arrive; others are not delayed."""
    late = server.metric("connections_late_total")
    whole = request("POST", "/v1/completions", JSON, b" " * 100)
    stuck = [server.connect() for _ in range(3)]
    stuck[0].sendall(whole[:40])
    stuck[1].sendall(whole[:-60])
    answers()
    begun = time.monotonic()
    try:
        for _ in range(60):  # byte by byte
            stuck[2].sendall(b"X")
            time.sleep(0.2)
        raise AssertionError("a dripping request was not cut")
    except OSError:
        assert time.monotonic() - begun > 1
    for connection in stuck:
        equal(read_all(connection), b"")
        connection.close()
    assert server.metric("connections_late_total") >= late + 3


def idle_connections():
    """A thousand idle connections, of which the server keeps 200; other clients can still connect."""
    crowd = []
    for _ in range(1000):
        crowd.append(server.connect())
    answers()
    assert server.metric("connections") <= 264
    assert server.metric("connections_crowded_total") >= 700
    for connection in crowd:
        connection.close()


def hang_up(how):
    """A client that disconnects frees its slot at once, in the middle of a stream or while it waits for
    a complete answer."""
    cancelled = server.metric("texts_cancelled_total")
    connection = server.connect()
    connection.sendall(request("POST", "/v1/completions", "", dict(LONG, stream=how == "stream")))
    assert server.wait_for("slots_busy", 1), "it never began"
    if how == "stream":
        connection.recv(4096)
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert server.wait_for("slots_busy", 0, 5), "the slot is still taken"
    equal(server.metric("texts_cancelled_total"), cancelled + 1)


def slow_reader():
    """A client that reads nothing fills its own pipe and is cut; others are not affected."""
    stalled = server.metric("streams_stalled_total")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(request("POST", "/v1/completions", "", LOUD))
    connection.recv(1)
    for _ in range(3):
        answers()
    assert server.wait_for("streams_stalled_total", stalled + 1, 15), "it was never cut"
    assert server.wait_for("slots_busy", 0, 5)
    assert b"[DONE]" not in read_all(connection)
    connection.close()


def full_queue():
    """Two slots and a queue of two: further requests get a status to try again, and none is lost."""
    seen = []

    def ask():
        status, headers, data = server.ask("POST", "/v1/completions", dict(LONG, max_tokens=120))
        if status == 429:
            assert headers["Retry-After"] == "1" and data["error"]["code"] == "rate_limit_exceeded"
        seen.append(status)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {200, 429} and seen.count(200) >= 4, seen
    equal(len(seen), 16)


def many_choices():
    """A request whose texts do not all fit takes no slot."""
    status, data = server.post("/v1/completions", dict(LONG, n=16))
    equal([status, data["error"]["message"]], [400, "16 texts at once; this server has room for 4"])
    connection = server.connect()
    connection.sendall(request("POST", "/v1/completions", "", LONG))
    assert server.wait_for("slots_busy", 1)
    equal(server.post("/v1/completions", dict(LONG, n=4))[0], 429)
    assert server.wait_for("queue_length", 0, 5), "they still wait"
    equal(server.metric("slots_busy"), 1)
    connection.close()
    assert server.wait_for("slots_busy", 0, 5)


def many_values():
    """A value takes two bytes in the text and fifty in memory: a body with too many values is not
    parsed."""
    body = b'{"prompt": [' + b"1," * 32000 + b"1]}"
    data = refuses(400, "POST", "/v1/completions", JSON, body)  # longer than the context
    assert b"context_length_exceeded" in data, data
    refuses(405, "PUT", "/v1/completions")


def pipelined():
    """Two requests sent together are answered in order."""
    first = request("GET", "/health").replace(b"Connection: close\r\n", b"")
    data = server.raw(first + request("GET", "/v1/models"))
    assert data.count(b"HTTP/1.1 200") == 2, data[:500]
    assert data.index(b'"status":"ok"') < data.index(b'"object":"list"')


def drains(how):
    """SIGTERM and SIGHUP: current work is finished, no new work begins, and /health reports it."""
    connection = server.connect()
    connection.sendall(request("POST", "/v1/completions", "", dict(LONG, n=2)))
    assert server.wait_for("slots_busy", 2)
    server.process.send_signal(how)
    statuses = set()
    while True:
        try:
            statuses.add(server.ask("GET", "/health", timeout=5)[::2][0])
            statuses.add(server.post("/v1/completions", {"prompt": "a"}, timeout=5)[0])
        except OSError:
            break
    data = read_all(connection)
    equal(status_of(data), 200)
    equal(data.count(b'"finish_reason":"length"'), 2)
    equal(statuses - {200}, {503})
    server.process.communicate(timeout=20)
    equal(server.process.returncode, 0)


for name, test in [("wrong hosts", hosts), ("foreign origins", origins), ("wrong tokens", tokens),
                   ("wrong types", types), ("bad JSON", bad_json), ("deep JSON", deep_json),
                   ("1 MB of headers", long_headers), ("10 MB bodies", long_bodies),
                   ("what is no HTTP", no_http), ("ambiguous framing", framing),
                   ("unusual but right requests", bodies), ("half-sent requests", half_sent),
                   ("1000 idle connections", idle_connections),
                   ("a stream is left", lambda: hang_up("stream")),
                   ("an answer is not waited for", lambda: hang_up("whole")),
                   ("a connection is reset", lambda: hang_up("reset")),
                   ("a slow reader", slow_reader), ("a full queue", full_queue),
                   ("more texts than fit", many_choices),
                   ("many values", many_values), ("pipelined requests", pipelined)]:
    tap.run(name, test)
    tap.run("... and it answers others", answers)
tap.run("SIGTERM drains", lambda: drains(signal.SIGTERM))
server = Server("--slots", "2", "--queue", "2", "--context", "512", "--token", TOKEN)
server.token = TOKEN
tap.run("SIGHUP drains", lambda: drains(signal.SIGHUP))
tap.finish()
