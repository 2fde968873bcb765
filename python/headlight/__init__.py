"""headlight: what every attention head of a transformer looks at, and how sharply.

    import headlight

    found = headlight.attention(q, k, v, causal=True)       numpy, PyTorch, CuPy ...
    found.out, found.entropy                                no attention matrix is ever made

    with headlight.open("models/demo") as model:
        profile = model.measure(files="book.txt")
        print(profile.entropy.sel(layer=3))
        profile.plot("heads.svg")

Needs numpy and libheadlight.so.  headlight.torch and headlight.transformers are imported only when
asked for.
"""
from typing import Any, List, Optional

from ._attention import (Attention, Gradients, attention, attention_backward, attention_received,
                         compute_attention_entropy)
from ._library import Error, library, text as _text
from ._model import (Evaluation, Frontier, FrontierPoint, Generation, Model, ModelInfo, Progress,
                     Token)
from ._model import open_model as open
from ._named import NamedArray, Table
from ._profile import Diagnosis, Profile, analyses, default_thresholds, figures

__all__ = ["Attention", "Diagnosis", "Error", "Evaluation", "Frontier",
           "FrontierPoint", "Generation", "Gradients", "Model",
           "ModelInfo", "NamedArray", "Profile", "Progress", "Table", "Token", "analyses",
           "attention", "attention_backward", "attention_received", "backend", "backends", "compute_attention_entropy",
           "default_thresholds", "figures", "open", "select_backend", "version"]


def version() -> str:
    """The library's version."""
    return _text(library().hl_version())


def __getattr__(name: str) -> Any:
    if name == "__version__":  # read from the library, which is opened when it is first needed
        return version()
    raise AttributeError(f"module 'headlight' has no attribute {name!r}")


def backends() -> List[str]:
    """The names of the back ends that this CPU can run, the preferred one last."""
    names, out = library().hl_backend_names(), []
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
