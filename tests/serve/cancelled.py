"""If a client disconnects, its work ends: the tokenizer stops in the middle of a text, and so does the
model.  This is measured by the CPU time of the server, which soon stops growing."""

import json
import os
import shutil
import tempfile
import time

from client import Server, Tap, equal, is_sanitized

tap = Tap()
TICKS = os.sysconf("SC_CLK_TCK")
SLOW = 10 if is_sanitized() else 1
LETTERS = "a" * (1 << 20)
# Long enough that each of the requests below takes at least a second of CPU time.
TALE = "He said that it was so, and that it had been so for as long as he could say. " * 1600


def hostile_model(folder):
    """The demo model with a tokenizer that a long run of letters keeps busy for 9 s, its time
    budget."""
    for name in ["config.json", "model.safetensors", "generation_config.json", "tokenizer_config.json"]:
        os.symlink(os.path.abspath(os.path.join("models/demo", name)), os.path.join(folder, name))
    with open("models/demo/tokenizer.json", encoding="utf-8") as file:
        data = json.load(file)
    split = {"type": "Split", "pattern": {"Regex": "a*a*b|."}, "behavior": "Isolated", "invert": False}
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, plain]}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(data, file)


def seconds(server):
    """The CPU time of the server."""
    with open("/proc/%d/stat" % server.process.pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def take(server, amount):
    """Waits until the server has used that much CPU time; false if it stops before."""
    begun, deadline = seconds(server), time.monotonic() + 60
    while seconds(server) - begun < amount:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def stops(server, path, body, most):
    """Sends a request, disconnects while the server works, and checks that it works at most `most`
    seconds longer."""
    data = json.dumps(body).encode()
    with server.connect() as connection:
        connection.sendall(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            "Content-Length: %d\r\n\r\n" % (path, len(data))).encode() + data)
        assert take(server, 0.3), "it never worked"
        connection.settimeout(0)
        try:
            assert False, "it has answered already: %r" % connection.recv(300)
        except BlockingIOError:
            pass
    left, deadline = seconds(server), time.monotonic() + 60
    while server.metric("requests_working") > 0:
        assert time.monotonic() < deadline, "it never ends"
        time.sleep(0.01)
    after = seconds(server) - left
    print("# %s: %.2f s of work after the client was gone" % (path, after))
    assert after < most * SLOW, "%.2f s of work after the client was gone" % after
    begun = seconds(server)
    time.sleep(0.3)
    assert seconds(server) - begun < 0.1 * SLOW, "it still works"


ROUTES = [
    ("/v1/completions", lambda text: {"prompt": text, "max_tokens": 1}),
    ("/v1/chat/completions", lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 1}),
    ("/v1/headlight/tokens", lambda text: {"input": text}),
    ("/v1/headlight/lens", lambda text: {"input": text}),
    ("/v1/measure", lambda text: {"input": text}),
    ("/v1/headlight/rank", lambda text: {"input": text}),  # evaluate reads only 64 KiB first
]

folder = tempfile.mkdtemp()
try:
    hostile_model(folder)
    hostile = Server("--slots", "2", model=folder)
    for path, body in ROUTES:
        tap.run("a tokenizer at work: " + path, lambda: stops(hostile, path, body(LETTERS), 1.0))
    tap.run("... and it answers others", lambda: equal(
        hostile.post("/v1/completions", {"prompt": "He said", "max_tokens": 2})[0], 200))
    tap.run("... and ends", lambda: equal(hostile.close(), 0))
finally:
    shutil.rmtree(folder)

SINGLE = [["L%dH%d" % (layer, head)] for layer in range(8) for head in range(4)]
good = Server("--slots", "2")
for path, body in [
        ("/v1/completions", {"prompt": "He said", "max_tokens": 480, "ignore_eos": True, "n": 8}),
        ("/v1/measure", {"input": TALE}),
        ("/v1/headlight/rank", {"input": TALE, "ranker": "gradient"}),
        ("/v1/headlight/evaluate", {"input": TALE, "settings": SINGLE}),
]:
    tap.run("a model at work: " + path, lambda: stops(good, path, body, 1.0))
tap.run("... and it ends", lambda: equal(good.close(), 0))
tap.finish()
