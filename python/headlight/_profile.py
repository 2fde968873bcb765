"""Profiles: the measurements of every head, as arrays."""
from __future__ import annotations

import ctypes as c
import dataclasses
import math
import os
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from . import _structs as s
from ._library import Error, Handle, call, library, path_bytes, text
from ._named import NamedArray, Table, optional

Path = Union[str, "os.PathLike[str]"]
_STATISTICS = ("count", "mean", "variance", "min", "max")


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """A check of a profile: an alarm, which a person should act on, or an observation."""
    name: str  # "entropy-collapse"
    kind: str  # "alarm", "observation"
    verdict: str  # "not found", "found", "not run"
    value: float  # the size of the effect that the rule compares; NaN: not measured
    threshold: float  # the smallest effect that matters
    unit: str  # of both: "share of heads", ...
    errors: float  # the effect in its standard errors; NaN: not tested
    below: bool  # found where the value is below the threshold, not above
    rule: str
    finding: str
    against: str  # evidence against the finding; "" if there is none
    evidence: str  # "literature" or "heuristic"
    source: str
    mitigation: str
    measure: str  # how to measure what is missing; "" if nothing is missing
    usual: str  # the check's value in released models of the kind; "" if not known
    heads: List[Tuple[int, int, float]]  # (layer, head, value), the clearest first
    causes: List["Cause"]  # what may be behind an alarm that was found


@dataclasses.dataclass(frozen=True)
class Cause:
    """A hypothesis on a finding, with the evidence that the profiles hold."""
    name: str  # "overfitting"
    supports: str  # "" if nothing was measured that speaks for it
    against: str
    command: str  # what would tell it from the other causes


# Names that earlier versions had.
_EARLIER = {"fair": "normalized", "nosink": "entropy_nosink", "diagonal": "self", "diagonal_top": "self_top"}


def _index(name: str, names: Tuple[str, ...], what: str) -> int:
    if name not in names:
        name = _EARLIER.get(name, name)
    if name not in names:
        raise Error(f"there is no {what} {name!r}; there are {', '.join(names)}")
    return names.index(name)


def _bytes(value: Optional[str]) -> Optional[bytes]:
    return None if value is None else value.encode()


class _Mean:
    """A property of Profile: the mean of a quantity for every head."""

    def __init__(self, quantity: str, doc: str):
        self.quantity, self.__doc__ = quantity, doc

    def __get__(self, profile: "Profile", owner: Any = None) -> NamedArray:
        return profile.moments(self.quantity) if profile is not None else self  # type: ignore[return-value]


class Profile:
    """The measurements of every head of a model on some text.

        profile = headlight.Profile.load("gpt2.profile")
        profile.entropy                      NamedArray (layer, head), nats
        profile.plot("heads.svg")

    Quantities, each a mean over rows: entropy, normalized (H / ln n), renyi2, varentropy, peak, self_,
    previous, first, entropy_nosink.
    """

    def __init__(self, handle: Handle):
        self._handle = handle

    # ---------------------------------------------------------------- files

    @classmethod
    def load(cls, path: Path) -> "Profile":
        return cls(Handle.open("hl_profile_free", "hl_profile_load", path_bytes(path)))

    @classmethod
    def from_maps(cls, path: Path, *, scores: bool = False, mask: str = "auto", seed: int = 0,
                  n_threads: int = 0) -> "Profile":
        """Measures attention that another program stored: (layer, batch, head, query, key) in a
        .safetensors or .npy file (hl_measure_maps).  mask: "auto", "causal" or "full"."""
        options = s.MapsOptions(scores, _index(mask, ("auto", "causal", "full"), "mask"), seed,
                                n_threads)
        return cls(Handle.open("hl_profile_free", "hl_measure_maps", path_bytes(path),
                               c.byref(options)))

    def save(self, path: Path) -> None:
        call("hl_profile_write", self._handle.pointer, path_bytes(path))

    def to_bytes(self) -> bytes:
        """The contents of the file that save() writes."""
        with tempfile.TemporaryDirectory(prefix="headlight-") as folder:
            path = os.path.join(folder, "profile")
            self.save(path)
            with open(path, "rb") as file:
                return file.read()

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "profile") -> "Profile":
        return cls(Handle.open("hl_profile_free", "hl_profile_parse", data, len(data), where.encode()))

    def __reduce__(self) -> Any:
        return (Profile.from_bytes, (self.to_bytes(),))

    def _repr_html_(self) -> str:
        """The report, inline: headlight.show(profile) has its options."""
        from ._command import show
        return show(self)._repr_html_()

    def _repr_svg_(self) -> str:
        """The heatmap, where HTML is not shown."""
        from ._command import svg_of
        return svg_of(self)

    def merge(self, *others: "Profile") -> "Profile":
        """Adds profiles of other parts of the text to this one, and returns it.  Raises Error for a
        profile of another model or one that was measured in another way; that profile is not added."""
        for other in others:
            call("hl_profile_merge", self._handle.pointer, other._handle.pointer)
        return self

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return (f"Profile of {self.setting('family') or 'a model'}: {self.n_layers} layers, "
                f"{self.n_heads} heads, {self.n_tokens} tokens")

    # -------------------------------------------------------------- numbers

    def _get(self, name: str, *arguments: Any) -> Any:
        return getattr(library(), name)(self._handle.pointer, *arguments)

    def setting(self, key: str) -> Optional[str]:
        """A setting of the measurement: "model", "context", "seed" ...; None if it is not recorded."""
        found = self._get("hl_profile_setting", key.encode())
        return None if found is None else text(found)

    @property
    def n_layers(self) -> int:
        return int(self._get("hl_profile_n_layers"))

    @property
    def n_heads(self) -> int:
        """The largest number of heads in any layer."""
        return int(self._get("hl_profile_n_heads"))

    @property
    def n_tokens(self) -> int:
        return int(self._get("hl_profile_n_tokens"))

    @property
    def n_sequences(self) -> int:
        """The number of measured sequences."""
        return int(self._get("hl_profile_all_sequences"))

    @property
    def layer_names(self) -> List[str]:
        """(layer) "L0", "L1" ...; "E0", "L0" and "X0" for the encoder, the decoder and cross-attention
        of an encoder-decoder, "V0" and "A0" for towers of images and sound."""
        names = self.setting("layers")
        return names.split(" ") if names else [f"L{layer}" for layer in range(self.n_layers)]

    def head_name(self, layer: int, head: int) -> str:
        """"L3H1"; "E3H1" or "X3H1" in a model with several sets of heads."""
        return f"{self.layer_names[layer]}H{head}"

    @property
    def heads(self) -> np.ndarray:
        """(layer) number of heads."""
        return np.array([self._get("hl_profile_heads_of", layer)
                         for layer in range(self.n_layers)], dtype=np.int64)

    def _per_head(self, name: str, value: Callable[[int, int], Any], *more: Tuple[str, int],
                  dtype: Any = np.float64) -> NamedArray:
        """(layer, head, ...) from a function of both; NaN, or 0 for counts, for heads that a layer
        lacks."""
        shape = (self.n_layers, self.n_heads, *(n for _, n in more))
        out = np.full(shape, math.nan if dtype == np.float64 else 0, dtype=dtype)
        for layer, n_heads in enumerate(self.heads):
            for head in range(n_heads):
                out[layer, head] = value(layer, head)
        return NamedArray(out, ("layer", "head", *(dim for dim, _ in more)), name)

    def moments(self, quantity: str, statistic: str = "mean") -> NamedArray:
        """(layer, head): count, mean, variance, min or max of a quantity over rows."""
        which = _index(quantity.rstrip("_"), s.QUANTITIES, "quantity")
        _index(statistic, _STATISTICS, "statistic")
        return self._per_head(quantity, lambda layer, head: getattr(
            self._get("hl_profile_moments", layer, head, which), statistic))

    entropy = _Mean("entropy", "(layer, head) nats")
    normalized = _Mean("normalized", "(layer, head) H / ln n, of rows that see at least 16 keys")
    renyi2 = _Mean("renyi2", "(layer, head) nats")
    varentropy = _Mean("varentropy", "(layer, head)")
    peak = _Mean("peak", "(layer, head) largest probability")
    self_ = _Mean("self", "(layer, head) on the own position")
    previous = _Mean("previous", "(layer, head)")
    first = _Mean("first", "(layer, head) on the first key")
    entropy_nosink = _Mean("entropy_nosink", "(layer, head) entropy over the keys other than the first, nats")
    fair = property(lambda self: self.normalized, doc="`normalized`, by its earlier name")
    nosink = property(lambda self: self.entropy_nosink, doc="`entropy_nosink`, by its earlier name")

    @property
    def broken(self) -> NamedArray:
        """(layer, head) number of rows with a NaN or an infinity."""
        return self._per_head("broken", lambda *at: self._get("hl_profile_broken", *at),
                              dtype=np.int64)

    @property
    def output_norm(self) -> NamedArray:
        """(layer, head) output norm relative to the layer's mean."""
        return self._per_head("output_norm", lambda *at: self._get("hl_profile_output_norm", *at))

    @property
    def recall(self) -> NamedArray:
        """(layer, head) share of the full softmax's mass on the keys that an indexer chose (sparse attention); NaN without one."""
        return self._per_head("recall", lambda *at: self._get("hl_profile_recall", *at).mean)

    @property
    def block_influence(self) -> NamedArray:
        """(layer) mean of 1 - cos(in, out) of the block."""
        values = [self._get("hl_profile_block_influence", layer) for layer in range(self.n_layers)]
        return NamedArray(values, ("layer",), "block_influence")

    @property
    def nll(self) -> float:
        """Loss in nats per token; NaN if it was not measured or if there are broken_losses."""
        found = self._get("hl_profile_nll")
        return found.mean if found.count else math.nan

    @property
    def broken_losses(self) -> int:
        """The number of tokens whose loss is not finite."""
        return int(self._get("hl_profile_broken_losses"))

    def histogram(self, name: str = "normalized") -> NamedArray:
        """(layer, head, bin) counts in 64 bins over [0, 1]: "normalized", "normalized_nosink" or
        "peak"."""
        which = _index(name, s.HISTOGRAMS, "histogram")
        return self._per_head(name, lambda *at: self._get("hl_profile_histogram", *at,
                                                          which)[:s.N_BINS],
                              ("bin", s.N_BINS), dtype=np.int64)

    def by_position(self, quantity: str = "entropy") -> NamedArray:
        """(layer, head, bucket) means; bucket b holds positions 2^b - 1 to 2^(b+1) - 2."""
        which = _index(quantity, ("entropy", "normalized"), "quantity by position")
        n = self._get("hl_profile_n_buckets")
        return self._per_head(quantity, lambda *at: [
            self._get("hl_profile_by_position", *at, bucket, which).mean for bucket in range(n)],
            ("bucket", n))

    @property
    def types(self) -> List[str]:
        """The names of the token types: "prompt", "special" ..."""
        return [text(self._get("hl_profile_type_name", i))
                for i in range(self._get("hl_profile_n_types"))]

    def by_type(self, quantity: str = "entropy") -> NamedArray:
        """(layer, head, type) means over rows of that type."""
        which = _index(quantity, ("entropy", "normalized", "renyi2"), "quantity by type")
        n = self._get("hl_profile_n_types")
        return self._per_head(quantity, lambda *at: [
            self._get("hl_profile_by_type", *at, kind, which).mean for kind in range(n)],
            ("type", n))

    @property
    def lookback(self) -> NamedArray:
        """(layer, head, from, to) share of attention that rows of type `from` give to keys of type
        `to`."""
        n = self._get("hl_profile_n_types")
        return self._per_head("lookback", lambda *at: [
            [self._get("hl_profile_lookback", *at, a, b) for b in range(n)] for a in range(n)],
            ("from", n), ("to", n))

    def pattern(self, metric: str, nosink: bool = False) -> NamedArray:
        """(layer, head) means over sampled rows: self, previous, band, sink ..."""
        which = _index(metric, s.PATTERN_METRICS, "metric")
        return self._per_head(metric, lambda *at: self._get("hl_profile_pattern", *at, which,
                                                            nosink).mean)

    def probe(self, name: str = "induction") -> NamedArray:
        """(layer, head) score on a repeated random sequence; NaN if the probe was not run."""
        which = _index(name, s.PROBES, "probe")
        return self._per_head(name, lambda *at: self._get("hl_profile_probe", *at, which))

    @property
    def similarity(self) -> NamedArray:
        """(layer, head, other) 1 - mean total variation between the rows of two heads."""
        n, heads = self.n_heads, self.heads
        return self._per_head("similarity", lambda layer, head: [
            self._get("hl_profile_similarity", layer, head, other) if other < heads[layer]
            else math.nan for other in range(n)], ("other", n))

    def sequence_means(self, quantity: str = "entropy") -> NamedArray:
        """(sequence, layer, head) means of each sequence that the profile keeps for confidence intervals,
        which are by Student's t over sequences or documents (doc/intervals.md). Profiles of earlier
        versions have only entropy, normalized and entropy_nosink; the others are NaN."""
        which = _index(quantity, s.QUANTITIES, "quantity")
        n = self._get("hl_profile_n_sequences")
        out = np.full((n, self.n_layers, self.n_heads), math.nan)
        for layer, n_heads in enumerate(self.heads):
            for head in range(n_heads):
                out[:, layer, head] = [self._get("hl_profile_sequence_mean", i, layer, head, which)
                                       for i in range(n)]
        return NamedArray(out, ("sequence", "layer", "head"), quantity)

    # --------------------------------------------------------------- tables

    def columns(self) -> Dict[str, np.ndarray]:
        """A Table with one row per head: layer, head and the mean of every quantity."""
        there = [(layer, head) for layer, n in enumerate(self.heads) for head in range(n)]
        at = tuple(np.array(there, dtype=np.int64).reshape(-1, 2).T)
        out = {"layer": at[0], "head": at[1]}
        for quantity in s.QUANTITIES:
            out[quantity] = self.moments(quantity).values[at]
        return out

    def to_pandas(self) -> Any:
        """columns() as a pandas.DataFrame, if pandas is installed."""
        return optional("pandas", "to_pandas").DataFrame(self.columns())

    def to_xarray(self) -> Any:
        """Every quantity over (layer, head) as an xarray.Dataset, if xarray is installed."""
        xarray = optional("xarray", "to_xarray")
        arrays = {quantity: self.moments(quantity) for quantity in s.QUANTITIES}
        return xarray.Dataset({name: (array.dims, array.values) for name, array in arrays.items()})

    def analyze(self, name: str, *, seed: int = 0, n_extremes: int = 0) -> Table:
        """One of the tables of `headlight show --table`; analyses() has their names."""
        options = s.AnalysisOptions(seed, n_extremes)
        with Handle.open("hl_sheet_free", "hl_analyze", self._handle.pointer, name.encode(),
                         c.byref(options)) as sheet:
            return _read_sheet(sheet.pointer)

    # ------------------------------------------------- diagnoses and figures

    def diagnose(self, before: Optional["Profile"] = None,
                 thresholds: Optional[Dict[str, float]] = None,
                 training: Optional["Profile"] = None) -> List[Diagnosis]:
        """Alarms and observations.  before: the same model's profile at an earlier time.
        training: its profile on the training text, to detect overfitting.
        thresholds: {"collapse-share": 0.2 ...}, else the defaults."""
        limits = library().hl_thresholds_default()
        for name, value in (thresholds or {}).items():
            call("hl_threshold_set", c.byref(limits), name.encode(), value)
        found = c.POINTER(s.Diagnoses)()
        call("hl_diagnose", c.byref(found), self._handle.pointer,
             before._handle.pointer if before is not None else None, c.byref(limits))
        try:
            if training is not None:
                call("hl_diagnose_training", found, self._handle.pointer,
                     training._handle.pointer)
            return [_read_diagnosis(item) for item in found.contents.items]
        finally:
            library().hl_diagnoses_free(found)

    def plot(self, path: Path, figure: str = "heatmap", *, title: Optional[str] = None,
             caption: Optional[str] = None, theme: str = "light", unit: str = "nats",
             scale: str = "continuous", width: float = 0, dpi: float = 0, seed: int = 0,
             pruned: Optional[str] = None, candidates: Optional[str] = None,
             n_candidates: int = 0, candidates_by: str = "output-norm") -> None:
        """Draws a figure as .svg, .png or .pdf, by the extension of the path; figures() has the names.

        theme: "light", "dark"; unit: "nats", "bits", "normalized"; scale: "continuous", "classes";
        width in points; pruned, candidates: heads to mark, "L5H1,L7"; n_candidates: mark the first
        heads in pruning order instead, by candidates_by: "output-norm", lowest first, or "entropy",
        highest first, which cost more than a random order in doc/sweep.md."""
        options = s.DrawOptions(_bytes(title), _bytes(caption), _index(theme, s.THEMES, "theme"),
                                _index(unit, s.UNITS, "unit"), _index(scale, s.SCALES, "scale"),
                                width, dpi, seed, _bytes(pruned), _bytes(candidates), n_candidates,
                                bool(_index(candidates_by, ("output-norm", "entropy"),
                                            "ranker of candidates")))
        call("hl_draw", self._handle.pointer, figure.encode(), path_bytes(path), c.byref(options))


def _read_sheet(sheet: int) -> Table:
    lib = library()
    n_rows = lib.hl_sheet_n_rows(sheet)
    columns: Dict[str, Any] = {}
    for column in range(lib.hl_sheet_n_columns(sheet)):
        kind = s.COLUMN_TYPES[lib.hl_sheet_column_type(sheet, column)]
        if kind in ("text", "list"):
            values: Any = [text(lib.hl_sheet_text(sheet, row, column)) for row in range(n_rows)]
        else:
            values = np.array([lib.hl_sheet_number(sheet, row, column) for row in range(n_rows)])
            if kind != "real" and not np.isnan(values).any():  # some values were not measured
                values = values.astype(np.int64 if kind == "int" else np.bool_)
        columns[text(lib.hl_sheet_column_name(sheet, column))] = values
    return Table(text(lib.hl_sheet_name(sheet)), text(lib.hl_sheet_title(sheet)), columns)


def _read_diagnosis(found: s.Diagnosis) -> Diagnosis:
    names = ("name", "unit", "rule", "finding", "against", "usual", "evidence", "source",
             "mitigation", "measure")
    causes = [Cause(text(at.name), text(at.supports), text(at.against), text(at.command))
              for at in found.causes[:found.n_causes]]
    heads = [(at.layer, at.head, at.value) for at in found.heads[:found.n_heads]]
    return Diagnosis(kind=s.CHECK_KINDS[found.kind], verdict=s.VERDICTS[found.verdict],
                     value=found.value, threshold=found.threshold, errors=found.errors,
                     below=found.below, heads=heads, causes=causes,
                     **{name: text(getattr(found, name)) for name in names})


def _names(function: str) -> List[str]:
    out: List[str] = []
    while (name := getattr(library(), function)(len(out))) is not None:
        out.append(text(name))
    return out


def analyses() -> List[str]:
    """The names of the tables that Profile.analyze makes."""
    return _names("hl_analysis_name")


def default_thresholds() -> Dict[str, float]:
    """The default thresholds of Profile.diagnose, by name: {"collapse-share": ...}."""
    return dict(zip(_names("hl_threshold_name"), library().hl_thresholds_default().values))


def figures() -> List[str]:
    """The names of the figures that Profile.plot draws."""
    return _names("hl_figure_name")
