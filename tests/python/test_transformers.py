"""headlight as an attention implementation of transformers: a model gives its own logits, or an error.

Every causal, masked and sequence-to-sequence class that can be built from a small config runs with
eager attention and with headlight's.  Needs PyTorch and transformers; `make check-python` has both.
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
    from transformers.models.auto import modeling_auto
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

# Sizes of a small model, used as far as a config has the names.
SMALL = dict(
    dict.fromkeys("hidden_size d_model n_embd embedding_size".split(), 32),
    **dict.fromkeys("num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
                    "num_decoder_layers".split(), 2),
    **dict.fromkeys("num_attention_heads n_head n_heads num_heads encoder_attention_heads "
                    "decoder_attention_heads num_key_value_heads num_experts num_local_experts "
                    "n_routed_experts block_size".split(), 4),
    **dict.fromkeys("intermediate_size n_inner d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim "
                    "max_position_embeddings n_positions n_ctx max_seq_len".split(), 64),
    **dict.fromkeys("attention_dropout attn_pdrop attention_probs_dropout_prob".split(), 0.0),
    head_dim=8, d_kv=8, rotary_dim=8, moe_intermediate_size=16, num_experts_per_tok=2,
    num_random_blocks=1, vocab_size=99, pad_token_id=0, bos_token_id=1, eos_token_id=2)
MOST_WEIGHTS = 30e6
TOLERANCE = 1e-4


def small_config(model_class):
    known = model_class.config_class().to_dict()
    options = {name: value for name, value in SMALL.items() if name in known}
    if model_class.__name__.endswith("ForCausalLM") and "is_decoder" in known:
        options["is_decoder"] = True
    return model_class.config_class(**options)


def build(model_class, implementation, config=None):
    config = copy.deepcopy(config or small_config(model_class))
    config._attn_implementation = implementation
    torch.manual_seed(0)
    return model_class(config).eval()


def batch(model):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 90, (2, 17), generator=generator)
    named = dict(input_ids=ids)
    if model.config.is_encoder_decoder and "ForConditionalGeneration" in type(model).__name__:
        named["decoder_input_ids"] = ids.flip(0)
    return named


def logits(model):
    with torch.no_grad():
        return model(**batch(model)).logits


def reference(model_class):
    """The model with its own attention, and its logits; None if it cannot be built small."""
    try:
        config = small_config(model_class)
        with torch.device("meta"):
            bare = model_class(copy.deepcopy(config))
        if sum(one.numel() for one in bare.parameters()) > MOST_WEIGHTS:
            return None
        model = build(model_class, "eager", config)
        return model, logits(model)
    except Exception:  # any error: configs have their own rules
        return None


def language_models():
    found = {}
    for names in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
                  modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
                  modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES):
        for value in names.values():
            for name in (value,) if isinstance(value, str) else value:
                found[name] = getattr(transformers, name, None)
    return {name: one for name, one in sorted(found.items())
            if isinstance(one, type) and hasattr(one, "config_class")}


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


@unittest.skipIf(MISSING is not None, MISSING)
class Classes(unittest.TestCase):
    def test_right_or_refused(self):
        """No class silently computes other logits, and each class that transformers excludes is
        refused."""
        warnings.simplefilter("ignore")
        right = refused = 0
        for name, model_class in language_models().items():
            known = reference(model_class)
            if known is None:
                continue
            model, wanted = known
            with self.subTest(name):
                can_set = getattr(model_class, "_can_set_attn_implementation", lambda: True)()
                try:
                    other = build(model_class, "headlight", model.config)
                    other.load_state_dict(model.state_dict())
                    found = logits(other)
                except Error as error:
                    refused += 1
                    if not can_set:
                        self.assertIn(name, str(error))
                    continue
                self.assertTrue(can_set, "transformers denies it, and it was taken")
                self.assertLess((found - wanted).abs().max().item(), TOLERANCE)
                right += 1
        print(f"# {right} classes are right, {refused} are refused")
        self.assertGreater(right, 90)
        self.assertGreater(refused, 25)


if __name__ == "__main__":
    unittest.main()
