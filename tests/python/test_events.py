"""test_events.py - event files, read back by a reader that shares no code with the writer.

The reader is written from the formats' descriptions: TFRecord's framing, RFC 3720's CRC-32C bit by bit,
and protocol buffers' wire types.
"""
import math
import os
import struct
import tempfile
import unittest

import numpy as np

from headlight import events


def crc(data):
    """CRC-32C, bit by bit, reflected."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = (rest >> 1) ^ 0x82F63B78 if rest & 1 else rest >> 1
    return rest ^ 0xFFFFFFFF


def unmasked(value):
    turned = (value - 0xA282EAD8) % 2 ** 32
    return (turned << 15 | turned >> 17) % 2 ** 32


def records(blob):
    at = 0
    while at < len(blob):
        (n,), (check,) = struct.unpack_from("<Q", blob, at), struct.unpack_from("<I", blob, at + 8)
        assert unmasked(check) == crc(blob[at:at + 8]), f"length at {at}"
        data = blob[at + 12:at + 12 + n]
        (check,) = struct.unpack_from("<I", blob, at + 12 + n)
        assert len(data) == n and unmasked(check) == crc(data), f"data at {at}"
        yield data
        at += 16 + n


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return value, at


def message(data):
    """{field: [values]}: numbers, floats, or bytes."""
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
        else:
            form, size = {1: ("<d", 8), 5: ("<f", 4)}[kind]
            (value,), at = struct.unpack_from(form, data, at), at + size
        out.setdefault(key >> 3, []).append(value)
    assert at == len(data)
    return out


def read(path):
    with open(path, "rb") as file:
        return [message(data) for data in records(file.read())]


class Events(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_crc_of_known_texts(self):
        for text, wanted in ((b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA),
                             (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (b"", 0)):
            self.assertEqual(events.crc32c(text), wanted)
            self.assertEqual(crc(text), wanted)

    def test_scalars_come_back(self):
        folder = os.path.join(self.folder.name, "new", "run")
        with events.EventWriter(folder) as writer:
            writer.scalars(0, {"loss": 2.5}, wall_time=1.25)
            writer.scalars(300, {"entropy/L0H1": 0.125, "entropy/µ": math.nan})
            writer.scalars(2 ** 40, {"loss": -1.0})
        self.assertEqual(os.listdir(folder), [os.path.basename(writer.path)])
        self.assertTrue(os.path.basename(writer.path).startswith("events.out.tfevents."))
        first, *rest = read(writer.path)
        self.assertEqual(first[3], [b"brain.Event:2"])
        self.assertEqual([event.get(2, [0])[0] for event in rest], [0, 300, 2 ** 40])
        self.assertEqual(rest[0][1], [1.25])
        values = [message(value) for value in message(rest[1][5][0])[1]]
        self.assertEqual([value[1][0].decode() for value in values], ["entropy/L0H1", "entropy/µ"])
        self.assertEqual(values[0][2], [0.125])
        self.assertTrue(math.isnan(values[1][2][0]))

    def test_histograms_come_back(self):
        values = np.random.default_rng(0).standard_normal(500)
        with events.EventWriter(self.folder.name) as writer:
            writer.histogram(7, "entropy", np.append(values, math.nan), n_bins=20)
            writer.histogram(8, "nothing", [math.inf])
        _, event = read(writer.path)
        value = message(message(event[5][0])[1][0])
        found = message(value[5][0])
        self.assertEqual(value[1], [b"entropy"])
        np.testing.assert_allclose([found[i][0] for i in range(1, 6)],
                                   [values.min(), values.max(), 500, values.sum(),
                                    (values ** 2).sum()])
        limits, counts = (np.frombuffer(found[i][0], "<f8") for i in (6, 7))
        self.assertEqual((len(limits), len(counts), counts.sum()), (20, 20, 500))
        for limit, n in zip(limits[:-1], np.cumsum(counts)):
            self.assertEqual(n, np.sum(values < limit))

    def test_negative_steps(self):
        with events.EventWriter(self.folder.name) as writer:
            writer.scalars(-3, {"x": 1.0})
        self.assertEqual(read(writer.path)[1][2], [2 ** 64 - 3])

    def test_a_flipped_bit_is_found(self):
        """The reader finds a flipped bit: checksums exist and cover the right bytes."""
        with events.EventWriter(self.folder.name) as writer:
            writer.scalars(1, {"x": 1.0})
        with open(writer.path, "rb") as file:
            blob = bytearray(file.read())
        for place in (1, 9, 20, len(blob) - 1):
            broken = bytearray(blob)
            broken[place] ^= 4
            with self.assertRaises((AssertionError, struct.error)):
                list(records(bytes(broken)))

    def test_two_writers_have_two_files(self):
        with events.EventWriter(self.folder.name) as a, events.EventWriter(self.folder.name) as b:
            self.assertNotEqual(a.path, b.path)
        with self.assertRaisesRegex(ValueError, "has been closed"):
            a.scalars(1, {"x": 1.0})
