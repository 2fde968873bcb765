"""One client of the server against the command: one_client.py [--model M] [--rounds N] ...

The same prompt, tokens and greedy choice in three ways, one after the other, again and again:

    generate  headlight generate --json
    stream    /v1/completions with stream, events read as they come
    whole     /v1/completions, one answer

`server` is the server's own clock (headlight_text_seconds_total: first token to last), `wall` the
client's: of a stream from the first event of a token to the last, of a whole answer all of the request.
Each is held against generate's clock of the same round (a whole answer against prompt and text
together); printed are medians over the rounds, ratios being medians of ratios.  Exit status 1 where one
is below --bar (0.95), or where a text is not generate's."""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "serve"))
from client import Server  # noqa: E402

PROMPT = "He said that it was so, and that it had been so for as long as he could say. She went to"


class Bench:
    def __init__(self, options):
        self.options = options
        self.threads = ["--threads", str(options.threads)]
        self.server = Server("--slots", "8", *self.threads, model=options.model)
        self.body = {"prompt": PROMPT, "max_tokens": options.tokens, "temperature": 0,
                     "ignore_eos": True}
        self.rows = []
        self.wrong = []

    def generate(self):
        program = os.environ.get("HEADLIGHT", "build/headlight")
        found = json.loads(subprocess.run(
            [program, "generate", self.options.model, PROMPT, "-n", str(self.options.tokens),
             "--ignore-end", "--json", *self.threads],
            capture_output=True, check=True).stdout)
        return found["text"], found["generation_seconds"], found["prompt_seconds"]

    def ask(self, **more):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(dict(self.body, **more)),
                           {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def stream(self):
        """The text, and the seconds from its first token to its last."""
        connection, answer = self.ask(stream=True)
        lines, times = [], []
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
                lines.append(line[6:])
        connection.close()
        texts = [json.loads(line)["choices"][0]["text"] for line in lines]
        return "".join(texts), times[-1] - times[0]

    def whole(self):
        begun = time.monotonic()
        connection, answer = self.ask()
        data = answer.read()
        took = time.monotonic() - begun
        connection.close()
        return json.loads(data)["choices"][0]["text"], took

    def timed(self, lane):
        """What a lane gave, and the server's own seconds for it."""
        before = self.server.metric("text_seconds_total")
        found = lane()
        return (*found, self.server.metric("text_seconds_total") - before)

    def round(self):
        text, own, prompt = self.generate()
        streamed, stream_wall, stream_server = self.timed(self.stream)
        answered, whole_wall, whole_server = self.timed(self.whole)
        if streamed != text or answered != text:
            self.wrong.append((text, streamed, answered))
        steps = self.options.tokens - 1
        return {"generate": steps / own,
                "stream, server": (steps / stream_server, own / stream_server),
                "stream, wall": (steps / stream_wall, own / stream_wall),
                "whole, server": (steps / whole_server, own / whole_server),
                "whole, wall": (self.options.tokens / whole_wall, (prompt + own) / whole_wall)}

    def run(self):
        options = self.options
        for number in range(options.rounds + 1):
            row = self.round()
            if number > 0:  # the first warms up
                self.rows.append(row)
        print("one client, %s: %d tokens, %d threads, %d rounds"
              % (options.model, options.tokens, options.threads, options.rounds))
        print("  %-16s %8.1f tokens/s" % ("generate", statistics.median(
            row["generate"] for row in self.rows)))
        low = []
        for name in list(self.rows[0])[1:]:
            speed, ratio = (statistics.median(row[name][i] for row in self.rows) for i in range(2))
            print("  %-16s %8.1f tokens/s   %.3f of generate" % (name, speed, ratio))
            if ratio < options.bar:
                low.append(name)
        self.server.close()
        for name in low:
            print("FAILED: %s is below %.2f of generate" % (name, options.bar))
        if self.wrong:
            print("FAILED: %d rounds gave another text than generate" % len(self.wrong))
        return 1 if low or self.wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--bar", type=float, default=0.95)
    return Bench(parser.parse_args()).run()


sys.exit(main())
