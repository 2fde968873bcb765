#!/usr/bin/env python3
"""Writes a Hugging Face folder of gemma2 that holds the numbers of a GGUF file.

    python3 tools/interop/gguf_twin.py gemma2.gguf HF_FOLDER OUT_FOLDER

The converter of gemma2 files stores 1 + w for every norm, rounded to the file's type, and has no key
for query_pre_attn_scalar.  A GGUF file is therefore a different model than the folder it was made from.
 This script writes the folder of that other model, with the norms that the file holds and the scale
that its readers assume (d_head).  transformers can then compute the expected results for the file's
numbers.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32 = 0
NORMS = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


class Gguf:
    """The metadata of a GGUF file, and its tensors of type F32."""

    def __init__(self, path: Path) -> None:
        self.bytes = path.read_bytes()
        self.at = 8
        n_tensors, n_keys = self.take("Q"), self.take("Q")
        self.keys = {self.string(): self.value(self.take("I")) for _ in range(n_keys)}
        self.tensors = dict(self.tensor() for _ in range(n_tensors))
        alignment = self.keys.get("general.alignment", 32)
        self.data = (self.at + alignment - 1) // alignment * alignment

    def take(self, kind: str) -> Any:
        """The next number."""
        (number,) = struct.unpack_from("<" + kind, self.bytes, self.at)
        self.at += struct.calcsize("<" + kind)
        return number

    def string(self) -> str:
        """The next text."""
        length = self.take("Q")
        self.at += length
        return self.bytes[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        """The next value of metadata."""
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element = self.take("I")
            return [self.value(element) for _ in range(self.take("Q"))]
        return self.take(SCALARS[kind])

    def tensor(self) -> tuple[str, tuple[list[int], int, int]]:
        """The next tensor's name, and its shape, type and place."""
        name = self.string()
        shape = [self.take("Q") for _ in range(self.take("I"))]
        return name, (shape, self.take("I"), self.take("Q"))

    def floats(self, name: str) -> list[float]:
        """The values of a vector of type F32."""
        shape, kind, place = self.tensors[name]
        if kind != F32 or len(shape) != 1:
            sys.exit(f"{name}: type {kind} and {len(shape)} dimensions, wanted a vector of type F32")
        return list(struct.unpack_from(f"<{shape[0]}f", self.bytes, self.data + place))


def norm_names(n_layers: int) -> dict[str, str]:
    """Names of the norms in the GGUF file, and in the folder."""
    names = {"output_norm.weight": "model.norm.weight"}
    for layer in range(n_layers):
        for ours, theirs in NORMS.items():
            names[f"blk.{layer}.{ours}.weight"] = f"model.layers.{layer}.{theirs}.weight"
    return names


def main() -> None:
    source, folder, out = map(Path, sys.argv[1:4])
    gguf = Gguf(source)
    config = json.loads((folder / "config.json").read_text())
    raw = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    begin = 8 + length
    norms = {there: gguf.floats(here) for here, there in norm_names(config["num_hidden_layers"]).items()}

    tensors, blob = {}, b""
    for name, entry in header.items():
        if name == "__metadata__":
            tensors[name] = entry
            continue
        first, last = entry["data_offsets"]
        data, dtype = raw[begin + first : begin + last], entry["dtype"]
        if re.search("norm", name):
            values = norms.pop(name)
            data, dtype = struct.pack(f"<{len(values)}f", *(v - 1.0 for v in values)), "F32"
        tensors[name] = {"dtype": dtype, "shape": entry["shape"], "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    if norms:
        sys.exit(f"{folder}: no tensor {next(iter(norms))}")

    config["query_pre_attn_scalar"] = config["head_dim"]
    text = json.dumps(tensors).encode()
    text += b" " * (-len(text) % 8)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)


main()
