"""Families in other shapes: small random models, made by transformers and verified by headlight.

    python tests/python/other_shapes.py [--families DIR] [--headlight PROGRAM] [--keep DIR] [NAME...]

For each family of DIR (golden/families2), config.json is varied: other counts of heads, widths, layer patterns, routers and ranks.
transformers builds a model with random weights, computes in float32 with eager attention, and the result is stored beside the
checkpoint under the names that `headlight verify` reads.  Needs torch, transformers and safetensors.  Prints a line per variant and
exits with 1 if one does not agree."""
import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

transformers.logging.set_verbosity_error()

# Changes to a configuration, by the name of a family; None removes a key.
VARIANTS = {
    "deepseek_v2": [
        {"q_lora_rank": 20, "num_attention_heads": 3, "num_key_value_heads": 3, "qk_nope_head_dim": 10, "v_head_dim": 7,
         "kv_lora_rank": 18, "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy",
         "routed_scaling_factor": 1.5, "num_hidden_layers": 4},
        {"rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}, "first_k_dense_replace": 2, "n_shared_experts": 1},
    ],
    "deepseek_v3": [
        {"q_lora_rank": None, "num_attention_heads": 6, "num_key_value_heads": 6, "qk_nope_head_dim": 12, "v_head_dim": 20,
         "kv_lora_rank": 14, "qk_rope_head_dim": 6, "head_dim": 6, "n_group": 2, "topk_group": 1, "norm_topk_prob": False},
        {"rope_interleave": False, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "attention_bias": True,
         "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1},
    ],
    "glm4_moe_lite": [{"mlp_layer_types": ["dense", "dense", "sparse", "sparse"], "num_hidden_layers": 4, "q_lora_rank": 16,
                       "num_attention_heads": 5, "num_key_value_heads": 5, "v_head_dim": 9}],
    "mistral4": [{"n_group": 4, "topk_group": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "v_head_dim": 16,
                  "rope_parameters": {"rope_theta": 500.0, "rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                      "mscale": 1.0, "mscale_all_dim": 0.5, "original_max_position_embeddings": 8,
                                      "llama_4_scaling_beta": 0.3, "partial_rotary_factor": 0.3333333333333333}}],
    "deepseek_v32": [{"num_attention_heads": 2, "num_key_value_heads": 2, "index_topk": 64, "index_n_heads": 4, "index_head_dim": 16,
                      "v_head_dim": 16}],
    "deepseek_v32_sparse": [{"num_attention_heads": 2, "num_key_value_heads": 2, "index_topk": 9, "index_n_heads": 24,
                             "index_head_dim": 16, "v_head_dim": 16}],
    "gemma4": [
        {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16, "num_kv_shared_layers": 2, "use_double_wide_mlp": False,
         "layer_types": ["sliding_attention", "full_attention"] * 3, "hidden_size_per_layer_input": 8, "sliding_window": 7,
         "per_layer_config": {str(i): {"head_dim": 24} for i in (1, 3, 5)}},
    ],
    "gemma4_kv": [{"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8,
                   "per_layer_config": {"2": {"head_dim": 16, "num_key_value_heads": 2},
                                        "5": {"head_dim": 16, "num_key_value_heads": 2}}}],
    "gemma4_moe": [{"num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 20, "intermediate_size": 36}],
    "gemma3n": [{"altup_num_inputs": 3, "laurel_rank": 4, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16,
                 "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 3,
                 "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
                 "activation_sparsity_pattern": [0.95, 0.5, 0.0, 0.0, 0.3, 0.0]}],
    "llama4_text": [
        {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16, "attention_chunk_size": 5, "use_qk_norm": False,
         "num_experts_per_tok": 2, "moe_layers": [0, 1, 3], "floor_scale": 4, "no_rope_layers": [1, 1, 0, 1],
         "layer_types": ["chunked_attention", "chunked_attention", "full_attention", "chunked_attention"]},
        {"attn_temperature_tuning": False, "attention_chunk_size": 7},
    ],
    "phimoe": [{"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 48, "num_local_experts": 6,
                "router_jitter_noise": 0.2, "sliding_window": 9, "rope_parameters": {
                    "long_factor": [2.0, 2.5, 3.0, 3.5], "long_mscale": 1.4, "original_max_position_embeddings": 64,
                    "rope_theta": 10000.0, "rope_type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3], "short_mscale": 1.08}},
               {"attention_bias": False, "lm_head_bias": False}],
    "hunyuan_v1_moe": [{"num_experts": 6, "moe_topk": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16,
                        "attention_bias": True}],
    "bitnet": [{"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 48, "attention_bias": True}],
    "xglm": [{"d_model": 36, "attention_heads": 3, "scale_embedding": False, "num_layers": 2}],
    "granitemoe": [{"num_local_experts": 5, "num_experts_per_tok": 3, "num_attention_heads": 6, "num_key_value_heads": 3}],
}


def build(folder, changes, seed):
    with open(os.path.join(folder, "config.json")) as file:
        raw = json.load(file)
    raw.update(changes)
    raw = {key: value for key, value in raw.items() if key not in ("dtype", "torch_dtype", "transformers_version")}
    kind = raw.pop("model_type")
    architecture = raw.pop("architectures")[0]
    config = transformers.AutoConfig.for_model(kind, **copy.deepcopy(raw))
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = getattr(transformers, architecture)(config).float().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() == 1 and ("norm" in name or "scal" in name):
                value.uniform_(0.6, 1.4)
            elif value.dim() == 1:
                value.normal_(0, 0.3)
            else:
                value.normal_(0, (1.5 if "q_proj" in name or "k_proj" in name else 1.0) / value.shape[-1] ** 0.5)
        for name, value in model.named_buffers():
            if "correction" in name:
                value.normal_(0, 0.1)
    return model


def compute(model, tokens):
    attends = []

    def keep(_module, _inputs, output):
        if isinstance(output, tuple) and len(output) > 1 and output[1] is not None and output[1].dim() == 4:
            attends.append(output[1].detach())

    hooks = [m.register_forward_hook(keep) for n, m in model.named_modules()
             if n.endswith(("self_attn", ".attn", ".attention"))]
    with torch.no_grad():
        inner = model.base_model if model.base_model is not model else model.model
        got = {}
        hooks.append(inner.register_forward_hook(lambda m, i, o: got.__setitem__("hidden", o.last_hidden_state)))
        logits = model(tokens, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    p = torch.stack(attends).double()
    safe = torch.where(p > 0, p, 1.0)
    return {
        "tokens": tokens,
        "logits": logits.float().contiguous(),
        "hidden": got["hidden"].float().contiguous(),
        "entropy": (-(p * safe.log()).sum(-1)).contiguous(),
        "renyi2": (-(p * p).sum(-1).log()).contiguous(),
        "peak": p.max(-1).values.contiguous(),
        "diagonal": torch.diagonal(p, dim1=-2, dim2=-1).contiguous(),
        "first": p[..., 0].contiguous(),
        "pattern0": p[0, 0].float().contiguous(),
    }


def check(program, folder, ways=((), ("--chunk", "7"), ("--decode",))):
    worst = []
    for way in ways:
        done = subprocess.run([program, "verify", folder, "--json", *way], capture_output=True, text=True)
        if not done.stdout.strip():
            return ["refused: " + done.stderr.strip()[-200:]]
        for case in json.loads(done.stdout)["cases"]:
            if "outputs" not in case:
                worst.append(str(case)[:160])
                continue
            for output in case["outputs"]:
                bar = 3e-4 if output["relative"] else 2e-4
                if output["error"] is None or output["error"] > bar:
                    worst.append(f"{' '.join(way)} {output['backend']} {output['output']} {output['error']}")
    return worst


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    shared = os.environ.get("HEADLIGHT_SHARED", os.path.join(here, "../../../shared"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", default=os.path.join(shared, "golden/families2"))
    parser.add_argument("--headlight", default=os.path.join(here, "../../build/headlight"))
    parser.add_argument("--keep", help="folder for the checkpoints")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    n_failed = 0

    for name, variants in VARIANTS.items():
        if options.names and name not in options.names:
            continue
        for i, changes in enumerate(variants):
            with tempfile.TemporaryDirectory() as room:
                folder = os.path.join(options.keep or room, f"{name}_{i}")
                try:
                    model = build(os.path.join(options.families, name), changes, 7 * i + 3)
                    tokens = torch.randint(5, model.config.get_text_config().vocab_size, (2, 37),
                                           generator=torch.Generator().manual_seed(i))
                    expected = compute(model, tokens)
                except Exception as error:  # a configuration that this transformers does not build
                    print(f"{name}_{i:<3} not built: {type(error).__name__} {str(error)[:110]}", flush=True)
                    n_failed += 1
                    continue
                model.save_pretrained(folder)
                save_file(expected, os.path.join(folder, "expected.safetensors"))
                worst = check(options.headlight, folder)
            n_failed += bool(worst)
            print(f"{name}_{i:<3} {'agrees' if not worst else '; '.join(worst[:3])}", flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
