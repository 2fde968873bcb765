"""test_watch.py - the event files of `headlight watch`, read by the reader of test_events, which shares
no code with the writer; compared with the series and with attention of known entropy.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from support import PROGRAM, ROOT
from test_events import message, read

SCRIPT = os.path.join(ROOT, "tests", "cli", "checkpoint.py")
MODEL = os.path.join(ROOT, "tests", "data", "families", "llama3")


class Watch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        run, ids, lines, events = (os.path.join(cls.folder.name, name)
                                   for name in ("run", "ids.jsonl", "series.jsonl", "events"))
        subprocess.run([sys.executable, SCRIPT, "ids", ids], check=True)
        for step, factor in ((5, "1"), (300, "0"), (2 ** 40, "1000")):
            subprocess.run([sys.executable, SCRIPT, MODEL, f"{run}/checkpoint-{step}", factor],
                           check=True)
        done = subprocess.run([PROGRAM, "watch", run, "--token-ids", ids, "--series", lines,
                               "--context", "64", "--nll", "--once", "--quiet", "--events", events],
                              capture_output=True)
        assert done.returncode == 1, done.stderr
        with open(lines, encoding="utf-8") as file:
            cls.head, *cls.points = map(json.loads, file)
        (name,) = os.listdir(events)
        cls.first, *cls.events = read(os.path.join(events, name))

    def values(self, index):
        """{tag: Value} of an event."""
        found = [message(value) for value in message(self.events[index][5][0])[1]]
        self.assertEqual(len({value[1][0] for value in found}), len(found))
        return {value[1][0].decode(): value for value in found}

    def test_the_frame(self):
        self.assertEqual(self.first[3], [b"brain.Event:2"])
        self.assertEqual([event[2][0] for event in self.events], [5, 300, 2 ** 40])
        for event, point in zip(self.events, self.points):
            self.assertAlmostEqual(event[1][0], point["modified"] * 1e-9, places=3)

    def test_every_number_is_the_series(self):
        for index, point in enumerate(self.points):
            values = self.values(index)
            wanted = {"loss": point["loss"], "entropy/mean": point["entropy"],
                      "entropy/normalized": point["normalized"], "entropy/drop": point["drop"],
                      "entropy/drop_errors": point["drop_errors"]}
            for layer, heads in enumerate(point["heads_entropy"]):
                wanted.update((f"entropy/L{layer}H{head}", x) for head, x in enumerate(heads))
            for name, found in point["diagnoses"].items():
                measured = found["verdict"] != "not run"
                wanted[f"diagnosis/{name}"] = float(found["verdict"] == "found") if measured else None
            wanted = {tag: x for tag, x in wanted.items() if x is not None}
            self.assertEqual(set(values), {*wanted, "entropy"})
            for tag, x in wanted.items():
                self.assertEqual(values[tag][2][0], float(np.float32(x)), tag)

    def test_histograms(self):
        for index, point in enumerate(self.points):
            found = message(self.values(index)["entropy"][5][0])
            heads = np.array(point["heads_entropy"], np.float32).astype(float).ravel()
            np.testing.assert_allclose([found[i][0] for i in range(1, 6)],
                                       [heads.min(), heads.max(), heads.size, heads.sum(),
                                        (heads ** 2).sum()])
            limits, counts = (np.frombuffer(found[i][0], "<f8") for i in (6, 7))
            self.assertEqual((len(limits), len(counts)), (32, 32))
            self.assertEqual(counts.sum(), heads.size)
            self.assertTrue((np.diff(limits) > 0).all() and limits[-1] >= heads.max())
            for limit, n in zip(limits[:-1], np.cumsum(counts)):
                self.assertEqual(n, np.sum(heads < limit))

    def test_uniform_attention(self):
        """Rows that see 1 to 64 keys, with uniform attention: each has an entropy of ln n."""
        values = self.values(1)
        self.assertAlmostEqual(values["entropy/mean"][2][0], math.lgamma(65) / 64, places=5)
        self.assertEqual(values["diagnosis/entropic-overload"][2], [1.0])
        self.assertEqual(values["diagnosis/entropy-collapse"][2], [0.0])
        self.assertEqual(self.values(2)["diagnosis/entropy-collapse"][2], [1.0])
