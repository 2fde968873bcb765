"""headlight as an attention implementation of Hugging Face's transformers, 4.53 or later and 5.x.

    import headlight.transformers

    with headlight.transformers.attach(model) as attached:     any model that is already there
        with headlight.transformers.Collector(model) as seen:
            model(**batch)
    seen.means()[3]                                            (heads) of layer 3, nats

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="headlight")

`attach` gives every attention module a name and a number by its place in the model, compares the
model's outputs with those of its own attention on a small input, and raises an Error that names the
module where they differ or a module stays silent.

The rest of the model is unchanged.  Masks that follow from lengths and windows cost no memory: padding
on the left or right, is_causal, sliding_window.  All others (packed sequences, chunks, static caches,
4-dimensional masks, position biases) and dropout go through blocks of queries (headlight.torch).

Some model classes (BLOOM, CodeGen and others) compute attention in their own code, but ask the
registered implementation for their mask.  Such a model would get None as its causal mask and compute
other numbers.  `refuse_class` raises an Error that names the class, wherever "headlight" is requested:
in from_pretrained, from_config, a constructor or set_attn_implementation, or by changing the config of
an existing model.  `headlight.measure` measures these models by their output_attentions.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import re
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, TypeVar

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from ._collect import Layer, Place, compiling, unwrapped
from ._library import Error
from .torch import AttentionMonitor, Collector, EntropyRegularizer, attention

__all__ = ["Attached", "AttentionMonitor", "Collector", "EntropyRegularizer", "NAME", "Place", "attach",
           "attention_forward", "mask_for", "places", "refuse_class"]
NAME = "headlight"

# -------------------------------------------------------------------------- supported classes


_F = TypeVar("_F", bound=Callable[..., Any])


def _remembered(function: _F) -> _F:
    """functools.lru_cache, without its loss of the function's type."""
    return functools.lru_cache(maxsize=None)(function)  # type: ignore[return-value]


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


def _subclasses(base: Any) -> Iterator[Any]:
    for child in base.__subclasses__():
        yield child
        yield from _subclasses(child)


@_remembered
def _refused_by_config(config_class: Any) -> Optional[type]:
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
    base: Any = PreTrainedModel
    make: Any = base.__init__
    change: Any = getattr(PreTrainedModel, "set_attn_implementation", None)  # since 4.54
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

    finish: Any = getattr(PreTrainedModel, "post_init", None)

    @functools.wraps(finish or make)
    def numbered_finish(self: Any, *rest: Any, **named: Any) -> None:
        finish(self, *rest, **named)
        number(self)  # the last call is that of the whole model

    checked_make._headlight_guard = True  # type: ignore[attr-defined]
    base.__init__ = checked_make
    if finish is not None:
        base.post_init = numbered_finish
    if change is not None:
        base.set_attn_implementation = checked_change


# ------------------------------------------------------------------- places in a model

_CROSS = re.compile(r"cross_?att|encoder_attn|encdecattention|encoder_decoder_attention|crossattention")
_PARTS = (("vision", re.compile(r"vision|visual|image|(^|_)vit($|_)|pixel|\bvpm\b")),
          ("audio", re.compile(r"audio|speech|wav2vec|whisper_encoder|acoustic")),
          ("decoder", re.compile(r"decoder")), ("encoder", re.compile(r"encoder")))
_POOLING = re.compile(r"(^|\.)head(\.|$)|pool")  # attention that sums up a tower, after its layers
_LETTERS = {"encoder": "E", "decoder": "L", "text": "L", "vision": "V", "audio": "A"}


@_remembered
def _asks_for_attention(module_class: Any) -> bool:
    """Whether a module of this class calls the registered attention function."""
    for base in module_class.__mro__:
        if base.__module__ in ("transformers.modeling_utils", "torch.nn.modules.module"):
            continue
        for function in vars(base).values():
            code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
            if code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names:
                return True
    return False


def _part_of(name: str) -> str:
    """The part of a model that a module belongs to, by the parts of its name, the first one first."""
    for step in name.lower().split("."):
        for part, pattern in _PARTS:
            if pattern.search(step) and not _CROSS.search(step):
                return part
    return "text"


def _is_cross(name: str, module: torch.nn.Module) -> bool:
    return bool(getattr(module, "is_cross_attention", False) or _CROSS.search(name.lower()) or
                "CrossAttention" in type(module).__name__)


def places(model: torch.nn.Module) -> Dict[str, Place]:
    """{name: Place} of a model's attention modules, in the order of its tree.  A model with one set of
    heads has layers 0, 1, ...; one with several has "E0" (encoder), "L0" (decoder, text), "X0"
    (cross-attention), "V0" and "A0" (towers for images and sound), each numbered by itself."""
    found: List[Tuple[str, str, str]] = []
    for name, module in model.named_modules():
        if _asks_for_attention(type(module)) and not any(
                _asks_for_attention(type(child)) for child in list(module.modules())[1:]):
            found.append((name, "cross" if _is_cross(name, module) else "self", _part_of(name)))
    if not any(part == "decoder" for _, _, part in found):  # BERT's "encoder" is all it has
        found = [(name, kind, "text" if part == "encoder" else part) for name, kind, part in found]
    sets = ["X" if kind == "cross" else _LETTERS[part] for _, kind, part in found]
    out: Dict[str, Place] = {}
    counts: Dict[str, int] = {}
    for (name, kind, part), letter in zip(found, sets):
        index = counts.setdefault(letter, 0)
        counts[letter] += 1
        layer: Layer = index if len(set(sets)) == 1 else f"{letter}{index}"
        out[name] = Place(layer, name, kind, part)
    return out


def number(model: torch.nn.Module) -> Dict[str, Place]:
    """Writes each attention module's place into it, where attention_forward finds it."""
    modules = dict(model.named_modules())
    found = places(model)
    for name, place in found.items():
        modules[name].headlight_layer = place.layer  # type: ignore[assignment]
        modules[name].headlight_is_cross = place.kind == "cross"  # type: ignore[assignment]
    return found


# ------------------------------------------------------------------ masks and attention


def _is_plain(q_length: Any, kv_length: Any, q_offset: Any, kv_offset: Any, local_size: Optional[int],
              config: Any, causal: bool) -> bool:
    """Whether attention_forward can tell what each row sees from is_causal, sliding_window and padding.
    A static cache has keys after the last query; its offset may be a tensor."""
    if isinstance(q_offset, torch.Tensor) or isinstance(kv_offset, torch.Tensor):
        return False
    if causal and q_offset is not None and q_offset + q_length - kv_offset != kv_length:
        return False
    if causal and getattr(config, "use_bidirectional_attention", False):
        return False  # PaliGemma asks for a causal mask, and its modules say that they are not causal
    chunk = getattr(config, "attention_chunk_size", None)
    return not (chunk is not None and chunk == local_size and kv_length + kv_offset > chunk)


def mask_for(*_: Any, kv_length: Any, q_length: Any = None, q_offset: Any = 0, kv_offset: Any = 0,
             attention_mask: Optional[torch.Tensor] = None, cache_position: Any = None,
             local_size: Optional[int] = None, config: Any = None, allow_is_causal_skip: bool = True,
             allow_is_bidirectional_skip: bool = False, **others: Any) -> Optional[torch.Tensor]:
    """The mask function for transformers.  Returns None where is_causal and sliding_window say all,
    (batch, keys) for padding on top of them, and (batch, 1, queries, keys) for everything else."""
    refused = _refused_by_config(type(config))  # the config was changed after the model was made
    if refused is not None:
        refuse_class(refused)
    if cache_position is not None:  # up to 5.4: the positions of the queries
        q_length, q_offset = len(cache_position), int(cache_position[0])
    skips = allow_is_causal_skip or allow_is_bidirectional_skip or (
        isinstance(q_length, int) and q_length == 1 and not others.get("use_vmap", False) and
        isinstance(q_offset, int) and q_offset + 1 - kv_offset == kv_length and local_size is None)
    if not skips or not _is_plain(q_length, kv_length, q_offset, kv_offset, local_size, config,
                                  not allow_is_bidirectional_skip):
        from transformers.masking_utils import sdpa_mask
        if cache_position is not None:
            others["cache_position"] = cache_position
        else:
            others.update(q_length=q_length, q_offset=q_offset)
        return sdpa_mask(kv_length=kv_length, kv_offset=kv_offset, attention_mask=attention_mask,
                         local_size=local_size, allow_is_causal_skip=False,
                         allow_is_bidirectional_skip=False, **others)
    if attention_mask is None:
        return None
    mask = attention_mask[:, -kv_length:].to(torch.bool)
    if not compiling() and bool(mask.all()):
        return None
    return mask


padding_mask = mask_for  # the name in earlier versions


def attention_forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
                      value: torch.Tensor, attention_mask: Optional[torch.Tensor] = None,
                      scaling: Optional[float] = None, dropout: float = 0.0,
                      is_causal: Optional[bool] = None, sliding_window: Optional[int] = None,
                      softcap: Optional[float] = None, s_aux: Optional[torch.Tensor] = None,
                      position_bias: Optional[torch.Tensor] = None,
                      **others: Any) -> Tuple[torch.Tensor, None]:
    """The attention function for transformers.  query: (batch, heads, queries, d_head); returns (batch,
    queries, heads, d_value).  Passes the entropy to collectors and monitors."""
    for name in ("head_mask", "cu_seq_lens_q", "cache"):
        if others.get(name) is not None:
            raise Error(f"{name} is given: headlight's attention does not take it", "unsupported")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal, mask, bias = bool(is_causal), attention_mask, position_bias
    if mask is not None and mask.dim() == 4:  # the mask says all; numbers in one are added to the scores
        causal, sliding_window = False, None
        mask = mask[..., :key.shape[2]]
        if mask.dtype != torch.bool:
            bias, mask = (mask if bias is None else bias + mask), None
    elif mask is not None and mask.dim() != 2:
        raise Error(f"the mask has {mask.dim()} axes, wanted 2, (batch, keys), or 4", "unsupported")
    elif mask is not None and mask.shape[0] != query.shape[0]:
        mask = mask.expand(query.shape[0], -1)
    if bias is not None:
        bias = bias[..., :key.shape[2]]
        if bias.dim() == 3:
            bias = bias[None]
    options: Dict[str, Any] = dict(causal=causal, scale=scaling, softcap=softcap or 0.0, sinks=s_aux,
                   window_left=None if sliding_window is None else sliding_window - 1,
                   window_right=None if sliding_window is None or causal else sliding_window - 1,
                   mask=mask, bias=bias, gates=getattr(module, "headlight_gates", None))
    if _taps.tap is not None:
        return _taps.tap.take(module, query, key, value, options).transpose(1, 2).contiguous(), None
    rows = attention(
        query, key, value, **options, dropout=float(dropout) if module.training else 0.0,
        layer=getattr(module, "headlight_layer", getattr(module, "layer_idx", None)), module=module)
    return rows.out.transpose(1, 2).contiguous(), None


class _Taps(threading.local):
    tap: Any = None


_taps = _Taps()


@contextlib.contextmanager
def tapped(tap: Any) -> Iterator[None]:
    """A context in which tap.take computes the attention of this thread's models."""
    before, _taps.tap = _taps.tap, tap
    try:
        yield
    finally:
        _taps.tap = before


# -------------------------------------------------------------------------- attaching


class Difference(NamedTuple):
    """What attach() found on its small input."""
    largest: float  # difference between the two models' outputs
    scale: float  # largest output
    not_run: List[str]  # modules that the input does not reach: a tower for images, cross-attention


class Attached:
    """A model whose attention is headlight's until detach(), or the end of a `with` block.

    places: {name: Place} of every attention module.  difference: from the model's own attention, on the
    input that was tried.
    """

    def __init__(self, model: Any, before: Dict[int, Any], found: Dict[str, Place],
                 difference: Difference):
        self._model = weakref.ref(model)
        self._before = before
        self.places, self.difference = found, difference

    def detach(self) -> None:
        """Gives the model its own attention back."""
        model = self._model()
        if model is not None:
            _restore(model, self._before)
            self._before = {}

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()

    def __repr__(self) -> str:
        missing = self.difference.not_run
        return (f"Attached: {len(self.places)} attention modules, outputs differ by "
                f"{self.difference.largest:.2g} of {self.difference.scale:.2g}" +
                (f"; not tried: {len(missing)}, {missing[0]} ..." if missing else ""))


def _configs(model: torch.nn.Module) -> List[Any]:
    """The configs that the model's modules read their attention from, each once."""
    found: Dict[int, Any] = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            found[id(config)] = config
    return list(found.values())


def _restore(model: torch.nn.Module, before: Dict[int, Any]) -> None:
    for config in _configs(model):
        if id(config) in before:
            config._attn_implementation_internal = before[id(config)]


def _select(model: torch.nn.Module, name: str) -> Dict[int, Any]:
    """Selects an implementation in all configs; returns what they had."""
    before = {id(config): config._attn_implementation for config in _configs(model)}
    for config in _configs(model):
        config._attn_implementation_internal = name
    return before


def _size(config: Any, *names: str, default: int) -> int:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)):
            value = value[0]
        if isinstance(value, int):
            return value
    return default


def _text_config(config: Any) -> Any:
    get = getattr(config, "get_text_config", None)
    try:
        return config if get is None else get()
    except Exception:  # some composite configs have several
        return getattr(config, "text_config", config)


def example_for(model: Any) -> Dict[str, torch.Tensor]:
    """A small input for a model, by the name of its main input and its config.  Raises an Error that
    asks for `example` where that does not say enough."""
    config, generator = model.config, torch.Generator().manual_seed(0)
    text = _text_config(config)
    first = next(model.parameters())
    name = getattr(model, "main_input_name", "input_ids")
    parameters = inspect.signature(model.forward).parameters
    takes = set(parameters)
    n_vocab = _size(text, "vocab_size", default=0)

    def ids(n: int) -> torch.Tensor:
        low = min(10, n_vocab // 2)
        return torch.randint(low, max(low + 1, min(n_vocab, 1000)), (1, n), generator=generator)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(first.dtype)

    n = min(17, _size(text, "max_position_embeddings", "n_positions", default=64) - 2)
    made: Dict[str, torch.Tensor] = {}
    if name == "input_ids" and n_vocab:
        made["input_ids"] = ids(n)
    if name == "pixel_values" or type(model).__name__ in ("CLIPModel", "SiglipModel"):
        vision = getattr(config, "vision_config", config)
        size = _size(vision, "image_size", default=224)
        made["pixel_values"] = noise(1, _size(vision, "num_channels", default=3), size, size)
        if "input_ids" in takes and n_vocab:
            made["input_ids"] = ids(n)
    if name == "input_features":
        made["input_features"] = noise(1, _size(config, "num_mel_bins", default=80),
                                       2 * _size(config, "max_source_positions", default=1500))
    if name == "input_values":
        made["input_values"] = noise(1, 4000)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        made["decoder_input_ids"] = ids(max(1, n - 4))
    if not made:
        raise Error(f"attach: no small input is known for {type(model).__name__}, whose main input is "
                    f"{name!r}: pass one as example={{...}}", "unsupported")
    return {key: value.to(first.device) for key, value in made.items()}


def _outputs(model: Any, example: Dict[str, Any]) -> List[torch.Tensor]:
    """The floating-point tensors of the model's output that are not caches."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = model(**example)
    finally:
        model.train(was_training)
    values = found.values() if hasattr(found, "values") else found
    return [x.detach() for x in values if isinstance(x, torch.Tensor) and x.is_floating_point()]


class _Watch:
    """Records the output of every attention module, in the order in which they ran."""

    def __init__(self, model: torch.nn.Module, found: Dict[str, Place]):
        self.outputs: Dict[str, torch.Tensor] = {}
        modules = dict(model.named_modules())
        self._hooks = [modules[name].register_forward_hook(functools.partial(self._note, name))
                       for name in found]

    def _note(self, name: str, _module: Any, _inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, (tuple, list)) else output
        if isinstance(first, torch.Tensor):
            self.outputs.setdefault(name, first.detach())

    def __enter__(self) -> "_Watch":
        return self

    def __exit__(self, *_: Any) -> None:
        for hook in self._hooks:
            hook.remove()


_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 8e-2}


def _compare(model: Any, example: Dict[str, Any], found: Dict[str, Place], own: str) -> Difference:
    """Runs the model with both kinds of attention.  Raises an Error with the first module that differs
    or that reported nothing."""
    before = _select(model, own)
    try:
        with _Watch(model, found) as theirs:
            wanted = _outputs(model, example)
    finally:
        _restore(model, before)
    with _Watch(model, found) as ours, Collector(model) as seen:
        outputs = _outputs(model, example)
    tolerance = _TOLERANCES.get(next(model.parameters()).dtype, 1e-4)
    silent = [name for name, place in found.items() if place.layer not in seen.layers]
    for name in silent:
        if name in ours.outputs:
            raise Error(f"{type(model).__name__}: {name} reported nothing: it computed attention in its "
                        "own code", "unsupported")
    for name, output in ours.outputs.items():
        other = theirs.outputs.get(name)
        if other is not None and other.shape == output.shape and _is_off(output, other, tolerance):
            raise Error(f"{type(model).__name__}: {name} differs from its own attention by "
                        f"{(output - other).abs().max().item():.3g}: nothing was attached",
                        "unsupported")
    largest = max([(a - b).abs().max().item() for a, b in zip(outputs, wanted)], default=0.0)
    scale = max([b.abs().max().item() for b in wanted], default=0.0)
    if any(_is_off(a, b, tolerance) for a, b in zip(outputs, wanted)):
        raise Error(f"{type(model).__name__}: its outputs differ from its own by {largest:.3g}: nothing "
                    "was attached", "unsupported")
    return Difference(largest, scale, silent)


def _is_off(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    return bool(((a - b).abs() > tolerance * max(1.0, b.abs().max().item())).any())


def _own_attention(module: torch.nn.Module) -> bool:
    """Whether a module computes softmax attention without asking for a registered function."""
    name = type(module).__name__
    if "Attention" not in name or re.search("Linear|Lightning|Delta|Mamba|Pool|Output$", name):
        return False
    inside = list(module.modules())
    return not any(_asks_for_attention(type(one)) for one in inside) and \
        not any("Attention" in type(one).__name__ for one in inside[1:])


def attach(model: Any, *, example: Optional[Dict[str, Any]] = None, check: bool = True) -> Attached:
    """Gives a model headlight's attention.

        attached = headlight.transformers.attach(model)
        attached.places["model.layers.3.self_attn"].layer        3
        ...
        attached.detach()

    example: the arguments of a call that runs every part of the model, such as one with an image; None:
    a small one is made.  Modules that it does not reach are in attached.difference.not_run.  check: run it with the model's own attention and with headlight's.  Raises an
    Error that names the class or the module if the two differ, or if a module's attention is not
    measured; the model then has its own attention.
    """
    model = unwrapped(model)
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            refuse_class(next(one for one in type(module).__mro__ if not one.__name__.startswith("FSDP")))
    found = places(model)
    for name, module in model.named_modules():
        if _own_attention(module) and not _POOLING.search(name) and not any(
                name.startswith(known + ".") or name == known
                for known in found):
            raise Error(f"{type(model).__name__}: {name} ({type(module).__name__}) computes attention in "
                        "its own code, which cannot be exchanged; headlight.measure can measure the "
                        "model by its output_attentions", "unsupported")
    if not found:
        raise Error(f"{type(model).__name__}: no module asks for a registered attention function",
                    "unsupported")
    number(model)
    before = _select(model, NAME)
    own = next((name for name in before.values() if name != NAME), "eager")
    try:
        difference = Difference(0.0, 0.0, [])
        if check:
            difference = _compare(model, example_for(model) if example is None else example, found, own)
    except BaseException:
        _restore(model, before)
        raise
    return Attached(model, before, found, difference)


_guard_models()
AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, mask_for)
