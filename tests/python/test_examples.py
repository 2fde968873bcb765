"""test_examples.py - the output of the programs in examples/."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import ALICE, DEMO, ROOT


def run(name, *arguments):
    return subprocess.run([sys.executable, "-B", f"{ROOT}/examples/{name}", *arguments], check=True,
                          capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": ROOT + "/python"}).stdout


class Examples(unittest.TestCase):
    def test_heads(self):
        with tempfile.TemporaryDirectory() as folder:
            shown = run("heads.py", DEMO, ALICE, folder + "/heads.svg")
            self.assertIn("<svg", open(folder + "/heads.svg").read(500))
        values = [float(x) for x in re.findall(r"L\dH\d  (\S+) nats", shown)]
        self.assertEqual(len(values), 6)
        self.assertLess(max(values[:3]), min(values[3:]))

    def test_without_heads(self):
        shown = run("without_heads.py", DEMO, "Alice was", "L0,L3H2").splitlines()
        self.assertEqual((shown[0][:9], shown[2][:15]), ("all heads", "without L0,L3H2"))
        self.assertNotEqual(shown[0].split(": ")[1], shown[2].split(": ")[1])

    def test_sharpen(self):
        losses = [float(x) for x in re.findall(r"loss (\S+)", run("sharpen.py"))]
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[-1], 0.05 * losses[0])
