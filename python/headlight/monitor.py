"""Entropies of every head over the steps of a training run: written to files, with alarms.

    log = EntropyLog(folder="runs/first", jsonl="first.jsonl", on_alarm=print)
    log.log(step, entropy, normalized, loss=2.3)

Needs numpy only; headlight.torch.AttentionMonitor collects the entropies.  The rules and their
thresholds are those of `headlight diagnose` (default_thresholds), applied to means of a step where a
profile has medians of rows:

    broken     an entropy is not finite (NaN or infinity): the run has diverged.  Such heads
               count in no other rule; if most heads are broken, no other rule is applied
    collapse   a share of collapse-share of the heads has a normalized entropy below
               collapse-entropy
    overload   a share of overload-share of the heads has one of overload-entropy or more
"""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from ._library import Error
from ._profile import default_thresholds
from .events import EventWriter

Path = Union[str, "os.PathLike[str]"]


def head_name(layer: Union[int, str], head: int) -> str:
    """L3H1; E3H1, X3H1 in models with several sets of heads."""
    return f"{layer}H{head}" if isinstance(layer, str) else f"L{layer}H{head}"


@dataclasses.dataclass(frozen=True)
class Alarm:
    step: int
    kind: str  # "broken", "collapse", "overload"
    share: float  # share of the measured heads; for "collapse" and "overload", of the finite ones
    threshold: float  # threshold that the share has reached
    heads: List[Tuple[Union[int, str], int]]  # (layer, head); layers are 3, or "E3", "X3"

    def __str__(self) -> str:
        shown = ", ".join(head_name(layer, head) for layer, head in self.heads[:8])
        more = f" and {len(self.heads) - 8} more" if len(self.heads) > 8 else ""
        what = "not finite: attention" if self.kind == "broken" else self.kind
        return f"step {self.step}: {what} of {self.share:.0%} of the heads: {shown}{more}"


def find_alarms(step: int, entropy: np.ndarray, normalized: np.ndarray, limits: Dict[str, float],
                there: Optional[np.ndarray] = None) -> List[Alarm]:
    """Returns the alarms of a step.  entropy, normalized: (layer, head).  there: which heads exist;
    without it, those that are not NaN in both, or all of them if everything is NaN.  Broken heads come
    first; if most heads are broken, that is the only alarm."""
    if there is None:
        there = ~(np.isnan(entropy) & np.isnan(normalized))
        there = there if there.any() else np.ones_like(there)
    finite = there & np.isfinite(entropy) & np.isfinite(normalized)
    rules = (("broken", there & ~finite, there, 0.0),
             ("collapse", finite & (normalized < limits["collapse-entropy"]), finite,
              limits["collapse-share"]),
             ("overload", finite & (normalized >= limits["overload-entropy"]), finite,
              limits["overload-share"]))
    alarms = []
    for kind, shows, counted, threshold in rules[:1] if 2 * finite.sum() < there.sum() else rules:
        heads: List[Tuple[Union[int, str], int]] = [(int(layer), int(head))
                                                    for layer, head in np.argwhere(shows)]
        share = len(heads) / max(1, int(counted.sum()))
        if heads and share >= threshold:
            alarms.append(Alarm(step, kind, share, threshold, heads))
    return alarms


class EntropyLog:
    """Writes the entropies of each step; every output is optional.

    folder: TensorBoard's event files: "entropy/mean", "entropy/L3H1" ... and a histogram.
    jsonl: one line per step, {"step", "entropy", "normalized", "alarms", ...}, appended.
    on_step(step, entropy, normalized), on_alarm(alarm): called.
    thresholds: some of default_thresholds()'s, by name.
    """

    def __init__(self, *, folder: Optional[Path] = None, jsonl: Optional[Path] = None,
                 on_step: Optional[Callable[[int, np.ndarray, np.ndarray], Any]] = None,
                 on_alarm: Optional[Callable[[Alarm], Any]] = None,
                 thresholds: Optional[Dict[str, float]] = None):
        self.limits = default_thresholds()
        for name in thresholds or {}:
            if name not in self.limits:
                raise Error(f"there is no threshold {name!r}; there are {', '.join(self.limits)}")
        self.limits.update(thresholds or {})
        self.on_step, self.on_alarm = on_step, on_alarm
        self._events = EventWriter(folder) if folder is not None else None
        self._known: Optional[np.ndarray] = None  # heads that have had a finite value
        self._lines: Any = open(jsonl, "a", encoding="utf-8") if jsonl is not None else None

    def log(self, step: int, entropy: Any, normalized: Any, *, there: Any = None,
            layers: Optional[Sequence[Union[int, str]]] = None, **scalars: float) -> List[Alarm]:
        """entropy: (layer, head) nats; normalized: entropies divided by that of uniform attention.
        there: (layer, head), which heads exist; without it, a head counts as missing as long as both
        values have always been NaN, and as broken if they become NaN later.  layers: the layers' names,
        if they are not 0, 1, ...  scalars: other values, such as the loss.  Returns the step's
        alarms."""
        entropy, normalized = (np.asarray(x, dtype=np.float64) for x in (entropy, normalized))
        if entropy.ndim != 2 or entropy.shape != normalized.shape:
            raise Error(f"entropies have the shapes {entropy.shape} and {normalized.shape}, wanted "
                        "(layer, head) of both")
        alarms = find_alarms(step, entropy, normalized, self.limits,
                             self._remember(entropy, normalized) if there is None else
                             np.asarray(there, dtype=bool))
        names: List[Union[int, str]] = list(range(len(entropy))) if layers is None else list(layers)
        alarms = [dataclasses.replace(alarm, heads=[(names[int(layer)], head) for layer, head in alarm.heads])
                  for alarm in alarms]
        if self._events is not None:
            self._write_events(step, entropy, names, alarms, scalars)
        if self._lines is not None:
            self._write_line(step, entropy, normalized, names, alarms, scalars)
        if self.on_step is not None:
            self.on_step(step, entropy, normalized)
        if self.on_alarm is not None:
            for alarm in alarms:
                self.on_alarm(alarm)
        return alarms

    def _remember(self, entropy: np.ndarray, normalized: np.ndarray) -> Optional[np.ndarray]:
        there = ~(np.isnan(entropy) & np.isnan(normalized))
        if self._known is not None and self._known.shape == there.shape:
            there |= self._known
        self._known = there
        return there if there.any() else None

    def _write_events(self, step: int, entropy: np.ndarray, names: List[Any], alarms: List[Alarm],
                      scalars: Dict[str, float]) -> None:
        finite = entropy[np.isfinite(entropy)]
        values = {**scalars, "entropy/mean": float(finite.mean()) if finite.size else float("nan")}
        values.update((f"alarm/{alarm.kind}", alarm.share) for alarm in alarms)
        for (layer, head), value in np.ndenumerate(entropy):
            if not np.isnan(value):
                values["entropy/" + head_name(names[layer], head)] = value
        assert self._events is not None
        self._events.scalars(step, values)
        self._events.histogram(step, "entropy", entropy)

    def _write_line(self, step: int, entropy: np.ndarray, normalized: np.ndarray, names: List[Any],
                    alarms: List[Alarm], scalars: Dict[str, float]) -> None:
        line = {"step": step, **scalars, "entropy": _listed(entropy),
                "normalized": _listed(normalized),
                "alarms": [dataclasses.asdict(alarm) for alarm in alarms]}
        if any(isinstance(name, str) for name in names):
            line["layers"] = names
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()

    def close(self) -> None:
        for file in (self._events, self._lines):
            if file is not None:
                file.close()

    def __enter__(self) -> "EntropyLog":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _listed(values: np.ndarray) -> List[List[Optional[float]]]:
    """A list for JSON, which has no NaN: null stands for it."""
    return [[float(value) if np.isfinite(value) else None for value in row] for row in values]
