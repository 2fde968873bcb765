"""Sockets that request streams and never read them, beside a good client, which must be answered within
a second at the 99th percentile.

    stalled.py [--seconds 5] [--sockets 40]

There are two kinds of streams: loud ones, with numbers of all heads for every token, which fill every
buffer; and plain ones, most of which end unread.  Sockets that the server cut are opened again at once.
 soak.py calls `attack` for longer times."""

import argparse
import json
import select
import socket
import threading
import time

from client import Server, Tap, equal, is_sanitized

LONG = {"prompt": "He said", "max_tokens": 480, "temperature": 0, "ignore_eos": True, "stream": True}
LOUD = dict(LONG, headlight={"rows": ["entropy", "normalized", "renyi2", "entropy_nosink", "lookback_prompt"]})
GOOD = {"prompt": "He said", "max_tokens": 12, "temperature": 0}
PROMISED = 20.0 if is_sanitized() else 1.0  # seconds; builds with sanitizers are not tested for speed


class Unread:
    """A number of sockets with one request each, whose answers are never read."""

    def __init__(self, server, count, body, source=None):
        self.server = server
        data = json.dumps(body).encode()
        token = "Authorization: Bearer %s\r\n" % server.token if server.token else ""
        self.request = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s"
                        "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                        % (token, len(data))).encode() + data
        self.source = source
        self.asked = 0
        self.sockets = [self.ask() for _ in range(count)]

    def ask(self):
        self.asked += 1
        made = socket.create_connection(("127.0.0.1", self.server.port), timeout=20,
                                        source_address=self.source)
        made.sendall(self.request)
        return made

    def come_back(self):
        """Opens the sockets again that the server has closed."""
        watch = select.poll()
        for made in self.sockets:
            watch.register(made, select.POLLRDHUP)
        gone = {number for number, _ in watch.poll(0)}
        for at, made in enumerate(self.sockets):
            if made.fileno() in gone:
                made.close()
                self.sockets[at] = self.ask()

    def close(self):
        for made in self.sockets:
            made.close()


def percentile(times, share):
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def attack(server, sockets, body, seconds, wanted=None):
    """Returns how long the good client waited for each of its answers, in seconds, and the number of
    opened sockets."""
    times = []
    end = time.monotonic() + seconds
    unread = Unread(server, sockets, body)
    going = threading.Event()

    def come_back():
        while not going.wait(0.2):
            unread.come_back()

    helper = threading.Thread(target=come_back)
    helper.start()
    try:
        while time.monotonic() < end:
            begun = time.monotonic()
            status, data = server.post("/v1/completions", GOOD)
            times.append(time.monotonic() - begun)
            equal(status, 200)
            text = data["choices"][0]["text"]
            wanted = wanted or text
            equal(text, wanted)
            time.sleep(0.02)
    finally:
        going.set()
        helper.join()
        unread.close()
    return times, unread.asked


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--sockets", type=int, default=40)
    options = parser.parse_args()
    tap = Tap()
    server = Server("--stall-timeout", "30")

    def bystander(body):
        times, asked = attack(server, options.sockets, body, options.seconds)
        print("# %d answers beside %d sockets (%d asked): median %.3f s, p99 %.3f s, longest %.3f s"
              % (len(times), options.sockets, asked, percentile(times, 0.5),
                 percentile(times, 0.99), max(times)))
        assert percentile(times, 0.99) < PROMISED, percentile(times, 0.99)
        assert server.wait_for("slots_busy", 0, 10), "slots are still taken"

    def late_reader():
        """A stream that was parked for others continues when it is read, and is complete."""
        wanted = server.stream("/v1/completions", LOUD)
        with Unread(server, 1, LOUD).sockets[0] as first:
            others = Unread(server, options.sockets, LOUD)
            deadline = time.monotonic() + 10
            while server.metric("texts_parked") < 8 and time.monotonic() < deadline:
                time.sleep(0.1)
            others.close()
            data = b""
            while b"[DONE]" not in data:
                more = first.recv(65536)
                assert more, data[-200:]
                data += more
        lines = b"".join(unchunk(data)).decode().split("\n\n")
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        equal([event["choices"] for event in events], [event["choices"] for event in wanted])

    def crowd():
        """When no more requests fit, the stream that has waited longest for its client is cut."""
        small = Server("--slots", "1", "--queue", "1", "--stall-timeout", "600")  # 18 requests at a time
        unread = Unread(small, 0, LOUD)
        for n in range(22):
            unread.sockets.append(unread.ask())
            assert small.wait_for("texts_parked_total", n), n  # each one leaves the slot to the next
        equal(small.metric("requests_working"), 18)
        equal(small.metric("streams_stalled_total"), 4)
        equal(small.post("/v1/completions", GOOD)[0], 200)
        unread.close()
        equal(small.close(), 0)

    def unchunk(data):
        data = data.split(b"\r\n\r\n", 1)[1]
        while data:
            size, data = data.split(b"\r\n", 1)
            yield data[:int(size, 16)]
            data = data[int(size, 16) + 2:]

    tap.run("beside loud streams", lambda: bystander(LOUD))
    tap.run("more unread streams than there is room for", crowd)
    tap.run("beside plain streams", lambda: bystander(LONG))
    tap.run("a late reader gets the whole text", late_reader)
    equal(server.close(), 0)
    tap.finish()


if __name__ == "__main__":
    main()
