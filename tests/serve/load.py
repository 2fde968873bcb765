"""A server under many clients: load.py [--clients 16] [--seconds 60] [--model M].

Each client repeatedly requests streams of different lengths.  Prints the numbers of answers, of
refusals (429) and of anything else (which is a failure), the median time to the first token, tokens per
second, and the server's memory after a warm-up and at the end.  The exit status is 1 if something
failed, or if memory grew by more than --growth (0.05) of its initial value."""

import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time

from client import Server

WARM_UP = 0.25  # share of the time


class Load:
    def __init__(self, options):
        self.options = options
        self.server = Server("--slots", str(options.slots), "--queue", str(options.queue),
                             model=options.model)
        self.lock = threading.Lock()
        self.first = []
        self.n_tokens = self.n_texts = self.n_refused = 0
        self.errors = []
        self.end = 0

    def resident(self):
        _, _, text = self.server.ask("GET", "/metrics")
        for line in text.decode().splitlines():
            if line.startswith("process_resident_memory_bytes "):
                return float(line.split()[1])
        raise RuntimeError("no memory in /metrics")

    def ask_once(self, draw):
        """Requests a stream: returns seconds to its first token and the number of tokens; None if
        refused."""
        body = {"prompt": draw.choice(["He said", "Once upon a time", "It was"]) * draw.randint(1, 8),
                "max_tokens": draw.randint(8, 96), "temperature": 0.8, "seed": draw.randint(0, 999),
                "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        begun = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status == 429:
            answer.read()
            connection.close()
            return None
        if answer.status != 200:
            raise RuntimeError("status %d: %r" % (answer.status, answer.read()[:200]))
        first, n_tokens, done = None, 0, False
        for line in answer:
            if line.startswith(b"data: {"):
                first = first or time.monotonic() - begun
                n_tokens += 1
            done = done or line.startswith(b"data: [DONE]")
        connection.close()
        if not done:
            raise RuntimeError("a stream broke off after %d tokens" % n_tokens)
        return first, n_tokens - 1  # the last chunk holds the finish reason

    def client(self, number):
        draw = random.Random(number)
        while time.monotonic() < self.end and not self.errors:
            try:
                result = self.ask_once(draw)
            except Exception as error:  # any exception is a failure
                with self.lock:
                    self.errors.append("client %d: %r" % (number, error))
                return
            with self.lock:
                if result is None:
                    self.n_refused += 1
                else:
                    self.n_texts += 1
                    self.first.append(result[0])
                    self.n_tokens += result[1]
            if result is None:
                time.sleep(0.2)

    def run(self):
        seconds = self.options.seconds
        begun = time.monotonic()
        self.end = begun + seconds
        threads = [threading.Thread(target=self.client, args=(i,))
                   for i in range(self.options.clients)]
        for thread in threads:
            thread.start()
        time.sleep(WARM_UP * seconds)
        before = self.resident()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begun
        after = self.resident()
        self.report(took, before, after)
        status = self.server.close()
        if status != 0:
            self.errors.append("the server's exit status is %d" % status)
        if after > before * (1 + self.options.growth):
            self.errors.append("memory grew from %.1f to %.1f MB" % (before / 1e6, after / 1e6))
        for error in self.errors:
            print("FAILED: " + error)
        return 1 if self.errors else 0

    def report(self, took, before, after):
        print("%d clients, %.0f s, %s" % (self.options.clients, took, self.options.model))
        print("  texts                %d" % self.n_texts)
        print("  refused (429)        %d" % self.n_refused)
        print("  errors               %d" % len(self.errors))
        print("  tokens per second      %.1f" % (self.n_tokens / took))
        if self.first:
            print("  median first token   %.0f ms" % (1e3 * statistics.median(self.first)))
        print("  resident memory      %.1f MB warm, %.1f MB at the end" % (before / 1e6, after / 1e6))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--queue", type=int, default=16)
    parser.add_argument("--growth", type=float, default=0.05)
    parser.add_argument("--model", default="models/demo")
    return Load(parser.parse_args()).run()


sys.exit(main())
