"""headlight: what every attention head of a transformer looks at, and how sharply.

    import headlight

    found = headlight.attention(q, k, v, causal=True)       numpy, PyTorch, CuPy ...
    found.out, found.entropy                                no attention matrix is ever made

    with headlight.open("models/demo") as model:
        profile = model.measure(files="book.txt")
        print(profile.entropy.sel(layer=3))
        profile.plot("heads.svg")

A child that a process forks after it has used the library, as multiprocessing does by default on Linux,
may use it too.  CUDA cannot be used in a forked child; multiprocessing.set_start_method("spawn") can.

Needs numpy and libheadlight.so.  headlight.torch and headlight.transformers are imported only when
asked for.
"""
from typing import Any, List, Optional

from ._attention import (Attention, Gradients, attention, attention_backward, attention_received,
                         compute_attention_entropy)
from ._command import (Lens, Page, Tables, TokenMaps, compare, damage, head, judge, lens, needle, rank, report,
                       rows, run, show, summary, sweep, tokens, watch)
from ._library import Error, FileError, InputError, UnsupportedError, library, text as _text
from ._measure import measure, merge_ranks
from ._model import (Evaluation, Frontier, FrontierPoint, Generation, Model, ModelInfo, Progress,
                     Token)
from ._model import open_model as open
from ._named import NamedArray, Table
from ._profile import Diagnosis, Profile, analyses, default_thresholds, figures

__all__ = ["Attention", "Diagnosis", "Error", "Evaluation", "FileError", "Frontier", "FrontierPoint",
           "Generation", "Gradients", "InputError", "Lens", "Model", "ModelInfo", "NamedArray", "Page",
           "Profile", "Progress", "Table", "Tables", "Token", "TokenMaps", "UnsupportedError", "analyses",
           "attention", "attention_backward", "attention_received", "backend", "backends", "compare",
           "compute_attention_entropy", "damage",
           "default_thresholds", "figures", "head", "judge", "lens", "measure", "merge_ranks", "needle", "open", "prune",
           "rank", "report", "rows", "run", "select_backend", "show", "summary", "sweep", "tokens", "version", "watch"]


def prune(model: Any, heads: Any, out: Any = None, **options: Any) -> Any:
    """Removes heads.

        headlight.prune("models/demo", "L0H5,L3H1", "smaller")                 a file: written to `out`
        headlight.prune(model, ["L0H5"], repair=texts, tokenizer=tokenizer)    a PyTorch model, in place

    heads: "L0H5,L3H1" or a list.  For a PyTorch model: headlight.training.prune_in_place, whose options
    these are."""
    if hasattr(model, "named_modules"):
        from .training import prune_in_place
        return prune_in_place(model, heads, **options)
    if out is None:
        raise InputError("out is wanted: where the model without these heads is written")
    if isinstance(model, Model):
        return model.prune(heads, out)
    with Model(model) as opened:
        return opened.prune(heads, out)


def version() -> str:
    """The library's version."""
    return _text(library().hl_version())


def __getattr__(name: str) -> Any:
    if name == "__version__":  # read from the library, which is opened when it is first needed
        return version()
    raise AttributeError(f"module 'headlight' has no attribute {name!r}")


def backends() -> List[str]:
    """The names of the back ends that this CPU can run, the preferred one last."""
    out: List[str] = []
    names = library().hl_backend_names()
    while names[len(out)] is not None:
        out.append(_text(names[len(out)]))
    return out


def backend() -> str:
    """The name of the back end in use."""
    return _text(library().hl_backend_name())


def select_backend(name: Optional[str]) -> None:
    """Switches to another back end; None: choose automatically again."""
    from ._library import call
    call("hl_backend_select", None if name is None else name.encode())
