"""The `headlight` command, from Python: found, run, and its JSON as arrays with names.

    headlight.rank(profile)["name"][:5]                      heads in pruning order
    headlight.compare(before, after).tables["heads"]         a Table; .to_pandas()
    headlight.lens("models/demo", "Alice was").top           (layer, token)

Models are paths or headlight.Model; profiles are paths or headlight.Profile; texts are files, or str
that end up in a temporary file.  Options are those of the command, with _ for -: max_tokens=1000.
device="cuda", math="bf16", seed=1 and threads=4 are options of every function.
"""
from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

import numpy as np

from ._library import Error, library
from ._model import Model
from ._named import NamedArray, Table
from ._profile import Profile

ModelLike = Union[str, "os.PathLike[str]", Model]
ProfileLike = Union[str, "os.PathLike[str]", Profile]
TextLike = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
_STATUS = {2: "bad argument", 3: "bad input", 4: "no memory"}

# ------------------------------------------------------------------------- running


def find_command() -> str:
    """The path of the command: $HEADLIGHT_COMMAND, beside this package, in build/ of a checkout, beside
    the library, or in $PATH."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.environ.get("HEADLIGHT_COMMAND"), os.path.join(here, "headlight-command"),
              os.path.join(here, "..", "..", "build", "headlight")]
    with contextlib.suppress(Error):
        places.append(os.path.join(os.path.dirname(library()._name), "headlight"))
    for place in places:
        if place and os.access(place, os.X_OK) and os.path.isfile(place):
            return os.path.abspath(place)
    found = shutil.which("headlight")
    if found is not None and os.path.realpath(found) != os.path.realpath(sys.argv[0]):
        return found
    raise Error("the headlight command was not found: `make` builds it, HEADLIGHT_COMMAND=FILE names it",
                "not found")


def _options(options: Dict[str, Any]) -> List[str]:
    out: List[str] = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            out.append(flag)
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            out += [flag, os.fspath(one) if isinstance(one, os.PathLike) else str(one)]
    return out


def run(*arguments: Any, **options: Any) -> str:
    """Runs a command and returns what it prints.

        headlight.run("info", "models/demo")

    An exit status of 2 or more is an Error with the command's message; 1, a check that failed, is not."""
    found = [find_command(), *(os.fspath(one) if isinstance(one, os.PathLike) else str(one)
                               for one in arguments), *_options(options)]
    done = subprocess.run(found, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        message = done.stderr.decode("utf-8", "replace").strip()
        raise Error(message or f"headlight {arguments[0]} ended with status {done.returncode}",
                    _STATUS.get(done.returncode, "internal"))
    return done.stdout.decode("utf-8", "replace")


def run_json(*arguments: Any, **options: Any) -> Any:
    """run(..., json=True), read."""
    return json.loads(run(*arguments, **options, json=True))


@contextlib.contextmanager
def _paths() -> Iterator[Any]:
    """A function that makes a path of a model, a profile or a text, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="headlight-") as folder:
        count = 0

        def path_of(thing: Any, is_text: bool = False) -> Any:
            nonlocal count
            count += 1
            if isinstance(thing, Model):
                return thing.path
            if isinstance(thing, Profile):
                path = os.path.join(folder, f"{count}.profile")
                thing.save(path)
                return path
            if is_text and isinstance(thing, (list, tuple)):
                return [path_of(one, True) for one in thing]
            if is_text and isinstance(thing, str) and not os.path.exists(thing):
                path = os.path.join(folder, f"{count}.txt")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(thing)
                return path
            return thing
        yield path_of


# ------------------------------------------------------------------------- results


def table_of(found: Dict[str, Any]) -> Table:
    """A table of the command's JSON: numbers as float64 (NaN for null) or int64, the rest as lists."""
    rows = found["rows"]
    columns: Dict[str, Any] = {}
    for name in rows[0] if rows else ():
        values = [row.get(name) for row in rows]
        if all(isinstance(value, bool) for value in values):
            columns[name] = np.array(values)
        elif all(isinstance(value, int) for value in values):
            columns[name] = np.array(values, dtype=np.int64)
        elif all(isinstance(value, (int, float, type(None))) for value in values):
            columns[name] = np.array([np.nan if value is None else value for value in values])
        else:
            columns[name] = values
    return Table(found.get("table", ""), found.get("title", ""), columns)


@dataclasses.dataclass
class Tables:
    """The tables of a command by name, its other facts, and all of its JSON."""
    tables: Dict[str, Table]
    facts: Dict[str, Any]
    json: Dict[str, Any]

    def __getitem__(self, name: str) -> Table:
        return self.tables[name]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} ({len(table)})" for name, table in self.tables.items())
        return f"Tables: {shown}"


def _tables(found: Dict[str, Any]) -> Tables:
    named = {**found, **found.get("tables", {})}
    tables = {name: table_of(one) for name, one in named.items() if isinstance(one, dict) and "rows" in one}
    return Tables(tables, {name: value for name, value in found.items() if name not in ("tables", *tables)},
                  found)


@dataclasses.dataclass
class Lens:
    """What a model would predict after each layer.  Row 0 is before the first block."""
    tokens: List[str]
    layers: List[Optional[int]]
    top: NamedArray  # (layer, token) the most likely next token
    text: List[List[str]]  # `top` as text
    entropy: NamedArray  # (layer, token) of the prediction, nats


@dataclasses.dataclass
class TokenMaps:
    """Where each token of a prompt looks."""
    tokens: List[str]
    names: List[str]  # of the maps: "L3H1", or "all heads"
    attention: NamedArray  # (map, query, key); 0 for keys that are not visible
    entropy: NamedArray  # (map, query)


# ------------------------------------------------------------------------ commands


def compare(a: Union[ProfileLike, ModelLike], b: Union[ProfileLike, ModelLike], **options: Any) -> Tables:
    """Two profiles, or two models on text=, head by head: `headlight compare`."""
    with _paths() as path:
        if "text" in options:
            options["text"] = path(options["text"], True)
        return _tables(run_json("compare", path(a), path(b), **options))


def rank(profile: Optional[ProfileLike] = None, *, model: Optional[ModelLike] = None,
         text: Optional[TextLike] = None, by: str = "auto", **options: Any) -> Table:
    """Heads in pruning order: `headlight rank`.  Columns: rank, name, layer, head, score."""
    with _paths() as path:
        given = [] if profile is None else [path(profile)]
        return table_of(run_json("rank", *given, by=by, model=None if model is None else path(model),
                                 text=None if text is None else path(text, True), **options))


def sweep(model: ModelLike, rank_text: TextLike, test_text: TextLike, **options: Any) -> Tables:
    """What disabling heads costs, for every ranker: `headlight sweep`."""
    with _paths() as path:
        return _tables(run_json("sweep", path(model), rank_text=path(rank_text, True),
                                test_text=path(test_text, True), **options))


def lens(model: ModelLike, prompt: str, **options: Any) -> Lens:
    """What the model would predict after each layer of a prompt: `headlight lens`."""
    with _paths() as path:
        found = run_json("lens", path(model), prompt, **options)
    rows = found["lens"]
    return Lens([token["text"] for token in found["tokens"]], [row["layer"] for row in rows],
                NamedArray([row["top"] for row in rows], ("layer", "token"), "top"),
                [row["text"] for row in rows],
                NamedArray([[np.nan if x is None else x for x in row["entropy"]] for row in rows],
                           ("layer", "token"), "entropy"))


def tokens(model: ModelLike, prompt: str, *, heads: Optional[str] = None, **options: Any) -> TokenMaps:
    """Which token of a prompt looks at which: `headlight tokens`.  heads: "L3H1,L5": their mean."""
    with _paths() as path:
        found = run_json("tokens", path(model), prompt, heads=heads, **options)
    n = len(found["tokens"])
    maps = np.zeros((len(found["maps"]), n, n))
    for at, one in enumerate(found["maps"]):
        for row, values in enumerate(one["attention"]):
            maps[at, row, :len(values)] = [np.nan if x is None else x for x in values]
    entropy = [[np.nan if x is None else x for x in one["entropy"]] for one in found["maps"]]
    return TokenMaps([token["text"] for token in found["tokens"]], [one["name"] for one in found["maps"]],
                     NamedArray(maps, ("map", "query", "key"), "attention"),
                     NamedArray(entropy, ("map", "query"), "entropy"))


def report(*profiles: ProfileLike, out: Optional[Union[str, "os.PathLike[str]"]] = None,
           model: Optional[ModelLike] = None, prompt: Optional[str] = None, **options: Any) -> "Page":
    """The interactive HTML page of profiles, or of a prompt: `headlight report`.  Shown inline in a
    notebook; out: a file to write it to as well."""
    with _paths() as path, tempfile.TemporaryDirectory(prefix="headlight-") as folder:
        file = os.path.join(folder, "report.html")
        run("report", *(path(one) for one in profiles), output=file, quiet=True,
            model=None if model is None else path(model), prompt=prompt, **options)
        with open(file, encoding="utf-8") as found:
            page = Page(found.read())
    if out is not None:
        with open(out, "w", encoding="utf-8") as found:
            found.write(page.html)
    return page


def judge(traces: Union[str, Sequence[Any]], labels: Any, **options: Any) -> Tables:
    """Whether the signals of traces separate right from wrong: `headlight judge`."""
    several = [traces] if isinstance(traces, (str, os.PathLike)) else list(traces)
    return _tables(run_json("judge", *several, labels, **options))


def head(profile: ProfileLike, name: str, *, model: Optional[ModelLike] = None,
         text: Optional[TextLike] = None, **options: Any) -> Tables:
    """The card of one head, "L3H1": type, numbers with their ranks, similar heads; with a model, examples
    and the loss without it.  `headlight head`."""
    with _paths() as path:
        return _tables(run_json("head", path(profile), name, model=None if model is None else path(model),
                                text=None if text is None else path(text, True), **options))


def needle(model: ModelLike, text: Optional[TextLike] = None, **options: Any) -> Tables:
    """Retrieval scores of every head, and the loss by length and depth: `headlight needle`."""
    with _paths() as path:
        return _tables(run_json("needle", path(model), *([] if text is None else [path(text, True)]),
                                **options))


def damage(reference: ModelLike, model: ModelLike, text: TextLike, **options: Any) -> Tables:
    """Which heads a quantized or fine-tuned model lost, by patching them back: `headlight damage`."""
    with _paths() as path:
        return _tables(run_json("damage", path(reference), path(model), text=path(text, True), **options))


def summary(profile: ProfileLike) -> List[str]:
    """The sentences that `headlight show` begins with."""
    with _paths() as path:
        return [one["text"] for one in run_json("show", path(profile))["summary"]]


def watch(folder: Any, texts: TextLike, *, series: Any, **options: Any) -> List[Dict[str, Any]]:
    """Measures every checkpoint in a folder once: `headlight watch --once`.  Returns the lines of the
    series, one per checkpoint."""
    with _paths() as path:
        found = path(texts, True)
        run("watch", folder, *(found if isinstance(found, list) else [found]), series=series, once=True,
            quiet=True, **options)
    with open(series, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def rows(model: ModelLike, texts: TextLike, **options: Any) -> Dict[str, NamedArray]:
    """Statistics of every row: {"entropy": (layer, window, head, row), ..., "tokens": (window, row)}; NaN
    where a row does not define one.  `headlight measure --rows`."""
    with _paths() as path, tempfile.TemporaryDirectory(prefix="headlight-") as folder:
        file, found = os.path.join(folder, "rows.safetensors"), path(texts, True)
        run("measure", path(model), *(found if isinstance(found, list) else [found]), rows=file,
            output=os.path.join(folder, "a.profile"), quiet=True, **options)
        tensors = read_safetensors(file)
    dims = {4: ("layer", "window", "head", "row"), 2: ("window", "row"), 1: ("window",)}
    return {name: NamedArray(value, dims[value.ndim], name) for name, value in tensors.items()}


_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32,
           "U8": np.uint8, "BOOL": np.bool_}


def read_safetensors(path: str) -> Dict[str, np.ndarray]:
    """The tensors of a file that headlight wrote."""
    with open(path, "rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(n_header))
        data = file.read()
    out = {}
    for name, one in header.items():
        if name != "__metadata__":
            begin, end = one["data_offsets"]
            out[name] = np.frombuffer(data[begin:end], _DTYPES[one["dtype"]]).reshape(one["shape"]).copy()
    return out


# ------------------------------------------------------------------------ notebooks


class Page:
    """An HTML page of headlight's, shown inline in a notebook: an iframe whose contents are in the cell,
    without a network.  Where HTML is not shown, `svg` is, if there is one."""

    def __init__(self, html: str, svg: Optional[str] = None, height: int = 720):
        self.html, self.svg, self.height = html, svg, height

    def _repr_html_(self) -> str:
        from html import escape
        return (f'<iframe srcdoc="{escape(self.html, quote=True)}" sandbox="allow-scripts allow-downloads" '
                f'style="width: 100%; height: {self.height}px; border: 0" title="headlight"></iframe>')

    def _repr_svg_(self) -> Optional[str]:
        return self.svg

    def save(self, path: Any) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __repr__(self) -> str:
        return f"Page: {len(self.html)} bytes of HTML; save(path) writes it"


def svg_of(profile: Profile, figure: str = "heatmap", **options: Any) -> str:
    """A figure as SVG text, for places that show no HTML."""
    with tempfile.TemporaryDirectory(prefix="headlight-") as folder:
        path = os.path.join(folder, "figure.svg")
        profile.plot(path, figure, **options)
        with open(path, encoding="utf-8") as file:
            return file.read()


def show(thing: Any, text: Optional[str] = None, tokenizer: Any = None, **options: Any) -> Page:
    """One line for a notebook.

        headlight.show(profile)                          heads, layers, diagnoses
        headlight.show("models/demo", "Alice was")       attention maps and lens of a prompt
        headlight.show(model, "Alice was", tokenizer)    a PyTorch model, measured on that text
    """
    if isinstance(thing, Profile):
        page = report(thing, **options)
        page.svg = svg_of(thing)
        return page
    if text is None:
        if isinstance(thing, (str, os.PathLike)) and os.path.isfile(thing):
            return show(Profile.load(thing), **options)
        raise Error("show: a text is wanted beside a model")
    from ._measure import measure
    if hasattr(thing, "named_modules"):
        return show(measure(thing, tokenizer, text), **options)
    with contextlib.ExitStack() as stack:
        model = thing if isinstance(thing, Model) else stack.enter_context(Model(thing))
        profile = model.measure(text, probe=False)
        page = report(profile, model=model, prompt=text, **options)
        page.svg = svg_of(profile)
        return page
