"""A server with a memory limit just above its initial use: measurements, which need a session of their
own, are refused with a message, repeatedly, and texts are still generated.  Prints "fine"."""

import re

from client import Server, equal

TEXT = {"prompt": "He said", "max_tokens": 2, "temperature": 0}
SLOTS = ["--slots", "2", "--context", "128"]


def memory_for_start():
    """The number of MiB in the refusal's message."""
    try:
        Server(*SLOTS, "--max-memory", "1M").close()
    except RuntimeError as error:
        return float(re.search(r"([0-9.]+) MiB of memory for 128 tokens", str(error)).group(1))
    raise AssertionError("1 MiB was enough")


server = Server(*SLOTS, "--max-memory", "%.2fM" % (memory_for_start() + 0.5))
for _ in range(3):
    status, data = server.post("/v1/completions", TEXT)
    equal([status, data["choices"][0]["text"]], [200, ", \u201c"])
    status, data = server.post("/v1/measure", {"input": ["He said that it was so."]})
    assert status in (400, 500), (status, data)
    assert "memory" in data["error"]["message"], data
equal(server.close(), 0)
print("fine")
