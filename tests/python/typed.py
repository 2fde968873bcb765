"""What type checkers know of the package's results: mypy --strict and pyright find nothing here.

    mypy --strict tests/python/typed.py
    pyright tests/python/typed.py

It is not run.  Lines that must be errors have an "expect" comment, with the name of mypy's error.
"""
from typing import Any, List, Optional

import numpy as np
import torch
from typing_extensions import assert_type

import headlight
import headlight.torch
import headlight.transformers


def of_profiles(profile: headlight.Profile) -> None:
    assert_type(profile.entropy, headlight.NamedArray)
    assert_type(profile.entropy.sel(layer=3), headlight.NamedArray)
    assert_type(profile.moments("peak", "max"), headlight.NamedArray)
    assert_type(profile.n_layers, int)
    assert_type(profile.layer_names, List[str])
    assert_type(profile.nll, float)
    assert_type(profile.analyze("heads"), headlight.Table)
    assert_type(profile.diagnose(), List[headlight.Diagnosis])
    assert_type(headlight.rank(profile), headlight.Table)
    assert_type(headlight.compare(profile, profile), headlight.Tables)
    assert_type(headlight.show(profile), headlight.Page)
    assert_type(headlight.lens("model", "a prompt").entropy, headlight.NamedArray)
    profile.entropie  # expect attr-defined


def of_arrays(q: "np.ndarray[Any, Any]") -> None:
    assert_type(headlight.attention(q, q, q, causal=True, window_left=3), headlight.Attention)
    headlight.attention(q, q, q, casual=True)  # expect call-arg
    headlight.attention(q, q, q, window_left="3")  # expect arg-type


def of_tensors(q: torch.Tensor) -> None:
    rows = headlight.torch.attention(q, q, q, causal=True, want=("renyi2",))
    assert_type(rows, headlight.torch.AttentionRows)
    assert_type(rows.entropy, torch.Tensor)
    assert_type(rows.renyi2, Optional[torch.Tensor])
    headlight.torch.attention(q, q, q, casual=True)  # expect call-arg


def of_models(model: torch.nn.Module) -> None:
    with headlight.transformers.attach(model) as attached:
        assert_type(attached, headlight.transformers.Attached)
    assert_type(headlight.measure(model, token_ids=[1, 2, 3]), headlight.Profile)
