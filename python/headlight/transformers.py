"""headlight as an attention implementation of Hugging Face's transformers, 4.53 or later and 5.x.

    import headlight.transformers                      registers it
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="headlight")
    with headlight.transformers.Collector() as seen:
        model(**batch)
    seen.means()[3]                                    (heads) of layer 3, nats

The rest of the model is unchanged.  The mask is only that of padding, (batch, keys), on the left or
right; is_causal and sliding_window determine which keys each row sees.  These raise an Error: masks with
holes, packed sequences, chunks, static caches, dropout of attention probabilities, position biases.

Some model classes (BLOOM, CodeGen and others) compute attention in their own code, but ask the
registered implementation for their mask.  Such a model would get None as its causal mask and compute
other numbers.  `refuse_class` raises an Error that names the class, wherever "headlight" is requested:
in from_pretrained, from_config, a constructor or set_attn_implementation, or by changing the config of
an existing model.
"""
from __future__ import annotations

import functools
from typing import Any, Iterator, List, Optional, Tuple

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from ._library import Error
from .torch import AttentionMonitor, Collector, EntropyRegularizer, attention, report

__all__ = ["AttentionMonitor", "Collector", "EntropyRegularizer", "NAME", "attention_forward",
           "padding_mask", "refuse_class"]
NAME = "headlight"

# -------------------------------------------------------------------------- supported classes


def _takes_attention(model_class: type) -> bool:
    """Returns whether the class computes attention through the registered function.  transformers
    itself determines this from the class's source.  A class that declares neither SDPA nor other back
    ends may still need a complete mask, as BigBirdPegasus' decoder does: its modules have is_causal =
    False."""
    can_set = getattr(model_class, "_can_set_attn_implementation", None)  # since 4.54
    declared = bool(getattr(model_class, "_supports_attention_backend", False))
    if can_set is None:
        return declared
    return can_set() and (declared or bool(getattr(model_class, "_supports_sdpa", False)))


def refuse_class(model_class: type) -> None:
    """Raises an Error if models of this class cannot run headlight's attention."""
    if not _takes_attention(model_class):
        raise Error(f"{model_class.__name__} does not run the attention functions that are registered "
                    f'with transformers: with attn_implementation="{NAME}" it could lose its mask, and '
                    'nothing would be measured. Load it with attn_implementation="eager"',
                    "unsupported")


def _subclasses(base: type) -> Iterator[type]:
    for child in base.__subclasses__():
        yield child
        yield from _subclasses(child)


@functools.lru_cache(maxsize=None)
def _refused_by_config(config_class: type) -> Optional[type]:
    """A model class with such a config, if no such class can use this attention."""
    classes = [one for one in _subclasses(PreTrainedModel)
               if getattr(one, "config_class", None) is config_class]
    return classes[-1] if classes and not any(map(_takes_attention, classes)) else None


def _configs_asked(config: Any, wanted: Any) -> List[Any]:
    """The configs for which `wanted`, an implementation or a dict of them by sub-config, selects
    "headlight"."""
    own = wanted.get("") if isinstance(wanted, dict) else wanted
    found = [config] if own == NAME else []
    for key in getattr(config, "sub_configs", {}):
        below = wanted.get(key) if isinstance(wanted, dict) else wanted
        if getattr(config, key, None) is not None and below is not None:
            found += _configs_asked(getattr(config, key), below)
    return found


def _guard_models() -> None:
    """Makes sure that every model is checked when it is created or when its attention is changed."""
    make = PreTrainedModel.__init__
    change = getattr(PreTrainedModel, "set_attn_implementation", None)  # since 4.54
    if hasattr(make, "_headlight_guard"):  # replaced already by an earlier import
        return

    @functools.wraps(make)
    def checked_make(self: Any, config: Any, *rest: Any, **named: Any) -> None:
        if getattr(config, "_attn_implementation", None) == NAME:
            refuse_class(type(self))
        make(self, config, *rest, **named)

    @functools.wraps(change or make)
    def checked_change(self: Any, attn_implementation: Any, *rest: Any, **named: Any) -> Any:
        asked = _configs_asked(self.config, attn_implementation)
        for module in self.modules():
            if isinstance(module, PreTrainedModel) and \
                    (attn_implementation == NAME or any(module.config is one for one in asked)):
                refuse_class(type(module))
        return change(self, attn_implementation, *rest, **named)

    checked_make._headlight_guard = True  # type: ignore[attr-defined]
    PreTrainedModel.__init__ = checked_make
    if change is not None:
        PreTrainedModel.set_attn_implementation = checked_change


# ------------------------------------------------------------------ masks and attention


def _refuse_patterns(q_length: Any, n_seen: int, local_size: Optional[int], config: Any,
                     plain: bool) -> None:
    """plain: without padding, transformers would leave the mask out."""
    if not plain and q_length is not None and q_length > 1:
        raise Error("the mask is of more than padding (packed sequences, or a mask function of the "
                    "model's): headlight's attention takes padding alone", "unsupported")
    chunk = getattr(config, "attention_chunk_size", None)
    if chunk is not None and chunk == local_size and n_seen > chunk:
        raise Error(f"attention is in chunks of {chunk} and there are {n_seen} keys: headlight's has "
                    "no chunks", "unsupported")


def padding_mask(*_: Any, kv_length: int, kv_offset: Any = 0, attention_mask: Any = None,
                 cache_position: Any = None, q_length: Any = None, q_offset: Any = None,
                 local_size: Optional[int] = None, config: Any = None,
                 allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False,
                 **__: Any) -> Optional[torch.Tensor]:
    """The mask function for transformers: (batch, keys), False for padding; None if there is no
    padding."""
    refused = _refused_by_config(type(config))  # the config was changed after the model was made
    if refused is not None:
        refuse_class(refused)
    if cache_position is not None:  # up to 5.4: the positions of the queries
        q_length, q_offset = len(cache_position), int(cache_position[0])
    _refuse_patterns(q_length, kv_length + int(kv_offset), local_size, config,
                     allow_is_causal_skip or allow_is_bidirectional_skip)
    end = None if q_offset is None else int(q_offset) + int(q_length) - int(kv_offset)
    if end is not None and end != kv_length:
        raise Error(f"there are {kv_length} keys, and the last query stands at {end}: headlight's "
                    "attention needs a cache that grows, not a static one, and a text that looks at "
                    "itself", "unsupported")
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2:
        raise Error(f"attention_mask has {attention_mask.dim()} axes, wanted 2: (batch, keys)",
                    "unsupported")
    mask = attention_mask[:, -kv_length:].to(torch.bool)
    return None if bool(mask.all()) else mask


def _real_keys(mask: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """(batch) the first key that is not padding, and the one after the last such key."""
    n_real, n_keys = mask.sum(dim=1), mask.shape[1]
    first = mask.to(torch.int8).argmax(dim=1)
    places = torch.arange(n_keys, device=mask.device)
    run = (places >= first[:, None]) & (places < (first + n_real)[:, None])
    if not torch.equal(run, mask):
        raise Error("attention_mask has holes: headlight's attention takes padding on the left or "
                    "on the right", "unsupported")
    return first, first + n_real


def _refuse(module: torch.nn.Module, dropout: float, others: dict) -> None:
    if dropout and module.training:
        raise Error(f"attention_dropout is {dropout}: headlight's attention has none", "unsupported")
    for name in ("head_mask", "position_bias", "cu_seq_lens_q"):
        if others.get(name) is not None:
            raise Error(f"{name} is given: headlight's attention does not take it", "unsupported")


def attention_forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
                      value: torch.Tensor, attention_mask: Optional[torch.Tensor] = None,
                      scaling: Optional[float] = None, dropout: float = 0.0,
                      is_causal: Optional[bool] = None, sliding_window: Optional[int] = None,
                      softcap: Optional[float] = None, s_aux: Optional[torch.Tensor] = None,
                      **others: Any) -> Tuple[torch.Tensor, None]:
    """The attention function for transformers.  query: (batch, heads, queries, d_head); returns (batch,
    queries, heads, d_value).  Passes the entropy to collectors and monitors."""
    _refuse(module, dropout, others)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    options = dict(causal=bool(is_causal), scale=scaling, softcap=softcap or 0.0, sinks=s_aux,
                   window_left=None if sliding_window is None else sliding_window - 1)
    if sliding_window is not None and not is_causal:
        options["window_right"] = sliding_window - 1
    who = dict(layer=getattr(module, "layer_idx", None), module=module)
    if attention_mask is None:
        out = attention(query, key, value, **options, **who).out
    else:
        out = _attend_padded(query, key, value, attention_mask, options, who)
    return out.transpose(1, 2).contiguous(), None


def _attend_padded(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   mask: torch.Tensor, options: dict, who: dict) -> torch.Tensor:
    if mask.dim() != 2:
        raise Error(f"the mask has {mask.dim()} axes, wanted 2: (batch, keys)", "unsupported")
    first, end = _real_keys(mask)
    n_before = key.shape[2] - query.shape[2]
    if not bool(first.any()):  # padding on the right: positions of rows do not change
        rows = attention(query, key, value, key_length=end,
                         query_start=torch.full_like(end, n_before), **options)
        out, entropies = rows.out, list(rows.entropy.unsqueeze(1))
    else:  # padding on the left, one sequence at a time: rows of padding see no key
        found = []
        for b, (begin, stop) in enumerate(zip(first.tolist(), end.tolist())):
            start = torch.tensor([n_before - begin], device=query.device)
            found.append(attention(query[b:b + 1], key[b:b + 1, :, begin:stop],
                                   value[b:b + 1, :, begin:stop], query_start=start, **options))
        out, entropies = torch.cat([rows.out for rows in found]), [rows.entropy for rows in found]
    for entropy, begin, stop in zip(entropies, first.tolist(), end.tolist()):
        real = entropy[:, :, max(0, begin - n_before):stop - n_before]  # rows that are not padding
        if who["layer"] is not None and real.shape[2] > 0:
            report(who["layer"], real, n_keys=stop - begin, causal=options["causal"],
                   window=options["window_left"], module=who["module"])
    return out


_guard_models()
AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, padding_mask)
