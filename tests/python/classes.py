"""classes.py - every class of transformers that can be built from a small config, with an input.

    python3 tests/python/classes.py [NAME ...]

prints for each class whether headlight's attention gives the outputs and the entropies of eager
attention ("right"), whether headlight.measure reads the matrices that it returns ("measured"), or which
Error refuses it ("refused").  Anything else is an error of headlight's.  `make check-python-classes`.
"""
import copy
import inspect
import os
import sys
import warnings

import torch
import transformers
from transformers.models.auto import modeling_auto

# Sizes of a small model, used as far as a config has the names.
SMALL = dict(
    dict.fromkeys("hidden_size d_model n_embd embedding_size embed_dim".split(), 32),
    **dict.fromkeys("num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
                    "num_decoder_layers num_encoder_layers".split(), 2),
    **dict.fromkeys("num_attention_heads n_head n_heads num_heads encoder_attention_heads "
                    "decoder_attention_heads num_key_value_heads num_experts num_local_experts "
                    "n_routed_experts block_size".split(), 4),
    **dict.fromkeys("intermediate_size n_inner d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim "
                    "max_position_embeddings n_positions n_ctx max_seq_len".split(), 64),
    **dict.fromkeys("attention_dropout attn_pdrop attention_probs_dropout_prob".split(), 0.0),
    head_dim=8, d_kv=8, rotary_dim=8, moe_intermediate_size=16, num_experts_per_tok=2,
    num_random_blocks=1, vocab_size=99, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    image_size=32, patch_size=8, max_source_positions=20, num_mel_bins=16, num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4, conv_dim=[32] * 7, decoder_start_token_id=1)
MOST_WEIGHTS = 30e6
TOLERANCE = 1e-4

TEXT = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES")
OTHER = ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
         "MODEL_FOR_CTC_MAPPING_NAMES", "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
         "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES", "MODEL_MAPPING_NAMES")


def classes(mappings=TEXT + OTHER):
    """{name: class}, in the order of their names."""
    found = {}
    for mapping in mappings:
        for value in getattr(modeling_auto, mapping, {}).values():
            for name in (value,) if isinstance(value, str) else value:
                try:
                    one = getattr(transformers, name, None)
                    if isinstance(one, type) and getattr(one, "config_class", None):
                        found[name] = one
                except ImportError:  # needs a package that is not installed
                    continue
    return dict(sorted(found.items()))


def _shrink(config, name):
    known = config.to_dict()
    options = {key: value for key, value in SMALL.items() if key in known}
    if name.endswith("ForCausalLM") and "is_decoder" in known:
        options["is_decoder"] = True
    return options


def small_config(model_class):
    config = model_class.config_class()
    options = _shrink(config, model_class.__name__)
    parts = getattr(config, "sub_configs", {}) or {}
    for key in parts:
        part = getattr(config, key, None)
        if part is not None and hasattr(part, "to_dict"):
            sub = _shrink(part, "")
            options[key] = {**{k: v for k, v in part.to_dict().items() if k == "model_type"}, **sub}
    return model_class.config_class(**options)


def build(model_class, implementation, config=None):
    config = copy.deepcopy(config or small_config(model_class))
    if implementation == "eager":
        for one in [config, *(getattr(config, key, None) for key in getattr(config, "sub_configs", {}))]:
            if one is not None:
                one._attn_implementation = "eager"
    else:
        config._attn_implementation = implementation
    torch.manual_seed(0)
    return model_class(config).eval()


def batch(model):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 90, (2, 17), generator=generator)
    config = model.config
    name = getattr(model, "main_input_name", "input_ids")
    takes = inspect.signature(model.forward).parameters
    named = {}
    if name == "input_ids":
        named["input_ids"] = ids
    vision = getattr(config, "vision_config", config)
    if name == "pixel_values" or (hasattr(config, "vision_config") and hasattr(config, "text_config")
                                  and "pixel_values" in takes and "image_grid_thw" not in takes
                                  and type(model).__name__ in ("CLIPModel", "SiglipModel")):
        size = getattr(vision, "image_size", 32)
        size = size if isinstance(size, int) else size[0]
        named["pixel_values"] = torch.randn(2, getattr(vision, "num_channels", 3), size, size,
                                            generator=generator)
        if hasattr(config, "text_config"):
            named["input_ids"] = ids
    if name == "input_features":
        named["input_features"] = torch.randn(2, getattr(config, "num_mel_bins", 80),
                                              2 * getattr(config, "max_source_positions", 50),
                                              generator=generator)
    if name == "input_values":
        named["input_values"] = torch.randn(2, 4000, generator=generator)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        named["decoder_input_ids"] = ids.flip(0)[:, :13]  # fewer than the encoder's
    return named


def outputs(model, **more):
    torch.manual_seed(2)  # ViTMAE draws what it hides
    with torch.no_grad():
        found = model(**batch(model), **more)
    return [x for x in found.values() if isinstance(x, torch.Tensor) and x.is_floating_point()]


def reference(model_class):
    """The model with eager attention, its outputs, and {module's name: (batch, heads, queries)} of the
    entropies of the probabilities that its modules return; None if it cannot be built small."""
    try:
        config = small_config(model_class)
        with torch.device("meta"):
            bare = model_class(copy.deepcopy(config))
        if sum(one.numel() for one in bare.parameters()) > MOST_WEIGHTS:
            return None
        model = build(model_class, "eager", config)
        entropies, hooks = {}, []

        def note(name, output):
            for x in output if isinstance(output, tuple) else ():
                if isinstance(x, torch.Tensor) and x.dim() == 4 and x.shape[2:] and \
                        (x.sum(-1) - 1).abs().max() < 1e-3 and x.min() >= 0:
                    entropies.setdefault(name, []).append(-(x * x.clamp(min=1e-30).log()).sum(-1))

        for name, module in model.named_modules():
            hooks.append(module.register_forward_hook(
                lambda _m, _i, output, name=name: note(name, output)))
        wanted = outputs(model)
        for hook in hooks:
            hook.remove()
        return (model, wanted, entropies) if wanted else None
    except Exception:  # any error: configs have their own rules
        return None


def difference(found, wanted):
    """The largest difference, relative to numbers above 1."""
    worst = 0.0
    for a, b in zip(found, wanted):
        if a.shape != b.shape:
            return float("inf")
        worst = max(worst, ((a - b).abs().nan_to_num(0.0).max() / max(1.0, b.abs().nan_to_num(0.0).max())).item()
                    if a.numel() else 0.0)
        if not torch.equal(a.isnan(), b.isnan()):
            return float("inf")
    return worst


def examine(model_class):
    """(verdict, detail): "right", "refused", "wrong", or None if it cannot be built."""
    import headlight.transformers as plug
    from headlight import Error
    known = reference(model_class)
    if known is None:
        return None, ""
    model, wanted, entropies = known
    try:
        attached = plug.attach(model, check=False)
    except Error as error:
        return "refused", str(error)
    ran = set()
    for name, module in model.named_modules():
        module.register_forward_hook(lambda _m, _i, _o, name=name: ran.add(name))
    with plug.Collector(model) as seen:
        found = outputs(model)
    off = difference(found, wanted)
    modules = dict(model.named_modules())
    silent = [name for name, place in attached.places.items()
              if place.layer not in seen.layers and name in ran]
    not_run = sum(name not in ran for name in attached.places)
    far = n_compared = 0
    for name, place in attached.places.items():
        theirs = entropies.get(name)
        if hasattr(modules[name], "sinks"):  # GraniteSWA's probabilities are without the sink
            continue
        if theirs and place.layer in seen.layers:
            ours = seen.layers[place.layer]
            n_compared += 1
            far = max(far, difference(ours[:1], theirs[:1]))
    attached.detach()
    if off > TOLERANCE or far > TOLERANCE:
        return "wrong", f"outputs differ by {off:.3g}, entropies by {far:.3g}"
    if silent:
        return "silent", f"{silent[0]} reports nothing ({len(silent)} of {len(attached.places)})"
    return "right", (f"{len(attached.places)} modules, {not_run} not run, entropies of {n_compared} "
                     f"compared, {off:.1g}, {far:.1g}")


def measured(model_class):
    """Whether headlight.measure measures a refused class by the matrices that it returns."""
    import headlight
    model = reference(model_class)[0]
    try:
        return headlight.measure(model, inputs=batch(model), attention="output_attentions").n_tokens > 0
    except Exception:  # the model returns none, or matrices of other shapes
        return False


def main(names):
    warnings.simplefilter("ignore")
    tap = "--tap" in names
    names = [name for name in names if name != "--tap"]
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    counts = {}
    for name, model_class in classes().items():
        if names and name not in names:
            continue
        try:
            verdict, detail = examine(model_class)
            if verdict == "refused" and measured(model_class):
                verdict = "measured"
        except Exception as error:  # an error that is not headlight's
            verdict, detail = "raw error", f"{type(error).__name__}: {str(error)[:150]}"
        counts[verdict] = counts.get(verdict, 0) + 1
        if verdict is not None:
            print(f"{'# ' if tap else ''}{verdict:10} {name}: {detail}", flush=True)
    print("#", counts)
    bad = sum(counts.get(verdict, 0) for verdict in ("wrong", "silent", "raw error"))
    if tap:
        enough = bool(names) or counts.get("right", 0) > 300
        print(f"{'ok' if bad == 0 and enough else 'not ok'} 1 - no class differs in silence\n1..1")
    return int(bad > 0)


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
    sys.exit(main(sys.argv[1:]))
