"""test_model.py - models in Python, against the numbers of transformers and of the command."""
import csv
import io
import json
import math
import os
import sys
import tempfile
import types
import unittest

import numpy as np

import headlight
from support import ALICE, DEMO, SPARSE, alice, families, program, read_safetensors


class Families(unittest.TestCase):
    def test_profiles_agree_with_transformers(self):
        """Means over rows of transformers' eager attention, for every golden model."""
        paths = families()
        self.assertGreaterEqual(len(paths), 1)
        for path in paths:
            expected, _ = read_safetensors(path + "/expected.safetensors")
            with self.subTest(os.path.basename(path)), headlight.open(path) as model:
                profile = model.measure(token_ids=expected["tokens"],
                                        context=expected["tokens"].shape[1], probe=False)
                # Rows that do not see the first key are not counted; transformers has 0 there.
                share = profile.moments("first", "count").values / profile.n_tokens
                for name, ours in (("entropy", profile.entropy), ("renyi2", profile.renyi2),
                                   ("peak", profile.peak), ("first", profile.first.values * share)):
                    theirs = expected[name].astype(np.float64).mean(axis=(1, 3))
                    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4,
                                               err_msg=f"{path} {name}")


class Windows(unittest.TestCase):
    """A tokenizer that adds token 0 before a text: every window begins with it."""
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        with open(DEMO + "/tokenizer.json", encoding="utf-8") as file:
            tokenizer = json.load(file)
        name = tokenizer["added_tokens"][0]["content"]
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": name, "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {name: {"id": name, "ids": [0], "tokens": [name]}}}
        with open(cls.folder.name + "/tokenizer.json", "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        cls.model = headlight.open(DEMO, tokenizer=cls.folder.name)
        cls.ids = cls.model.tokenize(alice(900)).tolist()

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        cls.folder.cleanup()

    def cut(self, room, before):
        return [before + self.ids[i:i + room] for i in range(0, len(self.ids), room)]

    def test_every_window_begins_with_it(self):
        options = {"context": 32, "probe": False, "nll": True}
        for special, windows in (("window", self.cut(31, [0])), ("none", self.cut(32, []))):
            ours = self.model.measure(alice(900), special=special, **options)
            theirs = self.model.measure(token_ids=windows, **options)
            np.testing.assert_array_equal(ours.entropy.values, theirs.entropy.values)
            np.testing.assert_array_equal(ours.first.values, theirs.first.values)
        default = self.model.measure(alice(900), **options)
        self.assertEqual(default.n_tokens, len(self.ids) + len(self.cut(31, [0])))

    def test_every_token_of_the_text_is_scored(self):
        found = self.model.eval(alice(900), context=32)
        self.assertEqual(found.n_scored, len(self.ids))
        self.assertEqual(len(found.nll[0]), len(self.ids))
        self.assertFalse(np.isnan(found.nll[0]).any())
        old = self.model.eval(alice(900), context=32, special="document")
        self.assertEqual(len(old.nll[0]), len(self.ids) + 1)
        self.assertEqual(int(np.isnan(old.nll[0]).sum()), -(-(len(self.ids) + 1) // 32))

    def test_another_word_is_refused(self):
        for call in (self.model.eval, self.model.measure):
            with self.assertRaisesRegex(headlight.Error, "wanted one of window, document, none"):
                call(alice(900), special="both")


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = headlight.open(DEMO)
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_info_is_the_commands(self):
        with open(DEMO + "/config.json") as file:
            config = json.load(file)
        info = self.model.info
        self.assertEqual((info.family, info.n_layers, info.n_heads, info.d_model, info.d_vocab),
                         ("gpt2", config["n_layer"], config["n_head"], config["n_embd"],
                          config["vocab_size"]))
        self.assertEqual(info.eos_ids, (config["eos_token_id"],))

    def test_tokens_go_there_and_back(self):
        text = "Alice was beginning, naïvely, to say \"Grüß Gott\" — 你好!\n"
        ids = self.model.tokenize(text)
        self.assertEqual(self.model.detokenize(ids), text)
        self.assertEqual(ids.dtype, np.int64)
        shown = json.loads(program("tokenize", DEMO, text, "--json"))
        self.assertEqual(ids.tolist(), shown["ids"])

    def test_generate_is_the_commands(self):
        for arguments, options in (
                ([], {}),
                (["-t", "0.9", "--seed", "7", "--top-k", "40"],
                 {"temperature": 0.9, "seed": 7, "top_k": 40}),
                (["--off", "L0H1,L3"], {"off": ["L0H1", "L3"]}),
                (["--stop", "the"], {"stop": ["the"]})):
            with self.subTest(arguments):
                wanted = json.loads(program("generate", DEMO, "Alice was", "-n", "24", "--json",
                                            *arguments))
                found = self.model.generate("Alice was", max_tokens=24, **options)
                self.assertEqual(found.text, wanted["text"])
                self.assertEqual([token.id for token in found.tokens],
                                 [token["id"] for token in wanted["tokens"]])
                self.assertEqual(found.stop, wanted["stop"])
                np.testing.assert_allclose([token.attention_entropy for token in found.tokens],
                                           [token["attention_entropy"] for token in wanted["tokens"]],
                                           rtol=1e-5)

    def test_tokens_come_one_by_one_and_can_be_enough(self):
        seen = []

        def on_token(token):
            seen.append(token)
            return len(seen) < 5

        found = self.model.generate("Alice was", on_token=on_token, max_tokens=24)
        self.assertEqual((len(seen), found.stop), (5, "callback"))
        self.assertEqual(found.tokens, seen)
        self.assertEqual("".join(token.text for token in seen), found.text)

    def test_an_error_in_a_callback_comes_out(self):
        def on_token(token):
            raise KeyError("enough")

        def on_progress(progress):
            raise ValueError(f"at {progress.n_tokens}")

        with self.assertRaisesRegex(KeyError, "enough"):
            self.model.generate("Alice was", on_token=on_token)
        with self.assertRaisesRegex(ValueError, "at [0-9]+"):
            self.model.measure(alice(400), on_progress=on_progress)

    def test_measure_is_the_commands_to_the_byte(self):
        """Files, and the same text as a string, which has no name."""
        program("measure", DEMO, ALICE, "--max-tokens", 600, "-c", 128, "-o", self.path("command"),
                "--quiet")
        with self.model.measure(files=ALICE, max_tokens=600, context=128) as profile:
            profile.save(self.path("python"))
        with open(self.path("command"), "rb") as a, open(self.path("python"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_texts_are_documents(self):
        parts = [alice(900)[:450], alice(900)[450:]]
        seen = []
        both = self.model.measure(parts, probe=False, on_progress=seen.append)
        one, two = (self.model.measure(part, probe=False) for part in parts)
        self.assertEqual(both.n_sequences, 2)
        self.assertEqual(seen[-1].n_tokens, both.n_tokens)
        merged = one.merge(two)
        self.assertIs(merged, one)
        np.testing.assert_array_equal(both.entropy, merged.entropy)
        merged.save(self.path("merged"))
        both.save(self.path("both"))
        a, b = (read_safetensors(self.path(name))[0] for name in ("merged", "both"))
        # A document's number is a hash of its corpus, too, which is another one here.
        for found in (a, b):
            self.assertEqual(len(set(found.pop("sequence.document").tolist())), 2)
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            self.assertEqual(a[name].tobytes(), b[name].tobytes(), name)

    def test_entropy_is_that_of_the_whole_matrix(self):
        text = alice(300)
        patterns = self.model.patterns(text)
        self.assertEqual(patterns.dims, ("layer", "head", "query", "key"))
        profile = self.model.measure(text, probe=False)
        for layer in range(self.model.info.n_layers):
            by_matrix = headlight.compute_attention_entropy(
                patterns.values[layer:layer + 1].astype(np.float64))
            np.testing.assert_allclose(profile.entropy.sel(layer=layer), by_matrix, atol=1e-4)

    def test_eval_is_the_commands(self):
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.write(alice(1500))
        for arguments, options in (([], {}), (["-c", "64", "-s", "32"], {"context": 64, "stride": 32}),
                                   (["--off", "L2"], {"off": "L2"})):
            with self.subTest(arguments):
                wanted = json.loads(program("eval", DEMO, self.path("text.txt"), "--json", *arguments))
                found = self.model.eval(files=self.path("text.txt"), **options)
                self.assertEqual(found.mean, self.model.eval(alice(1500), **options).mean)
                for name in ("perplexity", "bits_per_byte"):
                    self.assertAlmostEqual(found.__dict__[name], wanted["total"][name], places=9)
                self.assertEqual(found.n_scored, np.sum(~np.isnan(found.nll[0])))
                self.assertAlmostEqual(found.mean, np.nanmean(found.nll[0]), places=9)

    def test_eval_reads_lines_of_jsonl(self):
        path = self.path("texts.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for text in (alice(700)[:300], alice(700)[300:]):
                file.write(json.dumps({"text": text}) + "\n")
        wanted = json.loads(program("eval", DEMO, path, "--json"))["total"]
        found = self.model.eval(files=[path])
        self.assertEqual((found.n_texts, len(found.nll)), (2, 2))
        self.assertAlmostEqual(found.perplexity, wanted["perplexity"], places=9)
        with open(path, "a") as file:
            file.write("[1]\n")
        with self.assertRaisesRegex(headlight.Error, r'texts.jsonl:3: no "text"'):
            self.model.eval(files=path)

    def test_frontier_and_prune_are_the_commands(self):
        with open(self.path("budget.txt"), "w", encoding="utf-8") as file:
            file.write(alice(9000))
        out, own = self.path("by-command"), self.path("by-python")
        wanted = json.loads(program("prune", DEMO, "--text", self.path("budget.txt"), "-c", "64",
                                    "--max-tokens", "1024", "--by", "output-norm", "--until-loss",
                                    "0.1", "--keep", "L1,previous", "--repair", "none", "--no-timing", "--json", "-o", out))
        found = self.model.frontier(files=self.path("budget.txt"), context=64, max_tokens=1024,
                                    rankers=["output-norm"], until_loss=0.1,
                                    keep=["L1", "previous"], repair=False)
        self.assertFalse(found.repaired)
        self.assertEqual(found.heads, wanted["removed_heads"])
        self.assertFalse([head for head in found.heads if head.startswith("L1H")])
        budget = wanted["budget"]
        self.assertEqual(found.recommended.rise, budget["rise"])
        self.assertEqual([point.n_off for point in found.points],
                         [row["heads"] for row in budget["frontier"]["rows"]])
        self.model.prune(found.heads, own)
        self.assertEqual(found.recommended.tensor_bytes, wanted["after"]["tensor_bytes"])
        with open(out + "/model.safetensors", "rb") as a, open(own + "/model.safetensors", "rb") as b:
            self.assertEqual(a.read(), b.read())
        repaired = json.loads(program("prune", DEMO, "--text", self.path("budget.txt"), "-c", "64",
                                      "--max-tokens", "512", "--by", "output-norm", "--until-bytes",
                                      "14500000", "--no-timing", "--json", "-o", own + "-repaired"))
        found = self.model.frontier(files=self.path("budget.txt"), context=64, max_tokens=512,
                                    rankers=["output-norm"], until_bytes=14500000)
        self.assertTrue(found.repaired and repaired["budget"]["repaired"])
        self.assertEqual(found.heads, repaired["removed_heads"])
        self.assertEqual(found.recommended.rise, repaired["budget"]["rise"])
        for options, message in (({"until_loss": -1.0}, "wanted more than 0"),
                                 ({"until_bytes": 1000}, "no number of heads makes the model as small"),
                                 ({"rankers": ["entropi"]}, "no ranker is called 'entropi'"),
                                 ({"keep": "L99"}, "L99: the model has layers L0 to L7"),
                                 ({"context": 512}, "wanted 4 or more")):
            with self.subTest(message), self.assertRaisesRegex(headlight.Error, message):
                self.model.frontier(alice(3000), **{"context": 64, **options})

    def test_mistakes_are_named(self):
        with self.assertRaises(headlight.Error) as caught:
            headlight.open("/nowhere/at/all")
        self.assertEqual(caught.exception.status, "not found")
        self.assertIn("/nowhere/at/all", str(caught.exception))
        with self.assertRaisesRegex(headlight.Error, "L9"):
            self.model.generate("x", off="L9H1")
        with self.assertRaisesRegex(headlight.Error, "one of texts, files and token_ids"):
            self.model.measure()
        with self.assertRaisesRegex(headlight.Error, "stop: an empty text"):
            self.model.generate("x", stop=[""])
        with self.assertRaisesRegex(headlight.Error, "5000"):
            self.model.measure(token_ids=[[1, 5000]])
        closed = headlight.open(DEMO)
        closed.close()
        closed.close()
        with self.assertRaisesRegex(headlight.Error, "closed"):
            closed.tokenize("x") and closed.generate("x")

    def test_a_model_can_be_opened_without_heads(self):
        with headlight.open(DEMO, off="L1") as model:
            self.assertEqual(model.generate("Alice was", max_tokens=8).text,
                             self.model.generate("Alice was", max_tokens=8, off="L1").text)
        np.testing.assert_array_equal(self.model.gates("L1")[1], 0.0)
        self.assertEqual(self.model.gates(["L0H1", "L2H3"]).sum(), 62)


class Profiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.file = os.path.join(cls.folder.name, "demo.profile")
        with headlight.open(DEMO) as model:
            model.measure(alice(3000), context=256, nll=True).save(cls.file)
        cls.profile = headlight.Profile.load(cls.file)

    @classmethod
    def tearDownClass(cls):
        cls.profile.close()
        cls.folder.cleanup()

    def test_axes_have_names(self):
        p = self.profile
        for array, dims, shape in (
                (p.entropy, ("layer", "head"), (8, 8)),
                (p.histogram(), ("layer", "head", "bin"), (8, 8, 64)),
                (p.by_position(), ("layer", "head", "bucket"), None),
                (p.by_type("renyi2"), ("layer", "head", "type"), (8, 8, len(p.types))),
                (p.lookback, ("layer", "head", "from", "to"), None),
                (p.similarity, ("layer", "head", "other"), (8, 8, 8)),
                (p.block_influence, ("layer",), (8,)),
                (p.sequence_means(), ("sequence", "layer", "head"), None),
                (p.pattern("band"), ("layer", "head"), (8, 8)),
                (p.pattern("diagonal"), ("layer", "head"), (8, 8)),  # what `self` was called
                (p.moments("nosink"), ("layer", "head"), (8, 8)),
                (p.probe("induction"), ("layer", "head"), (8, 8)),
                (p.output_norm, ("layer", "head"), (8, 8))):
            self.assertEqual(array.dims, dims)
            self.assertEqual(array.shape, shape or array.shape)
            self.assertTrue(np.isfinite(np.asarray(array)).any(), array.name)
        self.assertEqual(p.broken.values.sum(), 0)
        self.assertEqual(p.histogram().values.sum(axis=2).min(), p.histogram().values.sum(axis=2).max())

    def test_the_numbers_are_the_commands(self):
        wanted = list(csv.DictReader(io.StringIO(program("show", self.file, "--table", "heads",
                                                         "--csv"))))
        columns = self.profile.columns()
        self.assertEqual(len(wanted), 64)
        for name in ("entropy", "normalized", "peak"):
            np.testing.assert_allclose(columns[name], [float(row[name]) for row in wanted],
                                       rtol=1e-9, err_msg=name)
        table = self.profile.analyze("heads")
        self.assertEqual(list(table.columns), list(wanted[0]))
        self.assertEqual(table["layer"].dtype, np.int64)
        self.assertEqual(len(table), 64)

    def test_moments(self):
        p = self.profile
        self.assertTrue((p.moments("entropy", "min").values <= p.entropy.values).all())
        self.assertTrue((p.moments("entropy", "max").values >= p.entropy.values).all())
        self.assertEqual(p.moments("entropy", "count")[0, 0], p.n_tokens)
        self.assertTrue(1 < p.nll < 8)
        with self.assertRaisesRegex(headlight.Error, "there is no quantity 'temperature'"):
            p.moments("temperature")

    def test_named_arrays(self):
        array = headlight.NamedArray([[1.0, math.nan], [3.0, 5.0]], ("layer", "head"), "x")
        np.testing.assert_array_equal(array.mean("head"), [1.0, 4.0])
        self.assertEqual(float(array.mean()), 3.0)
        self.assertEqual(array.sel(layer=1).dims, ("head",))
        self.assertEqual(float(array.sel(layer=1, head=0)), 3.0)
        with self.assertRaisesRegex(KeyError, "no axis 'token'; there are layer, head"):
            array.sel(token=1)
        with self.assertRaises(ValueError):
            headlight.NamedArray([1.0], ("a", "b"))

    def test_diagnoses(self):
        wanted = json.loads(program("diagnose", self.file, "--json"))
        found = self.profile.diagnose()
        for name in ("name", "verdict", "finding", "rule"):
            self.assertEqual([getattr(d, name) for d in found],
                             [d[name] for d in wanted["diagnoses"]])
        never = self.profile.diagnose(thresholds={"sink-mass": 1.0})
        self.assertEqual({d.name: d.verdict for d in never}["sink-heads"], "not found")
        with self.assertRaisesRegex(headlight.Error, "no-such"):
            self.profile.diagnose(thresholds={"no-such": 1.0})

    def test_figures(self):
        for figure, name in (("heatmap", "a.svg"), ("layers", "b.png"), ("histograms", "c.pdf")):
            path = os.path.join(self.folder.name, name)
            self.profile.plot(path, figure, theme="dark", title="from Python")
            with open(path, "rb") as file:
                head = file.read(200)
            self.assertTrue(any(sign in head for sign in (b"<svg", b"\x89PNG", b"%PDF")))
        self.assertIn("positions", headlight.figures())
        with self.assertRaisesRegex(headlight.Error, "there is no theme 'gray'"):
            self.profile.plot("x.svg", theme="gray")
        with self.assertRaisesRegex(headlight.Error, "portrait"):
            self.profile.plot("x.svg", "portrait")
        for by, words in (("output-norm", b"lowest output norm"), ("entropy", b"highest entropy")):
            self.profile.plot(path := os.path.join(self.folder.name, "d.svg"), n_candidates=4,
                              candidates_by=by)
            with open(path, "rb") as file:
                self.assertIn(words, file.read().replace(b"</text>", b" "))

    def test_other_libraries_are_asked_for_by_name(self):
        if any(name in sys.modules for name in ("pandas", "xarray")):
            self.skipTest("pandas or xarray is here")
        for module, call in (("pandas", self.profile.to_pandas), ("xarray", self.profile.to_xarray),
                             ("xarray", self.profile.entropy.to_xarray)):
            sys.modules[module] = None  # makes the module look as if it were not installed
            try:
                with self.assertRaisesRegex(ImportError, f"needs {module}, which is not installed"):
                    call()
            finally:
                del sys.modules[module]

    def test_what_pandas_and_xarray_would_get(self):
        stand_in = types.SimpleNamespace(DataFrame=dict, Dataset=dict)
        for module in ("pandas", "xarray"):
            sys.modules[module] = stand_in
        try:
            frame, data = self.profile.to_pandas(), self.profile.to_xarray()
        finally:
            for module in ("pandas", "xarray"):
                del sys.modules[module]
        self.assertEqual({len(column) for column in frame.values()}, {64})
        self.assertEqual(data["entropy"][0], ("layer", "head"))
        np.testing.assert_array_equal(data["entropy"][1], self.profile.entropy)

    def test_another_models_profile_does_not_merge(self):
        with headlight.open(SPARSE) as model:
            other = model.measure(alice(500), context=256, nll=True)
        before = self.profile.entropy.values
        with self.assertRaises(headlight.Error) as caught:
            self.profile.merge(other)
        self.assertEqual(caught.exception.status, "bad input")
        np.testing.assert_array_equal(self.profile.entropy, before)

    def test_stored_maps(self):
        with headlight.open(DEMO) as model:
            patterns = model.patterns(alice(200))
        path = os.path.join(self.folder.name, "maps.npy")
        np.save(path, patterns.values)
        profile = headlight.Profile.from_maps(path)
        by_matrix = headlight.compute_attention_entropy(patterns.values[:1].astype(np.float64))
        np.testing.assert_allclose(profile.entropy[0], by_matrix, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
