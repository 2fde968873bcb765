"""hl_recorder: a profile of attention that someone else computes, window by window."""
from __future__ import annotations

import ctypes as c
from typing import Any, Dict, Optional, Sequence

import numpy as np

from . import _structs as s
from ._library import Error, Handle, call, library
from ._profile import Profile

# The statistics of hl_attention_result that a profile reads.
ROWS = ("entropy", "renyi2", "varentropy", "entropy_nosink", "peak", "self", "previous", "first")
_MAY_BE_UNDEFINED = ("entropy_nosink", "self", "previous", "first")


class Recorder:
    """Adds the rows of windows to a new profile.

        recorder = Recorder([4, 4], context=512, settings={"model": ...})
        for tokens in windows:
            recorder.begin(tokens)
            for layer in range(2):
                recorder.add(layer, rows, whole=probabilities_of(recorder.whole_rows))
            recorder.end()
        profile = recorder.finish()
    """

    def __init__(self, heads: Sequence[int], *, context: int, settings: Dict[str, str], seed: int = 0,
                 n_threads: int = 0):
        self.heads = np.array(heads, dtype=np.int64)
        items = (s.RecordSetting * max(1, len(settings)))(
            *(s.RecordSetting(key.encode(), value.encode()) for key, value in settings.items()))
        options = s.RecordOptions(len(self.heads), self.heads.ctypes.data, context, seed, items,
                                  len(settings), n_threads)
        self._handle = Handle.open("hl_recorder_close", "hl_recorder_open", c.byref(options))
        self.n_tokens = 0
        self.whole_rows = np.zeros(0, dtype=np.int64)  # positions whose rows are wanted whole
        self.output_rows = np.zeros(0, dtype=np.int64)  # positions whose outputs' norms are wanted

    def begin(self, tokens: Any, *, first_row: int = 0, document: int = 0, start: int = 0,
              in_pieces: bool = True) -> None:
        ids = np.ascontiguousarray(tokens, dtype=np.int64)
        window = s.RecordWindow(ids.ctypes.data, len(ids), first_row, document, start, in_pieces)
        call("hl_recorder_begin", self._handle.pointer, c.byref(window))
        self.n_tokens = len(ids)
        self.whole_rows = self._positions("hl_recorder_whole_rows")
        self.output_rows = self._positions("hl_recorder_output_rows")

    def _positions(self, name: str) -> np.ndarray:
        out = c.POINTER(c.c_int64)()
        n = getattr(library(), name)(c.byref(out), self._handle.pointer)
        return np.array(out[:n], dtype=np.int64)

    def add(self, layer: int, rows: Dict[str, np.ndarray], *, n_keys: int,
            whole: Optional[np.ndarray] = None, norms: Optional[np.ndarray] = None,
            is_causal: bool = False, is_cross: bool = False, window_left: Optional[int] = None,
            window_right: Optional[int] = None, has_sink: bool = False) -> None:
        """rows: ROWS, (heads, n_tokens) each.  whole: (heads, whole_rows, n_keys).  norms: (heads,
        output_rows)."""
        shape = (int(self.heads[layer]), self.n_tokens)
        result, keep = s.AttentionResult(), []
        for name in ROWS:
            values = np.ascontiguousarray(rows[name], dtype=np.float32)
            if name in _MAY_BE_UNDEFINED:  # the library has 0 there; a broken row has no entropy either
                values = np.where(np.isnan(values) & np.isfinite(rows["entropy"]), np.float32(0), values)
            if values.shape != shape:
                raise Error(f"layer {layer}: {name} has shape {values.shape}, wanted {shape}")
            keep.append(values)
            setattr(result, name, values.ctypes.data)
        if whole is not None:
            whole = np.ascontiguousarray(whole, dtype=np.float32)
            if whole.shape != (shape[0], len(self.whole_rows), n_keys):
                raise Error(f"layer {layer}: whole rows have shape {whole.shape}, wanted "
                            f"{(shape[0], len(self.whole_rows), n_keys)}")
        far = 1 << 50
        has_window = window_left is not None or window_right is not None
        layer_rows = s.RecordLayer(
            layer, n_keys, c.pointer(result), None if whole is None else whole.ctypes.data, is_causal,
            is_cross, has_window, has_sink, far if window_left is None else window_left,
            far if window_right is None else window_right)
        call("hl_recorder_layer", self._handle.pointer, c.byref(layer_rows))
        if norms is not None:
            norms = np.ascontiguousarray(norms, dtype=np.float32)
            if norms.shape != (shape[0], len(self.output_rows)):
                raise Error(f"layer {layer}: norms have shape {norms.shape}, wanted "
                            f"{(shape[0], len(self.output_rows))}")
            call("hl_recorder_norms", self._handle.pointer, layer, norms.ctypes.data)

    def losses(self, values: Any) -> None:
        numbers = np.ascontiguousarray(values, dtype=np.float32)
        call("hl_recorder_losses", self._handle.pointer, numbers.ctypes.data, numbers.size)

    def end(self) -> None:
        call("hl_recorder_end", self._handle.pointer)

    def finish(self) -> Profile:
        profile = Profile(Handle.open("hl_profile_free", "hl_recorder_finish", self._handle.pointer))
        self._handle.close()
        return profile
