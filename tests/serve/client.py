"""A headlight server to test, and a minimal client, with the standard library only.  Prints TAP."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time


class Server:
    """A server at a free port, with --threads 1; close() ends it with SIGTERM."""

    def __init__(self, *options, model="models/demo", **more):
        program = os.environ.get("HEADLIGHT", "build/headlight")
        self.process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "--threads", "1", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        line = self.process.stdout.readline()
        if not line.startswith("http://"):
            raise RuntimeError("no server: " + self.process.stderr.read())
        self.port = int(line.rsplit(":", 1)[1].strip("/\n"))
        self.token = None

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def ask(self, method, path, body=None, headers=None, timeout=30):
        """Status, headers and body, which is parsed if it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        sent = dict(headers or {})
        if self.token and "Authorization" not in sent:
            sent["Authorization"] = "Bearer " + self.token
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if data and answer.headers.get("Content-Type", "").startswith("application/json"):
            data = json.loads(data)
        return answer.status, answer.headers, data

    def post(self, path, body, **more):
        status, _, data = self.ask("POST", path, body, **more)
        return status, data

    def stream(self, path, body):
        """The objects of a stream; the last one must be [DONE]."""
        status, headers, data = self.ask("POST", path, dict(body, stream=True))
        if status != 200:
            raise RuntimeError("%d %r" % (status, data))
        assert headers["Content-Type"].startswith("text/event-stream"), headers
        events = [event for event in data.decode().split("\n\n") if event]
        assert all(event.startswith("data: ") for event in events), events
        assert events[-1] == "data: [DONE]", events[-1]
        return [json.loads(event[6:]) for event in events[:-1]]

    def raw(self, data, timeout=10):
        """The answer to some bytes, up to the end of the connection."""
        with self.connect(timeout) as connection:
            try:
                connection.sendall(data)
            except OSError:
                pass  # closed while we were writing: what arrived before counts
            return read_all(connection)

    def metric(self, name):
        _, _, text = self.ask("GET", "/metrics")
        for line in text.decode().splitlines():
            if line.startswith("headlight_" + name + " "):
                return float(line.split()[-1])
        raise KeyError(name)

    def wait_for(self, name, value, seconds=10):
        """Waits until a metric has a value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric(name) == value:
                return True
            time.sleep(0.05)
        return False

    def close(self):
        """Returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=20)
        if self.process.returncode != 0:
            print("# the server said: " + said.replace("\n", " | "))
        return self.process.returncode


def is_sanitized():
    """Returns whether the program was built with sanitizers, which are slow and reserve terabytes of
    address space."""
    with open(os.environ.get("HEADLIGHT", "build/headlight"), "rb") as file:
        data = file.read()
    return b"__asan_init" in data or b"__tsan_init" in data


def read_all(connection):
    data = b""
    try:
        while True:
            more = connection.recv(65536)
            if not more:
                return data
            data += more
    except OSError:
        return data


class Tap:
    """Numbered results; a test is a function that raises an exception on failure."""

    def __init__(self):
        self.count = 0
        self.failed = 0

    def run(self, name, test):
        self.count += 1
        try:
            test()
            print("ok %d - %s" % (self.count, name))
        except Exception as error:  # any exception is a failure of this test
            self.failed += 1
            place = error.__traceback__
            while place.tb_next:
                place = place.tb_next
            text = "%s: %s (line %d)" % (type(error).__name__, error, place.tb_lineno)
            for line in text[:2000].splitlines():
                print("# " + line)
            print("not ok %d - %s" % (self.count, name))
        sys.stdout.flush()

    def finish(self):
        print("1..%d" % self.count)
        sys.exit(1 if self.failed else 0)


def equal(seen, wanted):
    assert seen == wanted, "%r, wanted %r" % (seen, wanted)
