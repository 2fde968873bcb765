"""headlight.measure: a profile from any model of PyTorch and transformers.

The model runs with headlight's attention (headlight.transformers.attach), or, where its attention
cannot be exchanged, with eager attention and output_attentions=True, one window at a time.  Windows,
sampled rows and sums are those of the program's `measure`: the two give the same profile of the same
model, up to rounding.
"""
from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ._library import Error
from ._profile import Profile
from ._recorder import ROWS, Recorder

_SETS = "ELXVA"  # the order of sets of heads in a profile


@dataclasses.dataclass
class Window:
    """What the model is given at once."""
    ids: np.ndarray  # (tokens) of the text; for other inputs, numbers that identify them
    inputs: Dict[str, Any]
    document: int = 0
    start: int = 0
    text_begin: int = 0
    text_end: int = 0


@dataclasses.dataclass
class Call:
    """The rows of one attention module in one pass."""
    name: str  # of the module
    letter: str  # of its set of heads
    layer_idx: Optional[int]
    n_queries: int
    n_keys: int
    n_heads: int
    is_causal: bool
    is_cross: bool
    has_sink: bool
    window_left: Optional[int]
    window_right: Optional[int]
    rows: Dict[str, Any]
    whole: Callable[[np.ndarray], np.ndarray]  # (heads, positions, keys) from positions
    norms: Optional[Callable[[np.ndarray], np.ndarray]]  # (heads, positions) from positions


# ---------------------------------------------------------------------- text as windows


def _around(tokenizer: Any) -> Tuple[List[int], List[int]]:
    """The tokens that the tokenizer puts before and after a text."""
    bare = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("a", add_special_tokens=True)["input_ids"])
    for at in range(len(full) - len(bare) + 1):
        if full[at:at + len(bare)] == bare:
            return full[:at], full[at + len(bare):]
    return [], []


def _text_windows(documents: Iterable[Sequence[int]], before: List[int], after: List[int],
                  context: int, stride: int, max_tokens: int) -> Iterator[Tuple[np.ndarray, int, int, int, int]]:
    """(ids, document, start, text_begin, text_end) of windows that do not overlap."""
    room = context - len(before) - len(after)
    if room < 1:
        raise Error(f"a context of {context} leaves no room for text: the tokenizer adds "
                    f"{len(before) + len(after)} tokens to every window")
    if stride not in (0, context, room):
        raise Error("stride: windows of a PyTorch model do not overlap", "unsupported")
    n_counted = 0
    for document, ids in enumerate(documents):
        for start in range(0, len(ids), room):
            text = list(ids[start:start + room])
            window = [*before, *text, *after]
            n_text = len(text)
            if max_tokens > 0 and n_counted + len(window) > max_tokens:
                n_text = len(text) - (n_counted + len(window) - max_tokens)
                if n_text <= 0:
                    return
                window = [*before, *text[:n_text], *after]
            n_counted += len(window)
            yield (np.array(window, dtype=np.int64), document, start, len(before), len(before) + n_text)
            if 0 < max_tokens <= n_counted:
                return


def _n_context(model: Any, tokenizer: Any, context: int) -> int:
    from .transformers import _size, _text_config
    config = _text_config(model.config)
    most = _size(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=0)
    for module in model.modules():  # RoBERTa's positions begin after that of padding
        weight = getattr(module, "weight", None)
        if weight is not None and getattr(module, "padding_idx", None) is not None and \
                getattr(module, "num_embeddings", None) == most and most > 0:
            most -= int(module.padding_idx) + 1
            break
    if context > 0:
        return context
    limit = getattr(tokenizer, "model_max_length", 0) or 0
    known = [n for n in (most, limit) if 0 < n < 1 << 30]
    return min([4096, *known])


def _documents(tokenizer: Any, texts: Any, files: Any) -> Iterator[List[int]]:
    from ._model import _read_documents
    if files is not None:
        paths = [files] if isinstance(files, (str, os.PathLike)) else list(files)
        found: Iterable[str] = (text for path in paths for text in _read_documents(path))
    else:
        found = [texts] if isinstance(texts, str) else texts
    for text in found:
        if not isinstance(text, str):
            raise Error(f"texts: found a {type(text).__name__}, wanted str; token ids are given as "
                        "token_ids=, and other inputs as inputs=")
        yield list(tokenizer(text, add_special_tokens=False, truncation=False,
                             verbose=False)["input_ids"])


def _sequence(tensor: Any) -> np.ndarray:
    """Numbers that identify an input: token ids, or a hash of anything else."""
    array = np.ascontiguousarray(tensor.detach().cpu().float().numpy() if hasattr(tensor, "detach")
                                 else np.asarray(tensor))
    if array.dtype.kind in "iu":
        return array.reshape(-1).astype(np.int64)
    digest = hashlib.blake2b(array.tobytes(), digest_size=32).digest()
    return np.frombuffer(digest, dtype=np.uint32).astype(np.int64)


# ---------------------------------------------------------------------- what modules compute

_OUTPUTS = ("o_proj", "out_proj", "c_proj", "wo", "o", "out_lin", "to_out", "dense", "output", "proj",
            "linear_out", "Wo")


def _output_weight(model: Any, name: str, width: int) -> Any:
    """(d_model, width) the projection of a module's heads into the residual stream; None if its name
    is not known."""
    modules = dict(model.named_modules())
    parent = modules.get(name.rpartition(".")[0])
    for module in (modules[name], parent):
        for part in _OUTPUTS if module is not None else ():
            child = getattr(module, part, None)
            child = getattr(child, "dense", child)
            weight = getattr(child, "weight", None)
            if weight is None or weight.dim() != 2:
                continue
            if type(child).__name__ == "Conv1D":  # GPT-2 stores (in, out)
                weight = weight.t()
            if weight.shape[1] == width and (module is modules[name] or part in ("output", "dense")):
                return weight.detach()
    return None


class _Tap:
    """Takes the rows of every attention module in a pass."""

    def __init__(self, model: Any, found: Mapping[str, Any]):
        self.model = model
        self.calls: List[Call] = []
        self._names = {id(module): name for name, module in model.named_modules()}
        self._places = found
        self._weights: Dict[str, Any] = {}
        self._is_sharded = _is_sharded(model)  # weights are there during their module's pass alone

    def take(self, module: Any, query: Any, key: Any, value: Any, options: Dict[str, Any]) -> Any:
        """Computes the rows, notes them, and returns out."""
        from . import _blocks as blocks
        from .torch import attention
        name = self._names.get(id(module))
        rows = attention(query, key, value, **options, want=("out", "lse", *ROWS))
        if name is None:
            return rows.out
        problem = blocks.Problem(
            query, key, value, bias=options.get("bias"), mask=options.get("mask"),
            sinks=options.get("sinks"), gates=options.get("gates"), causal=options["causal"],
            scale=options["scale"] or query.shape[3] ** -0.5, softcap=options["softcap"],
            window_left=-1 if options["window_left"] is None else options["window_left"],
            window_right=-1 if options["window_right"] is None else options["window_right"])
        place = self._places.get(name)
        letter = "L" if place is None or isinstance(place.layer, int) else place.layer[0]
        causal, left, right = _pattern(problem, options)
        self.calls.append(Call(
            name, letter, getattr(module, "layer_idx", None), query.shape[2], key.shape[2],
            query.shape[1], causal, letter == "X", options.get("sinks") is not None, left, right,
            {one: getattr(rows, one)[0].float().cpu().numpy() for one in ROWS},
            lambda at: blocks.probabilities(problem, at.tolist())[0].float().cpu().numpy(),
            self._norms_of(name, rows.out)))
        return rows.out

    def _norms_of(self, name: str, out: Any) -> Optional[Callable[[np.ndarray], np.ndarray]]:
        n_heads, d_value = out.shape[1], out.shape[3]
        if name not in self._weights:
            found = _output_weight(self.model, name, n_heads * d_value)
            self._weights[name] = found.clone() if self._is_sharded and found is not None else found
        weight = self._weights[name]
        if weight is None:
            return None
        parts = weight.float().reshape(-1, n_heads, d_value)

        def norms(at: np.ndarray) -> np.ndarray:
            z = out[0][:, at.tolist()].float()
            return np.asarray((z @ parts.permute(1, 2, 0)).norm(dim=-1).cpu().numpy())
        return norms


def _pattern(problem: Any, options: Dict[str, Any]) -> Tuple[bool, Optional[int], Optional[int]]:
    """(causal, window_left, window_right) of what rows see; from the mask where it says all."""
    from . import _blocks as blocks
    mask, bias = options.get("mask"), options.get("bias")
    if (mask is None or mask.dim() == 2) and bias is None:
        return options["causal"], options["window_left"], options["window_right"]
    return _pattern_of(blocks.visible(problem)[0, 0])


def _pattern_of(seen: Any) -> Tuple[bool, Optional[int], Optional[int]]:
    """The same from (queries, keys)."""
    import torch
    n_queries, n_keys = seen.shape[0], seen.shape[1]
    if n_queries != n_keys or bool(seen.all()):
        return False, None, None
    causal = not bool(seen.triu(1).any())
    key = seen.long().argmax(dim=1)
    reach = (torch.arange(n_queries, device=seen.device) - key).max()
    left = int(reach) if int(reach) < n_queries - 1 and int(seen[-1].sum()) == int(reach) + 1 else None
    return causal, left, None


# -------------------------------------------------------------- matrices that the model returns


def _rows_of(p: Any) -> Dict[str, np.ndarray]:
    """Statistics of (heads, queries, keys) probabilities, in double."""
    import torch
    p = p.detach().double().cpu()
    logs = torch.where(p > 0, p, 1.0).log()
    entropy = -(p * logs).sum(-1)
    n_queries, n_keys = p.shape[1], p.shape[2]
    at = torch.arange(n_queries)
    rest = p[:, :, 1:]
    total = rest.sum(-1)
    share = rest / torch.where(total > 0, total, 1.0)[..., None]
    def diagonal(offset: int) -> Any:
        keys = (at + offset).clamp(0, n_keys - 1)
        return p[:, at, keys]
    without_first = -(share * torch.where(share > 0, share, 1.0).log()).sum(-1)
    found = {"entropy": entropy, "renyi2": -(p ** 2).sum(-1).clamp(min=1e-300).log(),
             "varentropy": ((p * logs ** 2).sum(-1) - entropy ** 2).clamp(min=0),
             "entropy_nosink": without_first, "peak": p.amax(-1), "self": diagonal(0),
             "previous": diagonal(-1), "first": p[:, :, 0]}
    return {name: value.float().numpy() for name, value in found.items()}


_LISTS = (("encoder_attentions", "E"), ("attentions", "L"), ("decoder_attentions", "L"),
          ("cross_attentions", "X"))


def _returned(output: Any, config: Any) -> List[Call]:
    calls = []
    encoder_only = not getattr(config, "is_encoder_decoder", False)
    for key, letter in _LISTS:
        layers = getattr(output, key, None)
        for layer, p in enumerate(layers or ()):
            if p is None:
                continue
            p = p[0]
            causal, left, _ = _pattern_of((p > 0).any(dim=0))

            def whole(at: np.ndarray, p: Any = p) -> np.ndarray:
                return np.asarray(p[:, at.tolist()].float().cpu().numpy())
            calls.append(Call(f"{key}.{layer}", "L" if encoder_only and letter == "L" else letter, layer,
                              p.shape[1], p.shape[2], p.shape[0], causal, letter == "X", False, left,
                              None, _rows_of(p), whole, None))
    return calls


# ---------------------------------------------------------------------- measuring


class _Way:
    """How a model is run: with headlight's attention, or for the matrices it returns."""

    def __init__(self, model: Any, attention: str, example: Optional[Dict[str, Any]]):
        from . import transformers as plug
        self.model, self.tap, self._attached = model, None, None
        self._before: Dict[int, Any] = {}
        self.reason = ""
        if attention in ("auto", "headlight"):
            try:
                self._attached = plug.attach(model, example=example)
                self.tap = _Tap(model, self._attached.places)
                return
            except Error as error:
                if attention == "headlight":
                    raise
                self.reason = str(error)
        self._before = plug._select(model, "eager")

    @property
    def name(self) -> str:
        return "headlight" if self.tap is not None else "output_attentions"

    def run(self, inputs: Dict[str, Any]) -> Tuple[Any, List[Call]]:
        import torch
        from .transformers import tapped
        with torch.no_grad():
            if self.tap is None:
                output = self.model(**inputs, output_attentions=True)
                return output, _returned(output, self.model.config)
            self.tap.calls = []
            with tapped(self.tap):
                output = self.model(**inputs)
            return output, self.tap.calls

    def close(self) -> None:
        from . import transformers as plug
        if self._attached is not None:
            self._attached.detach()
        elif self._before:
            plug._restore(self.model, self._before)


@dataclasses.dataclass
class _Layout:
    """The layers of the profile: one per call in a pass, set by set."""
    keys: List[Tuple[str, str, int]]  # (set, module, which call of it)
    heads: List[int]
    numbers: Dict[Tuple[str, str, int], int]
    names: List[str]


def _keys_of(calls: Sequence[Call]) -> List[Tuple[str, str, int]]:
    counts: Dict[str, int] = {}
    out = []
    for call in calls:
        n = counts.setdefault(call.name, 0)
        counts[call.name] += 1
        out.append((call.letter, call.name, n))
    return out


def _lay_out(calls: Sequence[Call]) -> _Layout:
    keys = _keys_of(calls)
    letters = {key[0] for key in keys}
    order = sorted(range(len(keys)), key=lambda i: (_SETS.index(keys[i][0]), i))
    places = [calls[i].layer_idx for i in order]
    if len(letters) == 1 and None not in places and len(set(places)) == len(places) and \
            all(isinstance(place, int) and place >= 0 for place in places):
        n_layers = max(places) + 1  # type: ignore[type-var, operator]
        numbers = {keys[i]: calls[i].layer_idx for i in order}
    else:
        n_layers = len(order)
        numbers = {keys[i]: n for n, i in enumerate(order)}
    heads = [0] * n_layers
    for i in order:
        heads[numbers[keys[i]]] = calls[i].n_heads  # type: ignore[index]
    names, counts = [], dict.fromkeys(_SETS, 0)
    for i in order:
        names.append(f"{keys[i][0]}{counts[keys[i][0]]}")
        counts[keys[i][0]] += 1
    return _Layout([keys[i] for i in order], heads, numbers, names if len(letters) > 1 else [])  # type: ignore[arg-type]


def _record(recorder: Recorder, layout: _Layout, window: Window, calls: Sequence[Call],
            is_decoder: bool) -> None:
    """Adds the calls of a pass.  Calls over different numbers of rows are different sequences: an
    encoder's, a decoder's, a tower's."""
    keyed = list(zip(_keys_of(calls), calls))
    for n_rows in dict.fromkeys(call.n_queries for call in calls):
        tokens = window.ids if len(window.ids) == n_rows else np.resize(
            window.ids if len(window.ids) else np.zeros(1, dtype=np.int64), n_rows)
        recorder.begin(tokens, document=window.document, start=window.start, in_pieces=is_decoder)
        for key, call in keyed:
            if call.n_queries != n_rows or key not in layout.numbers:
                continue
            is_cross = call.is_cross or call.n_keys != n_rows
            recorder.add(
                layout.numbers[key], call.rows, n_keys=call.n_keys, whole=call.whole(recorder.whole_rows),
                norms=None if call.norms is None else call.norms(recorder.output_rows),
                is_causal=call.is_causal, is_cross=is_cross, window_left=call.window_left,
                window_right=call.window_right, has_sink=call.has_sink)
        recorder.end()


def _add_losses(recorder: Recorder, output: Any, window: Window) -> None:
    import torch
    logits = output.logits[0].float()
    begin = max(1, window.text_begin)
    targets = torch.as_tensor(window.ids[begin:window.text_end], device=logits.device)
    losses = torch.nn.functional.cross_entropy(logits[begin - 1:window.text_end - 1], targets,
                                               reduction="none")
    recorder.losses(losses.cpu().numpy())


def _hash_model(model: Any) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value  # of all ranks
        flat = whole.detach().reshape(-1).cpu()
        if flat.dtype.is_floating_point or flat.dtype.is_complex:
            flat = flat.float()
        digest.update(np.ascontiguousarray(flat.numpy()).data)
    return digest.hexdigest()


def _hash_tokenizer(tokenizer: Any) -> str:
    if tokenizer is None:
        return "none"
    digest = hashlib.blake2b(digest_size=8)
    for token, number in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        digest.update(f"{number} {token}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _check_sources(**sources: Any) -> None:
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        raise Error(f"one of {', '.join(sources)} is wanted, found {' and '.join(given) or 'none'}")


def _windows(model: Any, tokenizer: Any, texts: Any, files: Any, token_ids: Any, inputs: Any,
             context: int, stride: int, max_tokens: int, special: str) -> Iterator[Window]:
    import torch
    device = next(model.parameters()).device
    if inputs is not None:
        for number, given in enumerate([inputs] if isinstance(inputs, Mapping) else inputs):
            tensors = {key: value.to(device) if isinstance(value, torch.Tensor) else
                       torch.as_tensor(value, device=device) for key, value in given.items()}
            first = next((tensors[key] for key in ("input_ids", getattr(model, "main_input_name", ""))
                          if key in tensors), next(iter(tensors.values())))
            for b in range(first.shape[0]):
                one = {key: value[b:b + 1] if value.dim() and value.shape[0] == first.shape[0] else value
                       for key, value in tensors.items()}
                ids = _sequence(first[b])
                padded = one.get("attention_mask")
                if padded is not None and padded.dim() == 2 and not bool(padded.all()):
                    raise Error("inputs: a batch with padding; give its sequences one by one, or as "
                                "token_ids=", "unsupported")
                yield Window(ids, one, number, 0, 0, len(ids))
        return
    before, after = ([], []) if tokenizer is None or special == "none" else _around(tokenizer)
    if token_ids is not None:
        rows = token_ids if len(token_ids) and np.ndim(token_ids[0]) > 0 else [token_ids]
        documents: Iterable[Sequence[int]] = (np.asarray(row).tolist() for row in rows)
        before, after = [], []
    else:
        documents = _documents(tokenizer, texts, files)
        if special == "document":
            documents = ([*before, *ids, *after] for ids in documents)
            before, after = [], []
    decoder = getattr(model.config, "decoder_start_token_id", None)
    for ids, document, start, begin, end in _text_windows(documents, before, after, context, stride,
                                                          max_tokens):
        batch = {"input_ids": torch.as_tensor(ids, device=device)[None]}
        if getattr(model.config, "is_encoder_decoder", False):
            batch["decoder_input_ids"] = torch.as_tensor(
                [decoder if decoder is not None else int(ids[0]), *ids[:-1]], device=device)[None]
        yield Window(ids, batch, document, start, begin, end)


def measure(model: Any, tokenizer: Any = None, texts: Any = None, *, files: Any = None,
            token_ids: Any = None, inputs: Any = None, context: int = 0, stride: int = 0,
            max_tokens: int = 0, seed: int = 0, special: str = "window", nll: bool = False,
            attention: str = "auto", part: int = 0, n_parts: int = 1, n_threads: int = 0,
            example: Optional[Dict[str, Any]] = None,
            on_progress: Optional[Callable[[int, int], Any]] = None) -> Profile:
    """Measures every head of a model of PyTorch and transformers, and returns a Profile.

        profile = headlight.measure(model, tokenizer, ["Alice was beginning to get very tired."])
        profile = headlight.measure(model, inputs={"pixel_values": images})
        profile = headlight.measure("models/demo", files="book.txt")     a path: headlight.open

    Exactly one of
        texts      a text, or several: each is a document
        files      text files, and .jsonl files with a "text" per line
        token_ids  (sequences, tokens) integers, or a list of lists
        inputs     the model's arguments, or a list of them: for images, sound and anything else

    An encoder-decoder reads each window twice: the encoder as it is, the decoder shifted by one.  Its
    profile has the layers E0 ... (encoder), L0 ... (decoder) and X0 ... (cross-attention) one after the
    other; Profile.layer_names has their names.

    attention: "headlight" exchanges the model's attention; "output_attentions" reads the matrices that
    the model returns, which costs layers * heads * tokens^2 * 4 bytes per window and the model's eager
    speed; "auto" takes the first where it is right, and else warns and takes the second.
    context: tokens per window; 0: what the model has positions for, at most 4096.
    special: where the tokenizer's own tokens are added: around every "window", every "document", or
    "none".  nll: measure the loss of every token too.
    part, n_parts: measures every n_parts-th window, for several processes; headlight.merge_ranks adds
    their profiles.  example: as for headlight.transformers.attach.
    on_progress(n_tokens, n_windows): called after every window; may raise an exception to stop.
    """
    from ._model import Model
    if isinstance(model, (str, os.PathLike)):
        with Model(model) as opened:
            return opened.measure(tokenizer if texts is None and isinstance(tokenizer, str) else texts,
                                  files=files, token_ids=token_ids, context=context, stride=stride,
                                  max_tokens=max_tokens, seed=seed, special=special, nll=nll,
                                  n_threads=n_threads)
    if isinstance(model, Model):
        return model.measure(texts, files=files, token_ids=token_ids, context=context, stride=stride,
                             max_tokens=max_tokens, seed=seed, special=special, nll=nll,
                             n_threads=n_threads)
    if hasattr(model, "named_modules"):
        from ._collect import unwrapped
        model = unwrapped(model)
    else:
        raise Error(f"model is a {type(model).__name__}, wanted a path, a headlight.Model or a model of "
                    "transformers")
    if isinstance(texts, Mapping):
        inputs, texts = texts, None
    if isinstance(tokenizer, Mapping):
        inputs, tokenizer = tokenizer, None
    _check_sources(texts=texts, files=files, token_ids=token_ids, inputs=inputs)
    if tokenizer is None and (texts is not None or files is not None):
        raise Error("a tokenizer is wanted for texts; token ids are given as token_ids=")
    if special not in ("window", "document", "none"):
        raise Error(f"special is {special!r}, wanted one of window, document, none")
    if attention not in ("auto", "headlight", "output_attentions"):
        raise Error(f"attention is {attention!r}, wanted auto, headlight or output_attentions")
    return _measure(model, tokenizer, texts, files, token_ids, inputs,
                    _n_context(model, tokenizer, context), stride, max_tokens, seed, special, nll,
                    attention, part, n_parts, n_threads, example, on_progress)


def _is_sharded(model: Any) -> bool:
    """Whether every pass of the model waits for those of other processes."""
    return any("FullyShardedDataParallel" in name or name == "FSDPModule" for module in model.modules()
               for name in (one.__name__ for one in type(module).__mro__))


def _n_passes(n_windows: int, n_parts: int) -> int:
    """The most passes that any part needs: every part runs the first window, which shows the layers."""
    return max((0 if part == 0 else 1) + -(-(n_windows - part) // n_parts)
               for part in range(min(n_parts, n_windows)))


def _measure(model: Any, tokenizer: Any, texts: Any, files: Any, token_ids: Any, inputs: Any,
             context: int, stride: int, max_tokens: int, seed: int, special: str, nll: bool,
             attention: str, part: int, n_parts: int, n_threads: int,
             example: Optional[Dict[str, Any]], on_progress: Optional[Callable[[int, int], Any]]) -> Profile:
    windows = _windows(model, tokenizer, texts, files, token_ids, inputs, context, stride, max_tokens,
                       special)
    was_training = model.training
    model.eval()
    recorder: Optional[Recorder] = None
    layout: Optional[_Layout] = None
    way: Optional[_Way] = None
    n_tokens = n_windows = 0
    is_decoder, n_passes = False, 0
    number, window = -1, Window(np.zeros(0, dtype=np.int64), {})
    try:
        for number, window in enumerate(windows):
            if way is None:
                way = _Way(model, attention, window.inputs if example is None and inputs is not None
                           else example)
            if number % n_parts != part and layout is not None:
                continue
            output, calls = way.run(window.inputs)
            n_passes += 1
            if not calls:
                raise Error(f"{type(model).__name__} returned no attention: neither can its attention "
                            f"be exchanged nor does it have output_attentions. {way.reason}", "unsupported")
            if layout is None or recorder is None:
                layout = _lay_out(calls)
                longest = max(context, max(max(call.n_queries, 1) for call in calls))
                is_decoder = all(call.is_causal for call in calls if call.letter == "L")
                _warn_of_cost(way, layout, calls)
                recorder = Recorder(layout.heads, context=longest, seed=seed, n_threads=n_threads,
                                    settings=_settings(model, tokenizer, way, layout, longest, stride,
                                                       special, nll))
            if number % n_parts == part:
                _record(recorder, layout, window, calls, is_decoder)
                if nll:
                    _add_losses(recorder, output, window)
                n_tokens, n_windows = n_tokens + len(window.ids), n_windows + 1
                if on_progress is not None:
                    on_progress(n_tokens, n_windows)
        if way is not None and n_parts > 1 and _is_sharded(model):
            for _ in range(_n_passes(number + 1, n_parts) - n_passes):
                way.run(window.inputs)
    finally:
        if way is not None:
            way.close()
        model.train(was_training)
    if recorder is None:
        raise Error("there is no text to measure", "bad input")
    return recorder.finish()


def _warn_of_cost(way: _Way, layout: _Layout, calls: Sequence[Call]) -> None:
    if way.name == "output_attentions" and way.reason:
        n_bytes = sum(4 * call.n_heads * call.n_queries * call.n_keys for call in calls)
        warnings.warn(f"measured by output_attentions, {n_bytes / 2**20:.1f} MiB of matrices per window, "
                      f"because {way.reason}", stacklevel=4)


def _settings(model: Any, tokenizer: Any, way: _Way, layout: _Layout, context: int, stride: int,
              special: str, nll: bool) -> Dict[str, str]:
    dtype = str(next(model.parameters()).dtype).replace("torch.", "")
    short = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}
    out = {"model": _hash_model(model), "family": str(getattr(model.config, "model_type", "pytorch")),
           "dtype": short.get(dtype, dtype), "tokenizer": _hash_tokenizer(tokenizer),
           "stride": str(stride or context), "pack": "no", "nll": "yes" if nll else "no", "probe": "no",
           "epsilon": "0", "samples": "2 and 32 of 512", "attention": way.name}
    if tokenizer is not None and special != "document" and any(_around(tokenizer)):
        out["special"] = special
    if layout.names:
        out["layers"] = " ".join(layout.names)
    return out


def merge_ranks(profile: Profile, group: Any = None) -> Profile:
    """Adds the profiles of all ranks of torch.distributed; every rank gets the sum.

        profile = headlight.measure(model, tokenizer, texts, part=rank, n_parts=n_ranks)
        profile = headlight.merge_ranks(profile)
    """
    import torch.distributed as dist
    if not dist.is_initialized():
        raise Error("torch.distributed is not initialized: there are no ranks to merge")
    found: List[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, profile.to_bytes(), group=group)
    merged = Profile.from_bytes(found[0])
    return merged.merge(*(Profile.from_bytes(data) for data in found[1:]))
