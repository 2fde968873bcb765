"""Models of transformers with headlight's attention: attach, torch.compile, checkpoints, caches, masks; and
headlight.measure, whose profiles are the program's.  Needs PyTorch and transformers."""
import os
import pickle
import shutil
import tempfile
import threading
import unittest
import warnings

import numpy as np

import headlight
from support import SHARED

MISSING = None
try:
    import torch
    import transformers
    import classes
    import headlight.transformers as plug
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
except (ImportError, RuntimeError) as error:
    MISSING = f"PyTorch and transformers are needed: {error}"

# Families that the program and the plug-in both run, with shapes of every kind among them.
FAMILIES = ("bert cohere2 gemma gemma2 gemma3 gpt2 gpt_bigcode gpt_neox gpt_oss granite llama mistral "
            "modernbert olmo2 opt phi phi3 qwen2 qwen3 qwen3_moe roberta smollm3 stablelm starcoder2 "
            "distilbert mixtral").split()


def tiny(name, **options):
    model_class = getattr(transformers, name)
    config = classes.small_config(model_class)
    for key, value in options.items():
        setattr(config, key, value)
    return classes.build(model_class, "eager", config)


@unittest.skipIf(MISSING is not None, MISSING)
class Models(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        self.ids = torch.randint(3, 90, (2, 17), generator=torch.Generator().manual_seed(1))

    def near(self, a, b, tolerance=1e-5):
        self.assertLess((a - b).abs().max().item(), tolerance)

    # --------------------------------------------------------------- attach

    def test_places(self):
        cases = {"LlamaForCausalLM": [0, 1], "BertForMaskedLM": [0, 1], "DistilBertForMaskedLM": [0, 1],
                 "ViTModel": [0, 1],
                 "T5ForConditionalGeneration": ["E0", "E1", "L0", "L1", "X0", "X1"],
                 "BartForConditionalGeneration": ["E0", "E1", "L0", "L1", "X0", "X1"],
                 "WhisperForConditionalGeneration": ["E0", "E1", "L0", "L1", "X0", "X1"],
                 "CLIPModel": ["L0", "L1", "V0", "V1"]}
        for name, layers in cases.items():
            with self.subTest(name):
                model = tiny(name)
                wanted = classes.outputs(model)
                with plug.attach(model, example=classes.batch(model)) as attached:
                    self.assertEqual(sorted(place.layer for place in attached.places.values()), layers)
                    with plug.Collector(model) as seen:
                        found = classes.outputs(model)
                    self.assertEqual(sorted(seen.layers), layers)
                self.assertLess(classes.difference(found, wanted), 1e-5)
                with plug.Collector() as seen:  # the model has its own attention again
                    classes.outputs(model)
                self.assertEqual(seen.layers, {})

    def test_an_input_is_made(self):
        for name in ("GPT2LMHeadModel", "T5ForConditionalGeneration", "ViTModel", "CLIPModel",
                     "WhisperForConditionalGeneration", "Wav2Vec2ForCTC"):
            with self.subTest(name), plug.attach(tiny(name)) as attached:
                self.assertEqual(attached.difference.not_run, [])
                self.assertLess(attached.difference.largest, 1e-4)

    def test_what_differs_is_named(self):
        model = tiny("GPT2LMHeadModel")
        forward = plug.attention_forward

        def wrong(module, query, *rest, **named):
            out, none = forward(module, query, *rest, **named)
            return (out * 1.1 if module.layer_idx == 1 else out), none

        transformers.AttentionInterface.register("headlight", wrong)
        try:
            with self.assertRaisesRegex(headlight.Error, r"transformer\.h\.1\.attn differs"):
                plug.attach(model)
        finally:
            transformers.AttentionInterface.register("headlight", forward)
        self.assertEqual(model.config._attn_implementation, "eager")
        with self.assertRaisesRegex(headlight.Error, "BloomForCausalLM does not run"):
            plug.attach(tiny("BloomForCausalLM"))

    def test_models_and_threads_are_apart(self):
        one, other = tiny("GPT2LMHeadModel"), tiny("LlamaForCausalLM")
        plug.attach(one)
        plug.attach(other)
        counts = {}

        def run(name, model):
            with plug.Collector() as seen:
                for _ in range(3):
                    model(input_ids=self.ids)
            counts[name] = {layer: len(parts) for layer, parts in seen.layers.items()}

        threads = [threading.Thread(target=run, args=item) for item in (("a", one), ("b", other), ("c", one))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(counts, dict.fromkeys("abc", {0: 3, 1: 3}))
        with plug.Collector(one) as seen:
            other(input_ids=self.ids)
        self.assertEqual(seen.layers, {})

    # ------------------------------------------------------- compile, checkpoint

    def test_compiled_without_a_break(self):
        mask = torch.ones_like(self.ids)
        mask[1, 12:] = 0
        for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "BertForMaskedLM"):
            with self.subTest(name):
                torch._dynamo.reset()
                model = tiny(name)
                plug.attach(model)
                compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
                for more in ({}, {"attention_mask": mask}):
                    model.zero_grad()
                    found = []
                    for run in (compiled, model):
                        with plug.Collector(model) as seen:
                            output = run(input_ids=self.ids, **more).logits
                        (output.sum() + plug.EntropyRegularizer(1.0, 10.0)(seen)).backward()
                        found.append((output, torch.stack(list(seen.means().values())),
                                      model.get_input_embeddings().weight.grad.clone()))
                        model.zero_grad()
                    for a, b in zip(*found):
                        self.near(a, b)

    @unittest.skipUnless(shutil.which("g++"), "Inductor needs a C++ compiler")
    def test_compiled_by_inductor(self):
        """torch.compile as users call it: the generated code checks the operators' layouts."""
        mask = torch.ones_like(self.ids)
        mask[1, 12:] = 0
        for name, more in (("GPT2LMHeadModel", {"attention_mask": mask}), ("LlamaForCausalLM", {}),
                           ("BertForMaskedLM", {})):
            with self.subTest(name):
                torch._dynamo.reset()
                model = tiny(name)
                plug.attach(model)
                found = []
                for run in (torch.compile(model, fullgraph=True), model):
                    with plug.Collector(model) as seen:
                        output = run(input_ids=self.ids, **more).logits
                    (output.sum() + plug.EntropyRegularizer(1.0, 10.0)(seen)).backward()
                    found.append((output, torch.stack(list(seen.means().values())),
                                  model.get_input_embeddings().weight.grad.clone()))
                    model.zero_grad()
                for a, b, tolerance in zip(*found, (1e-5, 1e-6, 1e-4)):
                    self.near(a, b, tolerance)

    def test_checkpoints_keep_the_penalty(self):
        def gradients(model, weight):
            model.zero_grad()
            with plug.Collector(model) as seen:
                loss = model(input_ids=self.ids, labels=self.ids, use_cache=False).loss
            (loss + plug.EntropyRegularizer(1.0, weight)(seen)).backward()
            return torch.cat([p.grad.flatten() for p in model.parameters()])

        model = tiny("GPT2LMHeadModel", resid_pdrop=0.0, embd_pdrop=0.0)
        with torch.no_grad():
            for block in model.transformer.h:
                block.attn.c_attn.weight *= 20.0  # entropies that depend on the weights
        plug.attach(model)
        model.train()
        wanted, without = gradients(model, 10.0), gradients(model, 0.0)
        self.assertGreater((wanted - without).abs().max().item(), 1e-2)
        for use_reentrant in (False, True):
            with self.subTest(use_reentrant=use_reentrant):
                model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
                with plug.AttentionMonitor(model) as monitor:
                    self.near(gradients(model, 10.0), wanted)
                    counts = [n.tolist() for _, n in monitor._sums.seen.values()]
                self.assertEqual(counts, [[34.0, 32.0]] * 2)  # each pass once
                model.gradient_checkpointing_disable()

    def test_dropout_trains(self):
        model = tiny("GPT2LMHeadModel", attn_pdrop=0.1)
        plug.attach(model)
        model.train()
        model(input_ids=self.ids, labels=self.ids).loss.backward()
        self.assertGreater(model.transformer.h[0].attn.c_attn.weight.grad.abs().max().item(), 0.0)

    # ------------------------------------------------------------ caches, masks

    def test_generate(self):
        mask = torch.ones_like(self.ids)
        mask[0, :5] = 0
        for name in ("LlamaForCausalLM", "Gemma2ForCausalLM"):
            for cache in (None, "static"):
                with self.subTest(name, cache=cache):
                    model, found = tiny(name), []
                    for attach in (False, True):
                        if attach:
                            plug.attach(model)
                        found.append(model.generate(self.ids, attention_mask=mask, max_new_tokens=8,
                                                    do_sample=False, cache_implementation=cache))
                    self.assertTrue(torch.equal(*found))

    def test_packed_and_given_masks(self):
        model = tiny("LlamaForCausalLM")
        position = torch.cat([torch.arange(9), torch.arange(8)])[None].expand(2, -1)
        pairs = torch.ones(2, 1, 17, 17, dtype=torch.bool).tril()
        pairs[:, :, 4:, 3] = False
        numbers = torch.where(pairs, 0.0, torch.finfo(torch.float32).min)
        inputs = ({"position_ids": position, "use_cache": False}, {"attention_mask": numbers})
        wanted = [model(input_ids=self.ids, **one).logits for one in inputs]
        plug.attach(model)
        for one, logits in zip(inputs, wanted):
            self.near(model(input_ids=self.ids, **one).logits, logits)
        self.near(model(input_ids=self.ids, attention_mask=pairs).logits, wanted[1])

    # ---------------------------------------------------------------- measuring

    def test_profiles_of_the_program(self):
        """Every number of both, for families that both run."""
        n = 0
        for name in FAMILIES:
            path = os.path.join(SHARED, "golden", "families", name)
            if not os.path.isdir(path):
                path = os.path.join(SHARED, "golden", "families2", name)
            if not os.path.isdir(path):
                continue
            with self.subTest(name):
                with headlight.open(path) as model:
                    length = min(model.info.n_ctx or 48, 48)
                    ids = [np.random.default_rng(i).integers(3, model.info.d_vocab - 1, length)
                           for i in range(2)]
                    wanted = model.measure(token_ids=ids, context=length, probe=False)
                    auto = (transformers.AutoModelForMaskedLM if model.info.is_encoder else
                            transformers.AutoModelForCausalLM)
                try:
                    theirs = auto.from_pretrained(path, dtype=torch.float32)
                except ValueError:
                    theirs = transformers.AutoModel.from_pretrained(path, dtype=torch.float32)
                found = headlight.measure(theirs, token_ids=ids, context=length)
                self.assertEqual(found.setting("attention"), "headlight")
                self.compare(found, wanted)
                n += 1
        if os.path.isdir(SHARED):
            self.assertGreaterEqual(n, 20)

    def compare(self, found, wanted):
        def same(name, a, b):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4, err_msg=name)

        self.assertEqual(found.heads.tolist(), wanted.heads.tolist())
        for quantity in ("entropy", "normalized", "renyi2", "varentropy", "peak", "self", "previous",
                         "first", "entropy_nosink"):
            same(quantity, found.moments(quantity).values, wanted.moments(quantity).values)
            self.assertTrue(np.array_equal(found.moments(quantity, "count").values,
                                           wanted.moments(quantity, "count").values), quantity)
        for metric in ("band", "content", "k90", "edges"):
            same(metric, found.pattern(metric).values, wanted.pattern(metric).values)
        same("similarity", found.similarity.values, wanted.similarity.values)

    def test_the_fallback(self):
        """BLOOM's own code: its matrices, and a warning that says what they cost."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            profile = headlight.measure(tiny("BloomForCausalLM"), token_ids=self.ids.numpy(), context=17)
        self.assertEqual(profile.setting("attention"), "output_attentions")
        self.assertRegex(str(warned[-1].message), "MiB of matrices per window, because BloomForCausalLM")
        model = tiny("GPT2LMHeadModel")  # and where both ways are possible, both are the same
        pair = [headlight.measure(model, token_ids=self.ids.numpy(), context=17, attention=way)
                for way in ("headlight", "output_attentions")]
        self.compare(*pair)

    def test_several_sets_of_heads(self):
        for name in ("BartForConditionalGeneration", "T5ForConditionalGeneration"):
            with self.subTest(name):
                profile = headlight.measure(tiny(name), token_ids=self.ids.numpy(), context=17)
                self.assertEqual(profile.layer_names, ["E0", "E1", "L0", "L1", "X0", "X1"])
                self.assertEqual(profile.head_name(4, 1), "X0H1")
                with tempfile.TemporaryDirectory() as folder:  # the program names them so
                    profile.save(folder + "/a.profile")
                    for arguments in (("show",), ("diagnose", "--verbose"), ("show", "--table", "heads")):
                        shown = headlight.run(arguments[0], folder + "/a.profile", *arguments[1:])
                        self.assertRegex(shown, "X1")
                        self.assertNotRegex(shown, r"L[2-5]H|layer [0-5]\b")
                    self.assertTrue(headlight.run("head", folder + "/a.profile", "X1H2").startswith("X1H2"))
                    names = headlight.rank(folder + "/a.profile", by="entropy")["name"]
                    self.assertEqual({name[:2] for name in names}, set(profile.layer_names))
                    for figure in ("heatmap", "layers"):
                        profile.plot(folder + "/a.svg", figure)
                        with open(folder + "/a.svg", encoding="utf-8") as file:
                            drawn = file.read()
                        for layer in profile.layer_names:
                            self.assertIn(f">{layer}<", drawn)
                self.assertTrue(np.isnan(profile.moments("self").values[4:]).all())  # no key is a row's own
                self.assertFalse(np.isnan(profile.entropy.values).any())
        profile = headlight.measure(tiny("ViTModel"), inputs={"pixel_values": torch.randn(3, 3, 32, 32)})
        self.assertEqual((profile.n_sequences, profile.n_tokens), (3, 51))

    def test_kept_and_merged(self):
        model = tiny("GPT2LMHeadModel")
        rows = np.random.default_rng(0).integers(3, 90, (4, 17))
        whole = headlight.measure(model, token_ids=rows, context=17)
        parts = [headlight.measure(model, token_ids=rows, context=17, part=part, n_parts=2)
                 for part in range(2)]
        merged = parts[0].merge(parts[1])
        self.assertEqual(merged.to_bytes(), whole.to_bytes())
        self.assertEqual(pickle.loads(pickle.dumps(whole)).to_bytes(), whole.to_bytes())
        with tempfile.TemporaryDirectory() as folder:
            whole.save(folder + "/a.profile")
            self.assertEqual(headlight.Profile.load(folder + "/a.profile").to_bytes(), whole.to_bytes())

    def test_what_is_given_is_checked(self):
        model = tiny("GPT2LMHeadModel")
        for expected, call in (("one of texts, files, token_ids, inputs is wanted, found none",
                                lambda: headlight.measure(model)),
                               ("a tokenizer is wanted", lambda: headlight.measure(model, texts=["a"])),
                               ("model is a dict", lambda: headlight.measure({}, token_ids=[1])),
                               ("attention is 'fast'", lambda: headlight.measure(
                                   model, token_ids=[1, 2], attention="fast"))):
            with self.subTest(expected), self.assertRaisesRegex(ValueError, expected):
                call()
        self.assertEqual(headlight.measure(model, {"input_ids": self.ids}).n_sequences, 2)


if __name__ == "__main__":
    unittest.main()
