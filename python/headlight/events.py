"""TensorBoard's event files, written without TensorFlow.

    with EventWriter("runs/first") as writer:
        writer.scalars(step, {"entropy/mean": 1.9, "entropy/L3H1": 0.2})
        writer.histogram(step, "entropy", values)

A file is a row of records (TFRecord), all numbers little-endian:

    uint64   n, the length of the data
    uint32   masked CRC-32C of those 8 bytes
    n bytes  the data: an Event, in protocol buffers' encoding
    uint32   masked CRC-32C of the data

The mask turns the sum right by 15 bits and adds 0xa282ead8.  The fields of the messages that are
written are

    Event      1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary
    Summary    1 value (repeated)
    Value      1 tag (string), 2 simple_value (float), 5 histo
    Histogram  1 min, 2 max, 3 num, 4 sum, 5 sum_squares (doubles),
               6 bucket_limit, 7 bucket (packed doubles)

The first event of a file has the file_version "brain.Event:2" and nothing else.
"""
from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any, List, Mapping, Optional, Sequence, Union

import numpy as np

# ------------------------------------------------------------------- CRC-32C


def _make_table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _make_table()


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, as in iSCSI (RFC 3720)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """One record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return (length + struct.pack("<I", masked_crc32c(length)) + data +
            struct.pack("<I", masked_crc32c(data)))


# ---------------------------------------------------------- protocol buffers

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # negative numbers take 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _double(field: int, value: float) -> bytes:
    return _key(field, _FIXED64) + struct.pack("<d", value)


def _block(field: int, data: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(data)) + data


def _doubles(field: int, values: Sequence[float]) -> bytes:
    return _block(field, struct.pack(f"<{len(values)}d", *values))


def _event(wall_time: float, step: int, rest: bytes) -> bytes:
    return _double(1, wall_time) + (_key(2, _VARINT) + _varint(step) if step else b"") + rest


def _scalar(tag: str, value: float) -> bytes:
    simple = _key(2, _FIXED32) + struct.pack("<f", value)
    return _block(1, _block(1, tag.encode()) + simple)


def _histogram(tag: str, values: np.ndarray, n_bins: int) -> bytes:
    counts, edges = np.histogram(values, bins=n_bins)
    fields = (_double(1, values.min()) + _double(2, values.max()) + _double(3, values.size) +
              _double(4, values.sum()) + _double(5, (values ** 2).sum()) +
              _doubles(6, edges[1:].tolist()) + _doubles(7, counts.astype(float).tolist()))
    return _block(1, _block(1, tag.encode()) + _block(5, fields))


# -------------------------------------------------------------------- writing


class EventWriter:
    """An event file in a folder that TensorBoard reads; the folder is created if necessary. Everything
    written is in the file when a call returns."""

    def __init__(self, folder: Union[str, "os.PathLike[str]"]):
        os.makedirs(folder, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}"
        self.path = os.path.join(folder, name)
        n_files = 0
        while os.path.exists(self.path):  # another file of this process in this second
            n_files += 1
            self.path = os.path.join(folder, f"{name}.{n_files}")
        self._file: Any = open(self.path, "xb")
        self._write(_event(now, 0, _block(3, b"brain.Event:2")))

    def _write(self, event: bytes) -> None:
        if self._file is None:
            raise ValueError(f"{self.path} has been closed")
        self._file.write(record(event))
        self._file.flush()

    def scalars(self, step: int, values: Mapping[str, float],
                wall_time: Optional[float] = None) -> None:
        """Writes one event with all values; NaN is written too."""
        data = b"".join(_scalar(tag, float(value)) for tag, value in values.items())
        self._write(_event(time.time() if wall_time is None else wall_time, step, _block(5, data)))

    def histogram(self, step: int, tag: str, values: Any, *, n_bins: int = 32,
                  wall_time: Optional[float] = None) -> None:
        """Writes a histogram of the finite values; if there are none, nothing."""
        flat = np.asarray(values, dtype=np.float64).ravel()
        flat = flat[np.isfinite(flat)]
        if flat.size == 0:
            return
        data = _histogram(tag, flat, n_bins)
        self._write(_event(time.time() if wall_time is None else wall_time, step, _block(5, data)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
