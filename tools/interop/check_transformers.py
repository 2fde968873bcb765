#!/usr/bin/env python3
"""check_transformers.py - checks that pruned models give headlight's logits in transformers.

    python3 tools/interop/check_transformers.py FOLDER...

Each FOLDER is a model with expected_tokens.json and expected_logits.npy beside it, or contains such
folders (tools/interop/make_exports.sh makes them).  Models are loaded in float32 by their Auto class,
with the code in their folder, and run on the tokens.  Prints one line per model:

    ok    llama_ragged       LlamaForCausalLM  largest difference 3.1e-06 of 6.83

Exit status: 0: all are equal within 1e-5 of the largest logit; 1: one is not; 2: nothing to check.
"""
import json
import os
import sys
import tempfile
import traceback

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_MODULES_CACHE", tempfile.mkdtemp(prefix="headlight-modules-"))

import numpy as np
import torch
import transformers

TOLERANCE = 1e-5  # share of the largest value


def find_models(paths):
    for path in paths:
        if os.path.exists(os.path.join(path, "expected_logits.npy")):
            yield path
            continue
        for name in sorted(os.listdir(path)):
            folder = os.path.join(path, name)
            if os.path.exists(os.path.join(folder, "expected_logits.npy")):
                yield folder


def load(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    architecture = config["architectures"][0]
    is_decoder = architecture.endswith(("ForCausalLM", "LMHeadModel"))
    auto = transformers.AutoModelForCausalLM if is_decoder else transformers.AutoModel
    # Falcon's eager attention adds ALiBi twice; its SDPA path adds it once, as the models were trained.
    is_alibi_falcon = config.get("model_type") == "falcon" and config.get("alibi", False)
    model, report = auto.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="sdpa" if is_alibi_falcon else "eager",
        trust_remote_code=True,
        output_loading_info=True,
    )
    missing = [key for key in report["missing_keys"] if "pooler" not in key]
    if missing or report.get("mismatched_keys"):
        raise ValueError(f"missing {missing}, mismatched {report.get('mismatched_keys')}")
    return model.eval(), is_decoder


def run(folder):
    """The largest difference, and the largest value."""
    model, is_decoder = load(folder)
    with open(os.path.join(folder, "expected_tokens.json"), encoding="utf-8") as file:
        tokens = torch.tensor([json.load(file)])
    with torch.no_grad():
        out = model(input_ids=tokens)
    seen = (out.logits if is_decoder else out.last_hidden_state)[0].double().numpy()
    wanted = np.load(os.path.join(folder, "expected_logits.npy")).astype(np.float64)
    if seen.shape != wanted.shape:
        raise ValueError(f"shape {seen.shape}, wanted {wanted.shape}")
    return type(model).__mro__, np.abs(seen - wanted).max(), np.abs(wanted).max()


def check(folder):
    name = os.path.basename(os.path.normpath(folder))
    try:
        classes, error, largest = run(folder)
    except Exception as problem:  # any error is reported as the model's result
        print(f"FAIL  {name:<24} {type(problem).__name__}: {str(problem).splitlines()[0][:200]}")
        if os.environ.get("TRACE"):
            traceback.print_exc()
        return False
    base = next(c for c in classes if c.__module__.startswith("transformers.models"))
    good = bool(error <= TOLERANCE * largest)
    print(f"{'ok' if good else 'FAIL':<5} {name:<24} {base.__name__:<24} "
          f"largest difference {error:.1e} of {largest:.3g}")
    return good


def main():
    folders = list(find_models(sys.argv[1:]))
    if not folders:
        print(__doc__, file=sys.stderr)
        return 2
    transformers.logging.set_verbosity_error()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    results = [check(folder) for folder in folders]
    print(f"{sum(results)} of {len(results)} give headlight's logits")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
