"""Finds libheadlight.so, declares its functions, and turns its failures into Error.

The library is looked for in this order:

    $HEADLIGHT_LIBRARY             a file; if set, no other place is tried
    beside this package            `pip install .` puts it there
    build/ of a checkout           `make` puts it there
    the loader's folders           libheadlight.so.0, from `make install`

It is opened when it is first needed, so that `import headlight` works without it.  All calls go through
ctypes.CDLL, which releases the interpreter's lock while they run.
"""
from __future__ import annotations

import ctypes as c
import functools
import os
import pathlib
from typing import Any, Callable, Dict, List, NoReturn

from . import _structs as s

NAME = "libheadlight.so"
MAJOR = 0


class Error(Exception):
    """A call failed.  `status` is the name of its status, such as "bad input"; the text is the message.

    Error(message, status) makes an InputError, which is a ValueError, for arguments and contents that
    are not right; a FileError, which is an OSError, for files; and an UnsupportedError, which is a
    NotImplementedError, for what headlight does not do.
    """

    status: str

    def __new__(cls, message: str = "", status: str = "bad argument") -> "Error":
        kind = _KINDS.get(status, cls) if cls is Error else cls
        make: Any = OSError if issubclass(kind, OSError) else Exception
        return make.__new__(kind, message)  # type: ignore[no-any-return]

    def __init__(self, message: str = "", status: str = "bad argument"):
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> Any:
        return (Error, (str(self), self.status))


class InputError(Error, ValueError):
    """An argument, or the contents of a file, are not right."""


class FileError(Error, OSError):
    """A file does not exist, or cannot be read or written."""


class UnsupportedError(Error, NotImplementedError):
    """What is asked for does not exist in headlight."""


_KINDS = {"bad argument": InputError, "bad input": InputError, "limit": InputError,
          "not found": FileError, "i/o": FileError, "io": FileError, "unsupported": UnsupportedError}


# ------------------------------------------------------------------ signatures

_handle = s.Pointer
_out = c.POINTER(c.c_void_p)
_at = [_handle, c.c_int64, c.c_int64]


def _ref(kind: Any) -> Any:
    return c.POINTER(kind)


# name: (result, arguments)
SIGNATURES = {
    "hl_error_message": (s.Text, []),
    "hl_status_name": (s.Text, [c.c_int]),
    "hl_version": (s.Text, []),
    "hl_build_info": (s.Text, []),
    "hl_backend_names": (c.POINTER(s.Text), []),
    "hl_backend_name": (s.Text, []),
    "hl_backend_select": (s.Status, [s.Text]),
    "hl_attention_forward": (s.Status, [_ref(s.AttentionResult), _ref(s.Attention)]),
    "hl_attention_received": (s.Status, [s.Pointer, _ref(s.Attention), s.Pointer, c.c_int64]),
    "hl_attention_backward": (s.Status, [_ref(s.AttentionGradient), _ref(s.Attention),
                                         _ref(s.AttentionUpstream)]),
    "hl_free": (None, [s.Pointer]),
    # models and tokenizers
    "hl_model_open": (s.Status, [_out, s.Text]),
    "hl_model_close": (None, [_handle]),
    "hl_model_get_info": (_ref(s.ModelInfo), [_handle]),
    "hl_model_set_gates": (s.Status, [_handle, s.Pointer]),
    "hl_model_set_device": (s.Status, [_handle, s.Text]),
    "hl_model_hash": (s.Status, [_ref(c.c_uint64), _handle, c.c_int32]),
    "hl_tokenizer_open": (s.Status, [_out, s.Text]),
    "hl_tokenizer_close": (None, [_handle]),
    "hl_tokenizer_special": (c.c_int64, [_handle, c.c_int]),
    "hl_tokenizer_around": (s.AroundTokens, [_handle]),
    "hl_tokenizer_encode": (s.Status, [_ref(_ref(s.Encoding)), _handle, s.Text, s.Size,
                                       _ref(s.EncodeOptions)]),
    "hl_encoding_free": (None, [_ref(s.Encoding)]),
    "hl_tokenizer_decode": (s.Status, [_out, _ref(s.Size), _handle, s.Pointer, s.Size,
                                       _ref(s.DecodeOptions)]),
    "hl_decode_stream_open": (s.Status, [_out, _handle, _ref(s.DecodeOptions)]),
    "hl_decode_stream_push": (s.Status, [_out, _ref(s.Size), _handle, c.c_int64]),
    "hl_decode_stream_finish": (s.Status, [_out, _ref(s.Size), _handle]),
    "hl_decode_stream_close": (None, [_handle]),
    "hl_head_list_parse": (s.Status, [_out, _handle, s.Text]),
    "hl_head_list_free": (None, [_handle]),
    "hl_gates_new": (s.Status, [_ref(_ref(s.Gates)), _handle]),
    "hl_gates_set": (None, [_ref(s.Gates), _handle, c.c_float]),
    "hl_gates_free": (None, [_ref(s.Gates)]),
    # generating and evaluating
    "hl_session_open": (s.Status, [_out, _handle, _ref(s.SessionOptions)]),
    "hl_session_close": (None, [_handle]),
    "hl_generator_open": (s.Status, [_out, _handle, _ref(s.GenerateOptions)]),
    "hl_generator_close": (None, [_handle]),
    "hl_generator_prompt": (s.Status, [_handle, s.Pointer, c.c_int64]),
    "hl_generator_next": (s.Status, [_ref(s.Generated), _handle]),
    "hl_stop_name": (s.Text, [c.c_int]),
    "hl_stop_words_new": (s.Status, [_out, c.POINTER(s.Text), s.Size]),
    "hl_stop_words_free": (None, [_handle]),
    "hl_stop_words_push": (s.Status, [_out, _ref(s.Size), _ref(c.c_bool), _handle, s.Pointer,
                                      s.Size]),
    "hl_stop_words_finish": (s.Status, [_out, _ref(s.Size), _handle]),
    "hl_perplexity_open": (s.Status, [_out, _handle, _ref(s.PerplexityOptions)]),
    "hl_perplexity_close": (None, [_handle]),
    "hl_perplexity_add": (s.Status, [_ref(s.Nll), _handle, _ref(s.ScoredText)]),
    "hl_perplexity_total": (s.Nll, [_handle]),
    # measuring
    "hl_corpus_open": (s.Status, [_out, _handle, _handle, _ref(s.CorpusOptions)]),
    "hl_corpus_close": (None, [_handle]),
    "hl_measure": (s.Status, [_out, _handle, _handle, _handle, _ref(s.MeasureOptions)]),
    "hl_measure_maps": (s.Status, [_out, s.Text, _ref(s.MapsOptions)]),
    "hl_patterns_of": (s.Status, [_ref(_ref(s.Patterns)), _handle, s.Pointer, c.c_int64,
                                  c.c_int32]),
    "hl_patterns_free": (None, [_ref(s.Patterns)]),
    "hl_recorder_open": (s.Status, [_out, _ref(s.RecordOptions)]),
    "hl_recorder_close": (None, [_handle]),
    "hl_recorder_begin": (s.Status, [_handle, _ref(s.RecordWindow)]),
    "hl_recorder_whole_rows": (c.c_int64, [_ref(c.POINTER(c.c_int64)), _handle]),
    "hl_recorder_output_rows": (c.c_int64, [_ref(c.POINTER(c.c_int64)), _handle]),
    "hl_recorder_layer": (s.Status, [_handle, _ref(s.RecordLayer)]),
    "hl_recorder_norms": (s.Status, [_handle, c.c_int64, s.Pointer]),
    "hl_recorder_losses": (s.Status, [_handle, s.Pointer, c.c_int64]),
    "hl_recorder_end": (s.Status, [_handle]),
    "hl_recorder_finish": (s.Status, [_out, _handle]),
    # profiles
    "hl_profile_parse": (s.Status, [_out, s.Pointer, s.Size, s.Text]),
    "hl_profile_load": (s.Status, [_out, s.Text]),
    "hl_profile_write": (s.Status, [_handle, s.Text]),
    "hl_profile_free": (None, [_handle]),
    "hl_profile_merge": (s.Status, [_handle, _handle]),
    "hl_profile_setting": (s.Text, [_handle, s.Text]),
    "hl_profile_n_layers": (c.c_int64, [_handle]),
    "hl_profile_n_heads": (c.c_int64, [_handle]),
    "hl_profile_heads_of": (c.c_int64, [_handle, c.c_int64]),
    "hl_profile_moments": (s.Moments, [*_at, c.c_int]),
    "hl_profile_broken": (c.c_int64, [*_at]),
    "hl_profile_histogram": (c.POINTER(c.c_int64), [*_at, c.c_int]),
    "hl_profile_quantile": (c.c_double, [*_at, c.c_int, c.c_double]),
    "hl_profile_n_buckets": (c.c_int64, [_handle]),
    "hl_profile_by_position": (s.Moments, [*_at, c.c_int64, c.c_int]),
    "hl_profile_n_types": (c.c_int64, [_handle]),
    "hl_profile_type_name": (s.Text, [_handle, c.c_int64]),
    "hl_profile_by_type": (s.Moments, [*_at, c.c_int64, c.c_int]),
    "hl_profile_lookback": (c.c_double, [*_at, c.c_int64, c.c_int64]),
    "hl_profile_pattern": (s.Moments, [*_at, c.c_int, c.c_bool]),
    "hl_profile_similarity": (c.c_double, [*_at, c.c_int64]),
    "hl_profile_probe": (c.c_double, [*_at, c.c_int]),
    "hl_profile_output_norm": (c.c_double, [*_at]),
    "hl_profile_recall": (s.Moments, [*_at]),
    "hl_profile_block_influence": (c.c_double, [_handle, c.c_int64]),
    "hl_profile_nll": (s.Moments, [_handle]),
    "hl_profile_broken_losses": (c.c_int64, [_handle]),
    "hl_profile_n_sequences": (c.c_int64, [_handle]),
    "hl_profile_all_sequences": (c.c_int64, [_handle]),
    "hl_profile_n_tokens": (c.c_int64, [_handle]),
    "hl_profile_sequence_mean": (c.c_double, [_handle, c.c_int64, c.c_int64, c.c_int64, c.c_int]),
    # analyses
    "hl_analysis_name": (s.Text, [s.Size]),
    "hl_analyze": (s.Status, [_out, _handle, s.Text, _ref(s.AnalysisOptions)]),
    "hl_sheet_free": (None, [_handle]),
    "hl_sheet_name": (s.Text, [_handle]),
    "hl_sheet_title": (s.Text, [_handle]),
    "hl_sheet_n_rows": (c.c_int64, [_handle]),
    "hl_sheet_n_columns": (c.c_int64, [_handle]),
    "hl_sheet_column_name": (s.Text, [_handle, c.c_int64]),
    "hl_sheet_column_type": (c.c_int, [_handle, c.c_int64]),
    "hl_sheet_number": (c.c_double, [*_at]),
    "hl_sheet_text": (s.Text, [*_at]),
    "hl_thresholds_default": (s.Thresholds, []),
    "hl_threshold_name": (s.Text, [s.Size]),
    "hl_threshold_set": (s.Status, [_ref(s.Thresholds), s.Text, c.c_double]),
    "hl_diagnose": (s.Status, [_ref(_ref(s.Diagnoses)), _handle, _handle, _ref(s.Thresholds)]),
    "hl_diagnose_training": (s.Status, [_ref(s.Diagnoses), _handle, _handle]),
    "hl_diagnoses_free": (None, [_ref(s.Diagnoses)]),
    "hl_head_list_select": (s.Status, [_ref(_handle), _handle, _handle, s.Text]),
    "hl_head_words_need_profile": (s.Status, [_ref(c.c_bool), _handle, s.Text]),
    "hl_ranker_find": (s.Status, [_ref(c.c_int), s.Text]),
    "hl_ranker_name": (s.Text, [s.Size]),
    "hl_frontier_find": (s.Status, [_ref(_ref(s.Frontier)), _handle, _handle, _handle, _handle,
                                    _ref(s.BudgetOptions)]),
    "hl_frontier_free": (None, [_ref(s.Frontier)]),
    "hl_repair_check": (s.Status, [_handle]),
    "hl_prune_write": (s.Status, [_handle, _handle, _handle, _handle, s.Text]),
    "hl_figure_name": (s.Text, [s.Size]),
    "hl_draw": (s.Status, [_handle, s.Text, s.Text, _ref(s.DrawOptions)]),
}

CUDA_SIGNATURES = {
    "hl_cuda_interface": (c.c_int, []),
    "hl_cuda_error": (s.Text, []),
    "hl_cuda_probe": (s.Status, []),
    "hl_cuda_forward": (s.Status, [_ref(s.AttentionResult), _ref(s.Attention),
                                   _ref(s.CudaLaunch)]),
    "hl_cuda_backward": (s.Status, [_ref(s.AttentionGradient), _ref(s.Attention),
                                    _ref(s.AttentionUpstream), _ref(s.CudaLaunch)]),
    "hl_cuda_received": (s.Status, [s.Pointer, _ref(s.Attention), s.Pointer, c.c_int64,
                                    _ref(s.CudaLaunch)]),
}

# --------------------------------------------------------------------- finding


def _places(name: str, asked: str | None) -> List[str]:
    here = pathlib.Path(__file__).resolve().parent
    if asked:
        return [asked]
    places = [here / name]
    if (here.parent.parent / "include" / "headlight.h").exists():
        places.append(here.parent.parent / "build" / name)
    return [str(place) for place in places]


def _load(name: str, variable: str, installed: str) -> c.CDLL:
    asked = os.environ.get(variable)
    places = _places(name, asked)
    tried = []
    for place in places if asked else [*places, installed]:
        if place in places and not os.path.exists(place):
            tried.append(f"{place}: no such file")
            continue
        try:
            return c.CDLL(place)
        except OSError as error:
            tried.append(f"{place}: {error}")
    raise Error(f"{name} was not found; looked for\n  " + "\n  ".join(tried) +
                f"\n`make` builds it; {variable}=FILE names it", "not found")


def _declare(handle: c.CDLL, signatures: Dict[str, Any], path: str) -> None:
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(handle, name)
        except AttributeError:
            raise Error(f"{path}: no function {name}: the library is of another version than "
                        "this package", "unsupported") from None
        function.restype, function.argtypes = result, arguments


_FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts")


def use_own_fonts() -> None:
    """Where the system has no font, as in a container, lets fontconfig find the wheel's."""
    config = pathlib.Path(__file__).resolve().parent / "fonts" / "fonts.conf"
    if not config.exists() or {"FONTCONFIG_FILE", "FONTCONFIG_PATH"} & set(os.environ):
        return
    has_config = os.path.exists("/etc/fonts/fonts.conf")
    if not has_config or not any(files for folder in _FONT_FOLDERS
                                 for _, _, files in os.walk(os.path.expanduser(folder))):
        os.environ["FONTCONFIG_FILE"] = str(config)


@functools.lru_cache(maxsize=None)
def library() -> c.CDLL:
    """libheadlight.so, opened once."""
    use_own_fonts()
    handle = _load(NAME, "HEADLIGHT_LIBRARY", f"{NAME}.{MAJOR}")
    _declare(handle, SIGNATURES, handle._name)
    return handle


@functools.lru_cache(maxsize=None)
def cuda_library() -> c.CDLL:
    """libheadlight_cuda.so, opened once, with a GPU that it can use."""
    handle = _load("libheadlight_cuda.so", "HEADLIGHT_CUDA_LIBRARY", "libheadlight_cuda.so")
    _declare(handle, CUDA_SIGNATURES, handle._name)
    if handle.hl_cuda_interface() != s.CUDA_INTERFACE:
        raise Error(f"{handle._name}: its interface is {handle.hl_cuda_interface()}, "
                    f"wanted {s.CUDA_INTERFACE}", "unsupported")
    if handle.hl_cuda_probe() != s.OK:
        raise Error(handle.hl_cuda_error().decode(), "not found")
    return handle


# -------------------------------------------------------------------- calling


def fail(status: int) -> NoReturn:
    """Raises an Error with the library's message for this thread's last failure."""
    lib = library()
    message = lib.hl_error_message().decode("utf-8", "replace")
    raise Error(message, lib.hl_status_name(status).decode())


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status."""
    status = getattr(library(), name)(*arguments)
    if status != s.OK:
        fail(status)


def fail_cuda(status: int) -> NoReturn:
    """The same for the library of the GPU."""
    raise Error(cuda_library().hl_cuda_error().decode("utf-8", "replace"),
                library().hl_status_name(status).decode())


def call_cuda(name: str, *arguments: Any) -> None:
    status = getattr(cuda_library(), name)(*arguments)
    if status != s.OK:
        fail_cuda(status)


def text(value: bytes | None) -> str:
    """Converts a C text to str."""
    return "" if value is None else value.decode("utf-8", "replace")


def path_bytes(path: Any) -> bytes:
    return os.fsencode(path)


def texts(values: List[bytes]) -> Any:
    """Converts texts to an array of C strings."""
    return (s.Text * max(1, len(values)))(*values)


class Handle:
    """An object of the library that is closed exactly once: by close(), at the end of a `with` block,
    or when nothing refers to it any more."""

    def __init__(self, pointer: int, close: str):
        self._close = getattr(library(), close)
        self._pointer: int | None = pointer

    @classmethod
    def open(cls, close: str, name: str, *arguments: Any) -> "Handle":
        """Calls `name`, which stores the new object in its first argument."""
        out = c.c_void_p()
        call(name, c.byref(out), *arguments)
        assert out.value is not None
        return cls(out.value, close)

    @property
    def pointer(self) -> int:
        if self._pointer is None:
            raise Error("it has been closed")
        return self._pointer

    def close(self) -> None:
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            self._close(pointer)

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()


class Watcher:
    """Makes a C callback from a Python function.  An exception in it ends the call of the library with
    HL_CANCELLED and is raised again by finish()."""

    def __init__(self, kind: Any, function: Callable[..., Any]):
        self.error: BaseException | None = None

        def called(_context: Any, *arguments: Any) -> int:
            try:
                function(*arguments)
            except BaseException as error:  # Ctrl-C too: C code cannot pass it on
                self.error = error
                return s.CANCELLED
            return s.OK

        self.callback = kind(called)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(library(), name)(*arguments)
        if self.error is not None:
            raise self.error
        if status != s.OK:
            fail(status)
