"""What the command can, from Python; notebooks' output."""
import html
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import headlight
from support import ALICE, ROOT, alice

DEMO = os.path.join(ROOT, "models", "demo")


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with headlight.open(DEMO) as model:
            cls.profile = model.measure(alice(3000), context=128, probe=False)
        with headlight.open(DEMO, off="L0H1") as model:
            cls.other = model.measure(alice(3000), context=128, probe=False)

    def test_rank(self):
        table = headlight.rank(self.profile)
        self.assertEqual(len(table), 64)
        norms = {name: score for name, score in zip(table["name"], table["score"])}
        self.assertEqual(sorted(table["score"]), list(table["score"]))  # lowest output norm first
        self.assertEqual(len(norms), 64)

    def test_compare(self):
        found = headlight.compare(self.profile, self.other)
        self.assertEqual(len(found["heads"]), 64)
        self.assertIn("same_model", found.facts)
        self.assertEqual(len(found["layers"]["layer"]), 8)

    def test_lens_and_tokens(self):
        lens = headlight.lens(DEMO, "Alice was")
        self.assertEqual(lens.top.shape, (9, 4))  # before the first block, and after each of eight
        self.assertEqual(len(lens.text[0]), 4)
        with headlight.open(DEMO) as model:
            maps = headlight.tokens(model, "Alice was", heads="L3H1")
            whole = model.patterns(model.tokenize("Alice was", add_special=True))
        np.testing.assert_allclose(maps.attention[0], whole.sel(layer=3, head=1), atol=1e-6)

    def test_rows(self):
        rows = headlight.rows(DEMO, ALICE, context=64, max_tokens=128)
        self.assertEqual(rows["entropy"].shape, (8, 2, 8, 64))
        with headlight.open(DEMO) as model:
            profile = model.measure(files=ALICE, context=64, max_tokens=128, probe=False)
        np.testing.assert_allclose(rows["entropy"].mean("window", "row").values, profile.entropy.values,
                                   atol=1e-6)

    def test_run(self):
        self.assertIn("gpt2", headlight.run("info", DEMO))
        with self.assertRaisesRegex(ValueError, "nowhere"):
            headlight.run("info", "nowhere")
        done = subprocess.run([sys.executable, "-B", "-m", "headlight", "--version"], capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": ROOT + "/python"})
        self.assertEqual((done.returncode, done.stdout.split()[:2]), (0, ["headlight", headlight.version()]))

    def test_pages(self):
        page = headlight.show(self.profile)
        shown = page._repr_html_()
        self.assertLess(len(shown), 1 << 20)
        self.assertRegex(shown, r'^<iframe srcdoc="')
        inside = html.unescape(re.match(r'<iframe srcdoc="([^"]*)"', shown)[1])
        self.assertEqual(inside, page.html)
        self.assertNotRegex(inside, r'(?:src|href)="https?:')  # nothing from a network
        self.assertTrue(page.svg.lstrip().startswith(("<?xml", "<svg")))
        self.assertEqual(self.profile._repr_svg_(), page.svg)
        prompt = headlight.show(DEMO, "Alice was beginning to get very tired")
        self.assertLess(len(prompt._repr_html_()), 1 << 20)
        self.assertIn("<table>", headlight.rank(self.profile)._repr_html_())
        with tempfile.TemporaryDirectory() as folder:
            headlight.report(self.profile, self.other, out=folder + "/a.html")
            self.assertTrue(os.path.getsize(folder + "/a.html") > 100_000)

    def test_arithmetic(self):
        difference = self.other.entropy - self.profile.entropy
        self.assertEqual(difference.dims, ("layer", "head"))
        self.assertEqual((difference > 0.0).shape, (8, 8))
        self.assertEqual(self.profile.entropy.max("head").dims, ("layer",))
        self.assertEqual(self.profile.entropy.T.dims, ("head", "layer"))
        self.assertAlmostEqual(float(self.profile.entropy.max()), self.profile.entropy.values.max())
        self.assertEqual((2 * self.profile.entropy / 2).values.tolist(), self.profile.entropy.values.tolist())

    def test_ids_are_named(self):
        with headlight.open(DEMO) as model:
            ids = model.tokenize("Alice was beginning")
            self.assertEqual(model.measure({"input_ids": ids}, probe=False).n_tokens, len(ids))
            for expected, wrong in (("row of float64", [0.5]), ("has -3", [1, -3])):
                with self.assertRaisesRegex(ValueError, expected):
                    model.measure(token_ids=wrong)
            with self.assertRaisesRegex(ValueError, "without input_ids"):
                model.measure({"ids": ids})

    def test_errors_are_pythons(self):
        with self.assertRaises(OSError):
            headlight.Profile.load("nowhere.profile")
        with self.assertRaises(headlight.FileError):
            headlight.Profile.load("nowhere.profile")
        self.assertEqual(headlight.Error("a", "unsupported").__class__, headlight.UnsupportedError)
        self.assertEqual(headlight.Error("a", "internal").status, "internal")


class Heads(unittest.TestCase):
    def test_head_needle_damage_summary(self):
        with headlight.open(DEMO) as model:
            profile = model.measure(alice(4000), probe=False)
        card = headlight.head(profile, "L3H1")
        self.assertEqual((card.facts["head"], card.facts["type"] != ""), ("L3H1", True))
        entropy = dict(zip(card["numbers"]["number"], card["numbers"]["value"]))["entropy"]
        self.assertAlmostEqual(entropy, float(profile.entropy.values[3, 1]), places=6)
        self.assertEqual(set(card["similar"]["layer"]), {3})
        self.assertRegex(headlight.summary(profile)[0], r"most focused")
        found = headlight.needle(DEMO, lengths="64", depths="0.5", samples=1, rank_samples=1)
        self.assertEqual(len(found["heads"]), 64)
        self.assertIn("all heads", list(found["conditions"]["condition"]))
        found = headlight.damage(DEMO, DEMO, alice(400), off="L1H2", max_tokens=64)
        self.assertEqual(found["heads"]["name"][0], "L1H2")


if __name__ == "__main__":
    unittest.main()
