"""All tests of the server at once, for any length of time: soak.py [--seconds 120].

One server runs for the whole time, with clients that send requests repeatedly.  At the same time, in
turn,

    hostile   all of hostile.py, against a separate server
    kill      a measurement that is killed (SIGKILL) at random moments and resumed until it is done
    measure   the same measurement again, by the program and by the server
    unread    40 sockets that request streams and never read them, against a separate server: a
              good client must be answered within a second at the 99th percentile

If a round of hostile clients fails while the machine was suspended, it is counted separately and
repeated, since its tests depend on time.

Profiles and answers must have the same bytes every time, streams must be complete, and the server's
memory at the end must be at most --growth (0.05) above that after a quarter of the time.  Prints a
summary; the exit status is 1 if any of this fails."""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from client import Server
from stalled import LOUD, PROMISED, attack, percentile

PROGRAM = os.environ.get("HEADLIGHT", "build/headlight")
MODEL = "models/demo"
QUESTION = {"prompt": "He said", "max_tokens": 24, "temperature": 0.8, "seed": 5}
MEASURED = {"input": ["He said that it was so, and so it was."]}


class Watch(threading.Thread):
    """Wakes up often, and counts long delays, which show that the machine was suspended."""

    def __init__(self):
        super().__init__(daemon=True)
        self.standstills = 0
        self.start()

    def run(self):
        while True:
            begun = time.monotonic()
            time.sleep(0.2)
            self.standstills += time.monotonic() - begun > 2


class Soak:
    def __init__(self, options):
        self.options = options
        self.draw = random.Random(options.seed)
        self.folder = tempfile.mkdtemp(prefix="headlight-soak-")
        self.text = os.path.join(self.folder, "text.txt")
        with open("models/text/alice.txt", "rb") as source, open(self.text, "wb") as copy:
            copy.write(source.read(40000))
        self.end = time.monotonic() + options.seconds
        self.lock = threading.Lock()
        self.errors = []
        self.watch = Watch()
        self.unread_times = []  # seconds until answers, beside sockets that never read
        self.counts = dict.fromkeys(["answers", "streams", "refusals", "server measurements", "kills",
                                     "resumed to the end", "measurements", "hostile rounds",
                                     "unread rounds", "repeated rounds"], 0)

    def count(self, name):
        with self.lock:
            self.counts[name] += 1

    def fail(self, text):
        with self.lock:
            self.errors.append(text)

    def going(self):
        return time.monotonic() < self.end and not self.errors

    # ------------------------------------------------------------------ clients of the server

    @staticmethod
    def text_of(data):
        return data["choices"][0]["text"]

    def ask(self, draw, wanted):
        """Sends one request of a random kind."""
        kind = draw.choice(["answer", "stream", "measure"])
        if kind == "measure":
            status, data = self.server.post("/v1/measure", MEASURED, timeout=120)
            name, said = "server measurements", data
        elif kind == "answer":
            status, data = self.server.post("/v1/completions", QUESTION, timeout=120)
            name, said = "answers", self.text_of(data) if status == 200 else None
        else:
            status, name = 200, "streams"
            try:
                said = "".join(self.text_of(event) for event in
                               self.server.stream("/v1/completions", QUESTION))
            except RuntimeError as error:
                if not str(error).startswith("429"):
                    raise
                status = 429
        if status == 429:
            self.count("refusals")
            time.sleep(0.1)
        elif status != 200:
            self.fail("%s: status %d: %r" % (name, status, data))
        elif said != wanted[kind]:
            self.fail("%s: %r, wanted %r" % (name, str(said)[:200], str(wanted[kind])[:200]))
        else:
            self.count(name)

    def client(self, number, wanted):
        draw = random.Random(number)
        while self.going():
            try:
                self.ask(draw, wanted)
            except Exception as error:  # any exception is a failure
                self.fail("client %d: %r" % (number, error))

    def resident(self):
        _, _, text = self.server.ask("GET", "/metrics")
        for line in text.decode().splitlines():
            if line.startswith("process_resident_memory_bytes "):
                return float(line.split()[1])
        raise RuntimeError("no memory in /metrics")

    # ------------------------------------------------------------------------- beside it

    def measure(self, name, *more):
        path = os.path.join(self.folder, name)
        return path, [PROGRAM, "measure", MODEL, self.text, "-o", path, "--context", "128",
                      "--threads", "1", "--quiet", *more]

    def same_profile(self, path, what):
        with open(path, "rb") as file:
            if file.read() != self.profile:
                self.fail(what + ": another profile")
        os.remove(path)

    def kill_and_resume(self):
        path, command = self.measure("killed", "--resume", "--save-every", "0.05")
        for n_kills in range(200):
            # Within the time that it takes alone, and longer each time, since others are busy too.
            patience = self.draw.uniform(0.05, 0.9) * self.alone * (1 + n_kills / 5)
            process = subprocess.Popen(command)
            try:
                status = process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                self.count("kills")
                if os.path.exists(path):
                    break  # it was written before the kill: it must be complete, which is checked below
                continue
            if status != 0:
                self.fail("resumed: exit status %d" % status)
                return
            break
        else:
            self.fail("200 kills, and never done")
            return
        self.same_profile(path, "resumed")
        for left in os.listdir(self.folder):
            if left.startswith(".killed."):  # a file from the moment of a kill
                os.remove(os.path.join(self.folder, left))
        if os.path.exists(path + ".part"):
            os.remove(path + ".part")
        self.count("resumed to the end")

    def measure_again(self):
        path, command = self.measure("again")
        if subprocess.run(command).returncode != 0:
            self.fail("measure failed")
            return
        self.same_profile(path, "measured again")
        self.count("measurements")

    def hostile(self):
        standstills = self.watch.standstills
        result = subprocess.run([sys.executable, "-B", "tests/serve/hostile.py"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wrong = [line for line in result.stdout.splitlines() if not line.startswith(("ok ", "1.."))]
        if (result.returncode != 0 or wrong) and self.watch.standstills > standstills:
            self.count("repeated rounds")
            return
        if result.returncode != 0 or wrong:
            self.fail("hostile clients, exit status %d: %s" % (result.returncode, "\n".join(wrong)))
        self.count("hostile rounds")

    def unread(self):
        standstills = self.watch.standstills
        server = Server()
        try:
            times, _ = attack(server, 40, LOUD, 10)
        except (AssertionError, OSError) as error:
            times = []
            self.fail("beside unread streams: %s" % error)
        if server.close() != 0:
            self.fail("beside unread streams: the server's exit status is not 0")
        if self.watch.standstills > standstills:
            self.count("repeated rounds")
            return
        self.unread_times += times
        self.count("unread rounds")

    # ---------------------------------------------------------------------------- the whole

    def learn(self):
        """Finds out the expected answers."""
        path, command = self.measure("first")
        begun = time.monotonic()
        subprocess.run(command, check=True)
        self.alone = time.monotonic() - begun
        with open(path, "rb") as file:
            self.profile = file.read()
        answer = self.text_of(self.server.post("/v1/completions", QUESTION)[1])
        return {"answer": answer, "stream": answer,
                "measure": self.server.post("/v1/measure", MEASURED)[1]}

    def run(self):
        begun = time.monotonic()
        self.server = Server("--slots", "4", "--queue", "8")
        wanted = self.learn()
        clients = [threading.Thread(target=self.client, args=(i, wanted))
                   for i in range(self.options.clients)]
        for client in clients:
            client.start()
        warm = None
        turns = [self.hostile, self.unread, self.kill_and_resume, self.measure_again]
        while self.going():
            turns[0]()
            turns.append(turns.pop(0))
            if warm is None and time.monotonic() - begun > self.options.seconds / 4:
                warm = self.resident()
        for client in clients:
            client.join()
        last = self.resident()
        status = self.server.close()
        if status != 0:
            self.fail("the server's exit status is %d" % status)
        if warm is not None and last > warm * (1 + self.options.growth):
            self.fail("memory grew from %.1f to %.1f MB" % (warm / 1e6, last / 1e6))
        if self.unread_times and percentile(self.unread_times, 0.99) >= PROMISED:
            self.fail("beside unread streams a good client waits for more than a second")
        self.report(time.monotonic() - begun, warm, last)
        shutil.rmtree(self.folder)
        return 1 if self.errors else 0

    def report(self, took, warm, last):
        print("soak: %.0f s, %d clients" % (took, self.options.clients))
        for name, count in self.counts.items():
            print("  %-22s %d" % (name, count))
        print("  %-22s %.1f MB warm, %.1f MB at the end" % ("server's memory",
                                                          (warm or 0) / 1e6, last / 1e6))
        if self.unread_times:
            print("  %-22s median %.3f s, p99 %.3f s of %d answers" % (
                "beside 40 unread", percentile(self.unread_times, 0.5),
                percentile(self.unread_times, 0.99), len(self.unread_times)))
        for error in self.errors:
            print("FAILED: " + error)
        print("all the same bytes" if not self.errors else "%d failures" % len(self.errors))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--growth", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    return Soak(parser.parse_args()).run()


sys.exit(main())
