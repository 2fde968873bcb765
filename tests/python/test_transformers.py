"""headlight as an attention implementation of transformers: what is refused.  classes.py goes through
every class.  Needs PyTorch and transformers; `make check-python` has both.
"""
import copy
import tempfile
import unittest
import warnings

MISSING = None
try:
    import torch
    import transformers
    from transformers import PreTrainedModel
    import classes
    from classes import build, small_config
    import headlight.transformers as plug
    from headlight import Error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the models are small
except (ImportError, RuntimeError) as error:
    MISSING = f"PyTorch and transformers are needed: {error}"

NEWER = "transformers 4.54 or later"

# Classes that accepted "headlight" and computed without a causal mask before they were refused.
LOST_THEIR_MASK = ["BigBirdForCausalLM", "BigBirdPegasusForCausalLM", "BloomForCausalLM",
                   "CodeGenForCausalLM", "GPTNeoXJapaneseForCausalLM", "MegatronBertForCausalLM",
                   "MvpForCausalLM", "RemBertForCausalLM", "RoFormerForCausalLM",
                   "TrOCRForCausalLM", "XGLMForCausalLM", "BigBirdPegasusForConditionalGeneration"]

TOLERANCE = 1e-4


def logits(model):
    with torch.no_grad():
        return model(**classes.batch(model)).logits


@unittest.skipIf(MISSING is not None, MISSING)
class Refusals(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def assert_refused(self, name, function, *arguments, **options):
        with self.assertRaisesRegex(Error, name) as caught:
            function(*arguments, **options)
        self.assertEqual(caught.exception.status, "unsupported")

    def test_classes_that_lost_their_mask(self):
        for name in LOST_THEIR_MASK:
            with self.subTest(name):
                self.assert_refused(name, build, getattr(transformers, name), "headlight")

    def test_from_config_and_from_pretrained(self):
        config = small_config(transformers.BloomForCausalLM)
        self.assert_refused("BloomForCausalLM", transformers.AutoModelForCausalLM.from_config,
                            copy.deepcopy(config), attn_implementation="headlight")
        self.assert_refused("BloomModel", transformers.AutoModel.from_config,
                            copy.deepcopy(config), attn_implementation="headlight")
        with tempfile.TemporaryDirectory() as folder:
            build(transformers.BloomForCausalLM, "eager", config).save_pretrained(folder)
            self.assert_refused("BloomForCausalLM",
                                transformers.AutoModelForCausalLM.from_pretrained, folder,
                                attn_implementation="headlight")

    @unittest.skipUnless(MISSING or hasattr(PreTrainedModel, "set_attn_implementation"), NEWER)
    def test_a_model_that_is_told_to_change(self):
        model = build(transformers.BloomForCausalLM, "eager")
        before = logits(model)
        for wanted in ("headlight", {"": "headlight"}):
            self.assert_refused("BloomForCausalLM", model.set_attn_implementation, wanted)
        self.assertEqual(model.config._attn_implementation, "eager")
        self.assertTrue(torch.equal(logits(model), before))

    def test_a_config_that_is_changed_behind_it(self):
        model = build(transformers.BloomForCausalLM, "eager")
        model.config._attn_implementation = "headlight"
        self.assert_refused("Bloom", logits, model)

    @unittest.skipUnless(MISSING or hasattr(PreTrainedModel, "set_attn_implementation"), NEWER)
    def test_part_of_a_model(self):
        config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
            transformers.ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                   intermediate_size=64, image_size=32),
            small_config(transformers.TrOCRForCausalLM))
        model = transformers.VisionEncoderDecoderModel(config)
        self.assert_refused("TrOCR", model.set_attn_implementation, "headlight")
        self.assert_refused("TrOCR", model.set_attn_implementation, {"decoder": "headlight"})
        model.set_attn_implementation({"encoder": "headlight"})
        self.assertEqual(model.encoder.config._attn_implementation, "headlight")

    def test_a_model_that_can(self):
        before = logits(build(transformers.LlamaForCausalLM, "eager"))
        model = build(transformers.LlamaForCausalLM, "headlight")
        with plug.Collector() as seen:
            self.assertLess((logits(model) - before).abs().max().item(), TOLERANCE)
        self.assertEqual(sorted(seen.means()), [0, 1])


if __name__ == "__main__":
    unittest.main()
