"""Compares the rows of a trace with those that `measure --rows` stored for the same tokens.

trace_rows.py ids TRACE           prints the tokens as a line of JSON
trace_rows.py compare TRACE ROWS  prints the largest difference of entropy and Rényi-2
"""
import json
import struct
import sys

FORMATS = {"F32": "f", "I64": "q"}


def read(path, name):
    """Shape and values of one tensor of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + size])[name]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    kind = FORMATS[entry["dtype"]]
    return entry["shape"], struct.unpack(f"<{(end - begin) // struct.calcsize(kind)}{kind}", data[begin:end])


def largest_difference(trace_path, rows_path, name):
    """The largest difference.  Entry t + 1 of a trace (tokens, layers, heads) has row t of (layers, 1,
    heads, context)."""
    (n_tokens, n_layers, n_heads), traced = read(trace_path, name)
    (_, _, _, context), rows = read(rows_path, name)
    return max(
        abs(traced[((t + 1) * n_layers + layer) * n_heads + head] - rows[(layer * n_heads + head) * context + t])
        for t in range(n_tokens - 1)
        for layer in range(n_layers)
        for head in range(n_heads)
    )


if sys.argv[1] == "ids":
    print(json.dumps(read(sys.argv[2], "tokens")[1]))
else:
    print(max(largest_difference(sys.argv[2], sys.argv[3], name) for name in ("entropy", "renyi2")))
