"""Models: their description, their tokens, and what they compute from a text."""
from __future__ import annotations

import contextlib
import ctypes as c
import dataclasses
import json
import math
import os
import tempfile
from typing import Any, Dict, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _structs as s
from ._library import Error, Handle, Watcher, call, library, path_bytes, text, texts as c_texts
from ._named import NamedArray
from ._profile import Path, Profile

Off = Union[str, Sequence[str]]  # "L5H1,L7", or a list of such names
Texts = Union[str, Iterable[str]]
Files = Union[Path, Sequence[Path]]


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """A model's description; the fields of hl_model_info."""
    family: str
    format: str
    tokenizer_path: str
    is_encoder: bool
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_mlp: int
    d_model: int
    d_head: int
    d_vocab: int
    n_ctx: int  # 0: not given in the file
    n_experts: int
    n_experts_used: int
    d_expert: int
    norm: str
    norm_place: str
    residual: str
    position: str
    rope: str
    rope_base: float
    activation: str
    is_gated: bool
    is_tied: bool
    has_head: bool
    has_sinks: bool
    bos_id: int  # -1: none
    pad_id: int
    eos_ids: Tuple[int, ...]
    n_params: int
    n_tensors: int
    tensor_bytes: int
    kv_bytes_f32: int  # KV-cache bytes per token
    kv_bytes_f16: int


@dataclasses.dataclass(frozen=True)
class Token:
    """A new token and the model's state when it was chosen; entropies in nats."""
    id: int
    text: str  # whole characters: may be "" now, and more with the next token
    logprob: float
    entropy: float  # of the distribution over the vocabulary
    varentropy: float
    attention_entropy: float  # mean over all heads, in the row that predicted it


@dataclasses.dataclass(frozen=True)
class Generation:
    text: str  # without the prompt
    tokens: List[Token]
    stop: str  # "end", "length", "context", "stop"; "callback": on_token returned False
    prompt_tokens: List[int]


@dataclasses.dataclass(frozen=True)
class Interval:
    """Where a number lies with 95% confidence: hl_interval. The number is computed again without each
    unit, and Student's t is applied to the error that follows; units are documents if there are at
    least four, windows otherwise. With fewer than four units there is no interval."""
    low: float
    high: float
    error: float  # standard error
    level: float
    n: int  # number of units


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How well a model predicts texts: hl_nll."""
    mean: float  # nats per token
    perplexity: float
    bits_per_byte: float
    interval: Optional[Interval]  # of the mean; None with fewer than 4 windows
    sum: float
    n_scored: int
    n_tokens: int
    n_bytes: int
    n_windows: int
    n_texts: int
    n_broken: int  # scored tokens whose loss is not finite; if there are any, mean and the rest are NaN
    nll: List[np.ndarray]  # per text, (tokens), NaN for tokens that were not scored


@dataclasses.dataclass(frozen=True)
class FrontierPoint:
    """What removing heads costs on held-out text; intervals of 95%, nats per token."""
    ranker: str
    n_off: int
    tensor_bytes: int
    rise: float  # of the loss
    rise_low: float
    rise_high: float
    kl: float  # from the unpruned model
    kl_low: float
    kl_high: float
    same: float  # share of predictions with the unpruned model's most likely token
    fits: bool  # the budget
    is_best: bool  # no other point is smaller and costs less


@dataclasses.dataclass(frozen=True)
class Frontier:
    """Orders of heads tried on held-out text, and what a budget recommends: hl_frontier."""
    points: List[FrontierPoint]
    recommended: FrontierPoint
    heads: List[str]  # to remove there: ["L0H5", ...]
    nll: float  # of the unpruned model
    tensor_bytes: int
    n_scored: int
    n_windows: int
    context: int
    all_went: bool  # the limits ended it, not the budget
    repaired: bool  # measured of models whose output projections are solved again


@dataclasses.dataclass(frozen=True)
class Progress:
    n_tokens: int
    n_sequences: int
    share: float  # finished share of the work, 0 to 1


def _read_info(found: s.ModelInfo) -> ModelInfo:
    values: Dict[str, Any] = {}
    for field in dataclasses.fields(ModelInfo):
        value = getattr(found, field.name)
        values[field.name] = text(value) if isinstance(value, (bytes, type(None))) else value
    values["eos_ids"] = tuple(found.eos_ids[:found.n_eos_ids])
    return ModelInfo(**values)


def _around(special: str) -> int:
    if special not in s.AROUNDS:
        raise Error(f"special is {special!r}, wanted one of {', '.join(s.AROUNDS)}")
    return s.AROUNDS.index(special)


class Model:
    """A model and its tokenizer.

        with headlight.open("models/demo") as model:
            print(model.generate("Alice was").text)
            profile = model.measure("Alice was beginning to get very tired.")
    """

    def __init__(self, path: Path, *, tokenizer: Optional[Path] = None, off: Off = (),
                 device: Optional[str] = None):
        """path: a Hugging Face folder, a .gguf file or a llama2.c .bin.  tokenizer: path of a tokenizer
        to use instead of the model's own.  off: heads to disable in all calls.  device: "cpu", "cuda",
        "cuda:f16" or "cuda:f32"."""
        self._model = Handle.open("hl_model_close", "hl_model_open", path_bytes(path))
        self._tokenizer: Optional[Handle] = None
        self._tokenizer_path = tokenizer
        self.path = os.fspath(path)
        self.info = _read_info(library().hl_model_get_info(self._model.pointer).contents)
        if device is not None:
            call("hl_model_set_device", self._model.pointer, device.encode())
        if off:
            gates = self.gates(off)
            call("hl_model_set_gates", self._model.pointer, gates.ctypes.data)

    def close(self) -> None:
        if self._tokenizer is not None:
            self._tokenizer.close()
        self._model.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self.info
        return f"Model {self.path}: {info.family}, {info.n_layers} layers, {info.n_heads} heads"

    @property
    def hash(self) -> int:
        """A hash of all tensors, whatever files store them.  Reads the whole model."""
        out = c.c_uint64()
        call("hl_model_hash", c.byref(out), self._model.pointer, 0)
        return out.value

    # ----------------------------------------------------------------- heads

    def gates(self, off: Off) -> np.ndarray:
        """(layer, head) float32: 0 for these heads, 1 for all others."""
        names = off if isinstance(off, str) else ",".join(off)
        found = c.POINTER(s.Gates)()
        with Handle.open("hl_head_list_free", "hl_head_list_parse", self._model.pointer,
                         names.encode()) as heads:
            call("hl_gates_new", c.byref(found), self._model.pointer)
            library().hl_gates_set(found, heads.pointer, 0.0)
        try:
            gates = found.contents
            return np.ctypeslib.as_array(gates.values, (gates.n_layers, gates.n_heads)).copy()
        finally:
            library().hl_gates_free(found)

    # ---------------------------------------------------------------- tokens

    @property
    def tokenizer(self) -> Handle:
        """Opened when it is first needed: token ids do not require it."""
        if self._tokenizer is None:
            path = self._tokenizer_path or self.info.tokenizer_path
            self._tokenizer = Handle.open("hl_tokenizer_close", "hl_tokenizer_open",
                                          path_bytes(path))
        return self._tokenizer

    def _encode(self, content: str, add_special: bool, plain: bool) -> Tuple[np.ndarray, np.ndarray]:
        """(tokens) ids, and the number of bytes of the text per token."""
        data = content.encode("utf-8", "surrogateescape")
        found = c.POINTER(s.Encoding)()
        call("hl_tokenizer_encode", c.byref(found), self.tokenizer.pointer, data, len(data),
             c.byref(s.EncodeOptions(add_special, plain)))
        try:
            encoding = found.contents
            n = encoding.n_tokens
            ids = np.array(encoding.ids[:n], dtype=np.int64)
            ends = np.array([encoding.spans[i].end for i in range(n)], dtype=np.int64)
            reached = np.maximum.accumulate(ends) if n else ends
            return ids, np.diff(reached, prepend=0)
        finally:
            library().hl_encoding_free(found)

    def tokenize(self, content: str, *, add_special: bool = False,
                 plain: bool = False) -> np.ndarray:
        """(tokens) int64.  add_special: add the tokens that the model expects around a text. plain:
        treat special tokens that are spelled out in the text as ordinary text."""
        return self._encode(content, add_special, plain)[0]

    def detokenize(self, ids: Any, *, skip_special: bool = False) -> str:
        """The text of some tokens; invalid UTF-8 becomes U+FFFD."""
        packed = np.ascontiguousarray(ids, dtype=np.int64)
        out, n_bytes = c.c_void_p(), s.Size()
        call("hl_tokenizer_decode", c.byref(out), c.byref(n_bytes), self.tokenizer.pointer,
             packed.ctypes.data, packed.size, c.byref(s.DecodeOptions(skip_special)))
        try:
            return c.string_at(out.value or 0, n_bytes.value).decode("utf-8", "replace")
        finally:
            library().hl_free(out)

    # ------------------------------------------------------------- measuring

    def measure(self, texts: Optional[Texts] = None, *, files: Optional[Files] = None,
                token_ids: Any = None, context: int = 0, stride: int = 0, n_batch: int = 0,
                max_tokens: int = 0, pack: bool = False, seed: int = 0, nll: bool = False,
                probe: bool = True, epsilon: float = 0.0, n_sample: int = 0,
                n_threads: int = 0, special: str = "window",
                on_progress: Optional[Callable[[Progress], None]] = None) -> Profile:
        """Runs the model over texts and sums up statistics of its heads.

        Exactly one of
            texts       a text, or several: each is a document
            files       as for `headlight measure`: files, folders, patterns
            token_ids   (sequences, tokens) integers, or a list of lists of them

        context: tokens per window; 0: the model's, at most 4096.  stride: tokens from one window to the
        next.  seed: random seed of the sampled complete rows.  nll: measure the loss of every token
        too. probe: measure induction on a random sequence.  epsilon: above 0, compute entropy by the
        formula of compute_attention_entropy, slowly.  on_progress: may raise an exception, which ends
        the call.
        special: where the tokenizer's own tokens (<bos>, [CLS] ... [SEP]) are added: around every
        "window", around every "document" before it is cut, or "none".  Nothing is added to token ids.
        """
        def report(progress: Any) -> None:  # called without on_progress too, so that Ctrl-C is noticed
            if on_progress is not None:
                found = progress.contents
                on_progress(Progress(found.n_tokens, found.n_windows, found.share))

        watcher = Watcher(s.ProgressCallback, report)
        windows = s.WindowOptions(context, stride, n_batch, max_tokens, pack, 0, 0, _around(special))
        options = s.MeasureOptions(windows=windows, seed=seed, nll=nll, no_probe=not probe,
                                   epsilon=epsilon, n_threads=n_threads,
                                   progress=watcher.callback)
        no_text = token_ids is not None or isinstance(texts, Mapping)
        tokenizer = None if no_text else self.tokenizer.pointer
        with self._corpus(texts, files, token_ids, n_sample, seed) as corpus:
            out = c.c_void_p()
            watcher.call("hl_measure", c.byref(out), self._model.pointer, tokenizer,
                         corpus.pointer, c.byref(options))
        assert out.value is not None
        return Profile(Handle(out.value, "hl_profile_free"))

    @contextlib.contextmanager
    def _corpus(self, texts: Optional[Texts], files: Optional[Files], token_ids: Any,
                n_sample: int, seed: int) -> Iterator[Handle]:
        """Writes texts and ids to a temporary file for as long as the corpus is open, since it reads
        documents when they are needed."""
        if isinstance(texts, Mapping):  # a tokenizer's result
            if "input_ids" not in texts:
                raise Error("texts is a dict without input_ids")
            ids: Any = texts["input_ids"]
            texts, token_ids = None, [np.asarray(row) for row in ids] if np.ndim(ids[0]) else np.asarray(ids)
        if sum(x is not None for x in (texts, files, token_ids)) != 1:
            raise Error("one of texts, files and token_ids is wanted")
        options = s.CorpusOptions(n_sample=n_sample, seed=seed)
        with tempfile.TemporaryDirectory(prefix="headlight-") as folder:
            if token_ids is not None:
                path = os.path.join(folder, "token_ids.jsonl")
                _write_lines(path, (_ids_of(row) for row in _rows(token_ids)))
                options.token_ids = path_bytes(path)
                inputs = []
            elif texts is not None:
                path = os.path.join(folder, "texts.jsonl")
                several = [texts] if isinstance(texts, str) else texts
                _write_lines(path, ({"text": content} for content in several))
                inputs = [path_bytes(path)]
            else:
                several_files = [files] if isinstance(files, (str, os.PathLike)) else files
                inputs = [path_bytes(path) for path in several_files or ()]
            options.inputs, options.n_inputs = c_texts(inputs), len(inputs)
            tokenizer = None if token_ids is not None else self.tokenizer.pointer
            with Handle.open("hl_corpus_close", "hl_corpus_open", self._model.pointer, tokenizer,
                             c.byref(options)) as corpus:
                yield corpus

    def patterns(self, tokens: Any, *, n_threads: int = 0) -> NamedArray:
        """(layer, head, query, key) complete attention of every head on a text or on token ids, for at
        most 512 tokens."""
        ids = np.ascontiguousarray(self.tokenize(tokens, add_special=True)
                                   if isinstance(tokens, str) else tokens, dtype=np.int64)
        found = c.POINTER(s.Patterns)()
        call("hl_patterns_of", c.byref(found), self._model.pointer, ids.ctypes.data, ids.size,
             n_threads)
        try:
            p = found.contents
            shape = (p.n_layers, p.n_heads, p.n_tokens, p.n_tokens)
            values = np.ctypeslib.as_array(p.values, shape).copy()
        finally:
            library().hl_patterns_free(found)
        return NamedArray(values, ("layer", "head", "query", "key"), "attention")

    # ------------------------------------------------------------ generating

    def generate(self, prompt: Union[str, Sequence[int], np.ndarray], *,
                 on_token: Optional[Callable[[Token], Optional[bool]]] = None,
                 max_tokens: int = 128, temperature: float = 0.0, top_k: int = 0,
                 top_p: float = 0.0, min_p: float = 0.0, repeat_penalty: float = 0.0,
                 repeat_last: int = 0, seed: int = 0, stop: Sequence[str] = (), off: Off = (),
                 ignore_end: bool = False, context: int = 0, n_threads: int = 0) -> Generation:
        """Continues a text, or token ids.

        on_token: called with each Token as it is generated; if it returns False, the text ends after
        that token.
        max_tokens: 0 for as many as the context holds.  temperature: 0 for always the most likely token.
        stop: texts that end the generated text, and are not part of it.  off: heads to disable,
        "L5H1,L7".
        """
        if self.info.is_encoder:
            raise Error(f"{self.path} is an encoder ({self.info.family}): it sees whole texts and "
                        "writes none", "unsupported")
        ids = self._prompt_ids(prompt)
        sample = s.SampleOptions(temperature, top_k, top_p, min_p, repeat_penalty, repeat_last,
                                 seed)
        ends = np.array(self._end_ids(), dtype=np.int64)
        gates = self.gates(off) if off else None
        options = s.GenerateOptions(sample=sample, max_tokens=max_tokens, ignore_end=ignore_end,
                                    end_ids=ends.ctypes.data, n_end_ids=len(ends),
                                    gates=None if gates is None else gates.ctypes.data)
        session_options = s.SessionOptions(n_ctx=context or self._room(len(ids), max_tokens),
                                           wants=s.WANT_LAST_DRAW, n_threads=n_threads)
        with contextlib.ExitStack() as stack:
            session = stack.enter_context(Handle.open(
                "hl_session_close", "hl_session_open", self._model.pointer,
                c.byref(session_options)))
            generator = stack.enter_context(Handle.open(
                "hl_generator_close", "hl_generator_open", session.pointer, c.byref(options)))
            writer = stack.enter_context(_Writer(self.tokenizer, stop))
            call("hl_generator_prompt", generator.pointer, ids.ctypes.data, len(ids))
            tokens, reason = _run_generator(generator, writer, on_token)
            return Generation(writer.finish(), tokens, reason, ids.tolist())

    def _prompt_ids(self, prompt: Any) -> np.ndarray:
        ids = (self.tokenize(prompt, add_special=True) if isinstance(prompt, str)
               else np.ascontiguousarray(prompt, dtype=np.int64))
        if len(ids) == 0 and self.info.bos_id < 0:
            raise Error("the prompt is empty, and the model has no token that begins texts")
        return ids if len(ids) else np.array([self.info.bos_id], dtype=np.int64)

    def _end_ids(self) -> List[int]:
        """The tokens that the tokenizer uses for the end of a text or of a turn."""
        found = (library().hl_tokenizer_special(self.tokenizer.pointer, s.SPECIALS.index(name))
                 for name in ("EOS", "EOT"))
        return [id for id in found if id >= 0]

    def _room(self, n_prompt: int, max_tokens: int) -> int:
        """The context length: as much as needed, at most what the model has."""
        most, needed = self.info.n_ctx, n_prompt + max_tokens
        if max_tokens == 0:
            return most
        return min(most, needed) if most > 0 else needed

    # ------------------------------------------------------------ evaluating

    def eval(self, texts: Optional[Texts] = None, *, files: Optional[Files] = None,
             context: int = 0, stride: int = 0, off: Off = (), n_threads: int = 0,
             special: str = "window") -> Evaluation:
        """Measures how well the model predicts texts (hl_perplexity).  Windows of `context` tokens
        begin every `stride` tokens.  Each text, each file, and each line of a .jsonl file is a
        document.
        special: as for measure; only with "document" do the arrays of nll include the tokens that the
        tokenizer adds."""
        if (texts is None) == (files is None):
            raise Error("one of texts and files is wanted")
        if texts is not None:
            documents = [texts] if isinstance(texts, str) else list(texts)
        else:
            paths = [files] if isinstance(files, (str, os.PathLike)) else list(files or ())
            documents = [text for path in paths for text in _read_documents(path)]
        gates = self.gates(off) if off else None
        way = s.AROUNDS[_around(special)]
        watcher = Watcher(s.ProgressCallback, lambda *_: None)
        options = s.PerplexityOptions(n_ctx=context, stride=stride, n_threads=n_threads,
                                      gates=None if gates is None else gates.ctypes.data,
                                      progress=watcher.callback)
        if way == "window":
            options.around = library().hl_tokenizer_around(self.tokenizer.pointer)
        with Handle.open("hl_perplexity_close", "hl_perplexity_open", self._model.pointer,
                         c.byref(options)) as perplexity:
            found = [self._score(perplexity, watcher, document, way == "document")
                     for document in documents]
            total = library().hl_perplexity_total(perplexity.pointer)
        fields = {field.name: getattr(total, field.name)
                  for field in dataclasses.fields(Evaluation) if field.name not in ("nll", "interval")}
        fields["interval"] = None if math.isnan(total.interval.low) else Interval(
            *(getattr(total.interval, field.name) for field in dataclasses.fields(Interval)))
        return Evaluation(nll=found, **fields)

    # --------------------------------------------------------------- pruning

    def frontier(self, texts: Optional[Texts] = None, *, files: Optional[Files] = None,
                 token_ids: Any = None, until_loss: float = 0.0, until_kl: float = 0.0,
                 until_bytes: int = 0, rankers: Sequence[str] = (), keep: Off = (),
                 per_layer_max: int = 0, empty_layers: bool = False, groups: bool = False,
                 repair: Optional[bool] = None, context: int = 0, max_tokens: int = 8192, seed: int = 0,
                 n_threads: int = 0, special: str = "window",
                 out: Optional[Path] = None) -> Frontier:
        """How many heads can go within a budget, and which (hl_frontier_find).

            found = model.frontier(files="models/text/alice.txt", until_loss=0.05)
            model.prune(found.heads, "smaller")

        Heads are ranked on one half of the text and tried on the other.  until_loss, until_kl: nats
        per token, by the upper end of the 95% interval; until_bytes: of tensors; none: a loss of
        0.05.  rankers: () for the three that cost least in our sweeps.  keep: heads, layers and types of
        heads that stay, "L0,L5H1,induction".  repair: measure models whose output projections
        are solved again, as `headlight prune` writes them, and not with the heads disabled; None:
        where the model can be repaired, as the command does.  out: where it would be written, for
        the size."""
        if repair is None:
            repair = library().hl_repair_check(self._model.pointer) == 0
        names = keep if isinstance(keep, str) else ",".join(keep)
        numbers = (c.c_int * max(1, len(rankers)))()
        for i, name in enumerate(rankers):
            found_ranker = c.c_int()
            call("hl_ranker_find", c.byref(found_ranker), name.encode())
            numbers[i] = found_ranker.value
        watcher = Watcher(s.ProgressCallback, lambda *_: None)
        windows = s.WindowOptions(context, 0, 0, max_tokens, False, 0, 0, _around(special))
        options = s.BudgetOptions(until_loss=until_loss, until_kl=until_kl, until_bytes=until_bytes,
                                  rankers=numbers if rankers else None, n_rankers=len(rankers),
                                  groups=groups, repair=repair, path=None if out is None else path_bytes(out),
                                  windows=windows, seed=seed, n_threads=n_threads,
                                  progress=watcher.callback)
        options.choice.per_layer_max = per_layer_max
        options.choice.empty_layers = empty_layers
        found = c.POINTER(s.Frontier)()
        tokenizer = None if token_ids is not None else self.tokenizer.pointer
        with contextlib.ExitStack() as stack:
            if names:
                kept = stack.enter_context(self._select(
                    names, lambda: self.measure(texts, files=files, token_ids=token_ids,
                                                context=context or 512, max_tokens=max_tokens,
                                                n_threads=n_threads, special=special)))
                options.choice.keep = kept.pointer
            corpus = stack.enter_context(self._corpus(texts, files, token_ids, 0, seed))
            watcher.call("hl_frontier_find", c.byref(found), self._model.pointer, tokenizer,
                         corpus.pointer, None, c.byref(options))
        try:
            return _read_frontier(found.contents)
        finally:
            library().hl_frontier_free(found)

    def _select(self, names: str, measure: Callable[[], Profile]) -> Handle:
        """A list of heads by name and type; types are measured."""
        types = c.c_bool()
        call("hl_head_words_need_profile", c.byref(types), self._model.pointer, names.encode())
        with contextlib.ExitStack() as stack:
            profile = None
            if types.value:
                profile = stack.enter_context(measure())._handle.pointer
            return Handle.open("hl_head_list_free", "hl_head_list_select", self._model.pointer,
                               profile, names.encode())

    def prune(self, heads: Off, out: Path) -> None:
        """Writes the model without these heads (hl_prune_write): a folder that does not exist yet, or
        a file that ends in .gguf."""
        names = heads if isinstance(heads, str) else ",".join(heads)
        with Handle.open("hl_head_list_free", "hl_head_list_parse", self._model.pointer,
                         names.encode()) as found:
            call("hl_prune_write", None, self._model.pointer, found.pointer, None, path_bytes(out))

    def _score(self, perplexity: Handle, watcher: Watcher, document: str,
               add_special: bool) -> np.ndarray:
        ids, n_bytes = self._encode(document, add_special, False)
        nll = np.full(len(ids), math.nan)
        scored = s.ScoredText(ids.ctypes.data, len(ids), n_bytes.ctypes.data, nll.ctypes.data, None)
        watcher.call("hl_perplexity_add", c.byref(s.Nll()), perplexity.pointer, c.byref(scored))
        return nll


def _read_frontier(found: s.Frontier) -> Frontier:
    points = []
    for i in range(found.n_points):
        values = {field.name: getattr(found.points[i], field.name)
                  for field in dataclasses.fields(FrontierPoint)}
        values["ranker"] = text(library().hl_ranker_name(found.points[i].ranker))
        points.append(FrontierPoint(**values))
    listed = found.heads.contents
    heads = [f"L{head.layer}H{head.head}" for head in listed.heads[:listed.n_heads]]
    return Frontier(points, points[found.recommended], heads, found.nll, found.tensor_bytes,
                    found.n_scored, found.n_windows, found.n_ctx, found.all_went,
                    found.budget.repair)


class _Writer:
    """Turns tokens into text, in whole characters, up to a stop word."""

    def __init__(self, tokenizer: Handle, stop: Sequence[str]):
        if any(not word for word in stop):
            raise Error("stop: an empty text would stop at once")
        self._stream = Handle.open("hl_decode_stream_close", "hl_decode_stream_open",
                                   tokenizer.pointer, c.byref(s.DecodeOptions(True)))
        words = c_texts([word.encode() for word in stop])
        self._stop = Handle.open("hl_stop_words_free", "hl_stop_words_new", words, len(stop))
        self._text: List[bytes] = []
        self.ended = False

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.close()
        self._stream.close()

    def _call(self, name: str, *arguments: Any) -> bytes:
        """Makes a call that returns a text."""
        out, n_bytes = c.c_void_p(), s.Size()
        call(name, c.byref(out), c.byref(n_bytes), *arguments)
        return c.string_at(out.value or 0, n_bytes.value) if n_bytes.value else b""

    def _pass(self, more: bytes) -> None:
        """Passes text through the search for stop words."""
        found = c.c_bool()
        self._text.append(self._call("hl_stop_words_push", c.byref(found), self._stop.pointer, more,
                                     len(more)))
        self.ended = self.ended or found.value

    def push(self, id: int) -> str:
        """Adds a token; returns its text before the search for stop words."""
        more = self._call("hl_decode_stream_push", self._stream.pointer, id)
        self._pass(more)
        return more.decode("utf-8", "replace")

    def finish(self) -> str:
        """Returns the rest of the text."""
        self._pass(self._call("hl_decode_stream_finish", self._stream.pointer))
        self._text.append(self._call("hl_stop_words_finish", self._stop.pointer))
        return b"".join(self._text).decode("utf-8", "replace")


def _run_generator(generator: Handle, writer: _Writer,
                   on_token: Optional[Callable[[Token], Optional[bool]]]) -> Tuple[List[Token], str]:
    tokens: List[Token] = []
    found = s.Generated()
    while True:
        call("hl_generator_next", c.byref(found), generator.pointer)
        shown = writer.push(found.id) if found.stop != s.STOPS.index("END") else ""
        tokens.append(Token(found.id, shown, found.logprob, found.entropy, found.varentropy,
                            found.attention_entropy))
        goes_on = on_token is None or on_token(tokens[-1]) is not False
        if writer.ended:
            return tokens, "stop"
        if found.stop != s.STOPS.index("NONE"):
            return tokens, text(library().hl_stop_name(found.stop))
        if not goes_on:
            return tokens, "callback"


def _ids_of(row: Any) -> List[int]:
    ids = np.asarray(row)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise Error(f"token_ids has a row of {ids.dtype} with {ids.ndim} axes, wanted whole numbers with 1")
    if ids.size and ids.min() < 0:
        raise Error(f"token_ids has {ids.min()}, wanted ids from 0 on")
    return ids.tolist()  # type: ignore[no-any-return]


def _rows(token_ids: Any) -> Iterable[Any]:
    """Token ids as rows; (tokens) becomes one row."""
    if len(token_ids) == 0 or np.ndim(token_ids[0]) > 0:
        return list(token_ids)
    return [token_ids]


def _write_lines(path: str, values: Iterable[Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for value in values:
            json.dump(value, file, ensure_ascii=False)
            file.write("\n")


def _read_documents(path: Path) -> List[str]:
    with open(path, "rb") as file:
        content = file.read().decode("utf-8", "surrogateescape")
    if not os.fspath(path).endswith((".jsonl", ".ndjson")):
        return [content]
    out = []
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            out.append(_text_of_line(line, f"{os.fspath(path)}:{number}"))
    return out


def _text_of_line(line: str, place: str) -> str:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise Error(f"{place}: {error}", "bad input") from None
    if not isinstance(found, dict) or not isinstance(found.get("text"), str):
        raise Error(f"{place}: no \"text\", or it is not a string", "bad input")
    return str(found["text"])


def open_model(path: Path, *, tokenizer: Optional[Path] = None, off: Off = (),
               device: Optional[str] = None) -> Model:
    """headlight.open: opens a Hugging Face folder, a .gguf file or a llama2.c .bin."""
    return Model(path, tokenizer=tokenizer, off=off, device=device)
