"""Makes checkpoints of an artificial training run.

checkpoint.py FROM TO FACTOR   a copy of a model folder with its query weights times FACTOR:
                               0 makes attention uniform, 1e6 puts it on one key, nan breaks it
checkpoint.py ids FILE         documents of token ids, as lines of JSON
"""
import json
import os
import shutil
import struct
import sys


def times(bits, factor):
    """A factor times a BF16 number, which is the upper half of a float's bits."""
    value = struct.unpack("<f", struct.pack("<I", bits << 16))[0] * factor
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def scaled(data, factor):
    """A safetensors file with every query projection (BF16) multiplied."""
    size = struct.unpack("<Q", data[:8])[0]
    out, n_changed = bytearray(data), 0
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if not name.endswith("q_proj.weight"):
            continue
        assert entry["dtype"] == "BF16"
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        form = f"<{(end - begin) // 2}H"
        out[begin:end] = struct.pack(form, *(times(bits, factor) for bits in struct.unpack(form, data[begin:end])))
        n_changed += 1
    return bytes(out), n_changed


def copy_model(source, target, factor):
    n_changed = 0
    os.makedirs(target)
    for name in os.listdir(source):
        if not name.endswith(".safetensors"):
            shutil.copy(os.path.join(source, name), target)
        elif name.startswith("model"):
            with open(os.path.join(source, name), "rb") as file:
                data, n = scaled(file.read(), factor)
            with open(os.path.join(target, name), "wb") as file:
                file.write(data)
            n_changed += n
    assert n_changed > 0


if sys.argv[1] == "ids":
    with open(sys.argv[2], "w", encoding="ascii") as file:
        for document in range(8):
            print([(document * 37 + i * i * (document + 3) + i * 11) % 256 for i in range(64)], file=file)
else:
    copy_model(sys.argv[1], sys.argv[2], float(sys.argv[3]))
