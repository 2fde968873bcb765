"""support.py - what the tests of the Python package share: paths and golden files."""
import glob
import json
import os
import struct
import subprocess

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARED = os.environ.get("HEADLIGHT_SHARED", os.path.join(ROOT, "..", "shared"))
PROGRAM = os.environ.get("HEADLIGHT", os.path.join(ROOT, "build", "headlight"))
DEMO = os.path.join(ROOT, "models", "demo")
SPARSE = os.path.join(ROOT, "models", "demo-sparse")
ALICE = os.path.join(ROOT, "models", "text", "alice.txt")

# numpy has no bf16; its bits are returned instead.
DTYPES = {"U64": np.uint64, "F32": np.float32, "F64": np.float64, "F16": np.float16, "BF16": np.uint16,
          "I64": np.int64, "I32": np.int32, "U8": np.uint8}


def read_safetensors(path):
    """Tensors by name, and the metadata."""
    with open(path, "rb") as file:
        blob = file.read()
    n_bytes = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8:8 + n_bytes])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, tensor in header.items():
        first, last = (8 + n_bytes + at for at in tensor["data_offsets"])
        flat = np.frombuffer(blob[first:last], dtype=DTYPES[tensor["dtype"]])
        tensors[name] = flat.reshape(tensor["shape"])
    return tensors, metadata


def attention_cases():
    """Golden cases, the project's own and the shared ones, each once."""
    found = {}
    for folder in (os.path.join(SHARED, "golden", "attention"),
                   os.path.join(ROOT, "tests", "data", "attention")):
        for path in glob.glob(os.path.join(folder, "*.safetensors")):
            found[os.path.basename(path)] = path
    return sorted(found.values())


def families():
    """Golden models, the project's own and the shared ones, each once."""
    found = {}
    for folder in (os.path.join(SHARED, "golden", "families"),
                   os.path.join(ROOT, "tests", "data", "families")):
        for path in glob.glob(os.path.join(folder, "*", "expected.safetensors")):
            found[os.path.basename(os.path.dirname(path))] = os.path.dirname(path)
    return sorted(found.values())


def program(*arguments):
    """The command's output without its last line end."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, check=True)
    return done.stdout.decode()


def alice(n_characters):
    with open(ALICE, encoding="utf-8") as file:
        return file.read(n_characters)
