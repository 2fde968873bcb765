#!/usr/bin/env python3
"""seeds.py - the small inputs that are made, not found: fuzz/corpus/TARGET/NAME.

    python3 fuzz/seeds.py [FOLDER]

They are committed; run this again after a change here.  A seed is valid, or wrong in just one
place, so that together they reach the branches of a parser that noise would not.  What `make fuzz`
finds lies beside them under other names.
"""
import base64
import copy
import json
import os
import struct
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "corpus")


def put(target, name, data):
    folder = os.path.join(OUT, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def changed(base, changes):
    """A deep copy with {"a.b": value}; None removes."""
    made = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split("/")
        at = made
        for key in parents:
            at = at[int(key) if isinstance(at, list) else key]
        if value is None:
            at.pop(last, None)
        else:
            at[int(last) if isinstance(at, list) else last] = value
    return made


def put_changed(target, base, variants, write=json.dumps):
    for name, changes in variants.items():
        put(target, name, write(changed(base, changes)))


# ------------------------------------------------------------------------------- formats

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "U8": 8, "I16": 16, "BOOL": 8}
CODES = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "U8": "B", "I16": "h"}


def values(dtype, numbers):
    return struct.pack("<%d%s" % (len(numbers), CODES[dtype]), *numbers)


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def safetensors(tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes or a list of numbers or None: zeros)}"""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        if content is None:
            content = bytes(count(shape) * BITS[dtype] // 8)
        elif not isinstance(content, bytes):
            content = values(dtype, content)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def raw_safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(descr, shape, data, fortran=False):
    header = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, tuple(shape))
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
GGUF_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
              I64: "q", F64: "d"}


def gguf_text(text):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text)) + text


def gguf_value(kind, value):
    if kind == TEXT:
        return gguf_text(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(gguf_value(inner, x) for x in items)
    return struct.pack("<" + GGUF_CODES[kind], value)


def gguf(pairs, tensors=(), alignment=32, version=3, magic=b"GGUF"):
    """pairs: (key, kind, value); tensors: (name, ggml type, dims innermost first, bytes)"""
    out = magic + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, kind, value in pairs:
        out += gguf_text(key) + struct.pack("<I", kind) + gguf_value(kind, value)
    data = b""
    for name, kind, dims, content in tensors:
        data += bytes(-len(data) % alignment)
        out += gguf_text(name) + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, len(data))
        data += content
    out += bytes(-len(out) % alignment) if tensors else b""
    return out + data


# ------------------------------------------------------------------ safetensors, GGUF, npy

ONE = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}


def make_safetensors():
    put("safetensors", "longer_than_file", struct.pack("<Q", 1000) + b"{}")
    put("safetensors", "no_brace", raw_safetensors(b"[1, 2]  "))
    put("safetensors", "two_names", safetensors({"b": ("U8", [0], b""), "a": ("U8", [0], b"")}))
    put("safetensors", "metadata_list", raw_safetensors({"__metadata__": [1]}))
    for name, changes in {
        "negative_size": {"a/shape/0": -1}, "size_text": {"a/shape/0": "1"},
        "no_dtype": {"a/dtype": None}, "dtype_number": {"a/dtype": 3}, "dtype_unknown": {"a/dtype": "F31"},
        "no_shape": {"a/shape": None}, "one_offset": {"a/data_offsets": [0]},
        "offsets_text": {"a/data_offsets": ["a", "b"]}, "wrong_span": {"a/data_offsets": [0, 3]},
        "backwards": {"a/data_offsets": [4, 0]}, "no_object": {"a": 5},
    }.items():
        put("safetensors", name, raw_safetensors(changed(ONE, changes), bytes(4)))


def make_gguf():
    text = [("t", TEXT, "x")]
    put("gguf", "no_magic", gguf(text, magic=b"GGUX"))
    put("gguf", "many_tensors", b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0))
    put("gguf", "long_key", gguf([("k" * 70000, U8, 1)])[:24 + 8 + 4] + b"k" * 100)
    put("gguf", "empty_key", gguf([("", U8, 1)]))
    put("gguf", "unknown_type", gguf(text)[:24] + gguf_text("k") + struct.pack("<I", 99))
    put("gguf", "array_unknown", gguf(text)[:24] + gguf_text("k") + struct.pack("<IIQ", ARRAY, 77, 1))
    put("gguf", "array_overflow",
        gguf(text)[:24] + gguf_text("k") + struct.pack("<IIQ", ARRAY, U64, (1 << 61) + 1))
    put("gguf", "array_of_too_many_texts",
        gguf(text)[:24] + gguf_text("k") + struct.pack("<IIQ", ARRAY, TEXT, 1 << 40) + bytes(64))
    put("gguf", "bool_of_two", gguf([("b", BOOL, 2)]))
    put("gguf", "alignment_text", gguf([("general.alignment", TEXT, "x")]))
    put("gguf", "alignment_three", gguf([("general.alignment", U32, 3)]))
    put("gguf", "alignment_64", gguf([("general.alignment", U32, 64)], [("t", 0, [2], bytes(8))], 64))
    put("gguf", "odd_key", gguf([("k\xc3\xa9y", U8, 1)]))
    put("gguf", "half_letter", gguf([(b"k\xe2\x28\xa1", U8, 1)]))
    put("gguf", "name_wrong", gguf([], [(b"\xff\xfe", 0, [1], bytes(4))]))
    put("gguf", "name_long", gguf([], [("n" * 65, 0, [1], bytes(4))]))
    for kind in (4, 9, 29, 31, 40, 200):
        put("gguf", "ggml_type_%d" % kind, gguf([], [("t", kind, [32], bytes(64))]))
    put("gguf", "five_dims", gguf([], [("t", 0, [1] * 5, bytes(4))]))
    put("gguf", "huge_dim", gguf([], [("t", 0, [1 << 63], bytes(4))]))
    put("gguf", "two_empty", gguf([], [("a", 0, [0], b""), ("b", 0, [0], b""), ("c", 0, [1], bytes(4))]))
    odd = bytearray(gguf([], [("t", 0, [1], bytes(8))]))
    at = odd.index(b"t") + 1 + 4 + 8 + 4
    odd[at] = 4
    put("gguf", "offset_odd", bytes(odd))
    put("gguf", "lists", gguf([
        ("i", ARRAY, (I32, [1, 2])), ("one", U32, 3), ("yes", BOOL, 1), ("huge", U64, 1 << 63),
        ("few", ARRAY, (I32, [1])), ("texts", ARRAY, (TEXT, ["a", "b"])), ("s", TEXT, "llama"),
        ("f", F32, 0.5), ("d", F64, 0.5), ("deep", ARRAY, (ARRAY, [(U8, [1]), (TEXT, ["x"])]))]))


def make_maps():
    third = [1.0, 0.0, 0.5, 0.5]
    put("maps", "npy_3", npy("<f4", [1, 2, 2], values("F32", third)))
    put("maps", "npy_4", npy("<f8", [1, 1, 2, 2], values("F64", third)))
    put("maps", "npy_5", npy("<f2", [1, 1, 1, 2, 2], values("F16", third)))
    put("maps", "npy_full", npy("<f4", [1, 2, 2], values("F32", [0.5, 0.5, 0.5, 0.5])))
    put("maps", "npy_2", npy("<f4", [2, 2], values("F32", third)))
    put("maps", "npy_int", npy("<i4", [1, 2, 2], values("I32", [1, 0, 0, 1])))
    put("maps", "npy_zero", npy("<f4", [1, 0, 2], b""))
    put("maps", "npy_no_layers", npy("<f4", [0, 1, 1, 2, 2], b""))
    put("maps", "npy_more_keys", npy("<f4", [1, 1, 3], values("F32", [0.2, 0.3, 0.5])))
    put("maps", "npy_more_queries", npy("<f4", [1, 3, 1], values("F32", [1, 1, 1])))
    put("maps", "npy_negative", npy("<f4", [1, 2, 2], values("F32", [1, 0, -0.5, 1.5])))
    put("maps", "npy_sum", npy("<f4", [1, 2, 2], values("F32", [1, 0, 0.7, 0.7])))
    put("maps", "npy_nan", npy("<f4", [1, 2, 2], values("F32", [1, 0, float("nan"), 0.5])))
    put("maps", "npy_blind", npy("<f4", [1, 2, 2], values("F32", [0, 0, 0, 1])))
    put("maps", "npy_scores", npy("<f4", [1, 2, 2], values("F32", [3, -1e9, 2, float("-inf")])))
    put("maps", "npy_infinite", npy("<f4", [1, 2, 2], values("F32", [3, float("inf"), 2, 1])))
    put("maps", "npy_cut", npy("<f4", [1, 2, 2], b"\0\0\0"))
    square = ("F32", [1, 1, 2, 2], third)
    put("maps", "one", safetensors({"attention": square}))
    put("maps", "only", safetensors({"whatever": square}))
    put("maps", "scores", safetensors({"scores": square, "pattern": square}))
    put("maps", "layers", safetensors({"blocks.%d.attn.hook_pattern" % i: square for i in range(11)}))
    put("maps", "layers_3", safetensors({"attn.%d" % i: ("F32", [1, 2, 2], third) for i in range(2)}))
    put("maps", "layers_both", safetensors({
        "blocks.0.attn.hook_attn_scores": square, "blocks.0.attn.hook_pattern": square}))
    put("maps", "layers_more_heads", safetensors({
        "attn.0": square, "attn.1": ("F32", [1, 2, 2, 2], third * 2)}))
    put("maps", "layers_hole", safetensors({"attn.0": square, "attn.2": square}))
    put("maps", "layers_twice", safetensors({"attn.0": square, "attention.0": square}))
    put("maps", "layers_other_size", safetensors({"attn.0": square, "attn.1": ("F32", [1, 1, 1, 1], [1.0])}))
    put("maps", "layers_other_dims", safetensors({"attn.0": square, "attn.1": ("F32", [2, 2], third)}))
    put("maps", "layers_int", safetensors({"attn.0": ("I32", [1, 1, 1, 1], [1]), "attn.1": square}))
    put("maps", "huge_number", safetensors({"attn.99999999999999999999": square, "attn.1": square}))
    put("maps", "nothing", safetensors({"a": square, "b": square}))
    put("maps", "lengths", safetensors({
        "attention": ("F32", [1, 2, 1, 2, 2], third + [1.0, 0.0, 0.0, 0.0]), "lengths": ("I64", [2], [2, 1])}))
    put("maps", "lengths_past", safetensors({"attention": square, "lengths": ("I64", [1], [3])}))
    put("maps", "lengths_float", safetensors({"attention": square, "lengths": ("F32", [1], [2])}))
    put("maps", "lengths_bool", safetensors({"attention": square, "lengths": ("BOOL", [1], b"\1")}))
    put("maps", "bf16", safetensors({"attention": ("BF16", [1, 1, 2, 2], b"\x80\x3f\0\0\0\x3f\0\x3f")}))
    put("maps", "u8", safetensors({"attention": ("U8", [1, 1, 2, 2], b"\1\0\0\1")}))
    put("maps", "six", safetensors({"attention": ("F32", [1, 1, 1, 1, 2, 2], third)}))
    long = [1.0 / (i + 1) if j <= i else 0.0 for i in range(20) for j in range(20)]
    put("maps", "long", safetensors({"attention": ("F32", [1, 1, 20, 20], long)}))


def make_ids():
    for kind, code in {"<i1": "b", "<i2": "h", "<i4": "i", "<i8": "q", "<u1": "B", "<u2": "H", "<u4": "I",
                       "<u8": "Q"}.items():
        put("ids", "npy_%s" % kind[1:], npy(kind, [2, 2], struct.pack("<4" + code, 1, 2, 3, 4)))
    put("ids", "npy_1", npy("<i4", [3], values("I32", [1, 2, 3])))
    put("ids", "npy_3", npy("<i4", [1, 1, 1], values("I32", [1])))
    put("ids", "npy_float", npy("<f4", [1], values("F32", [1])))
    put("ids", "npy_past", npy("<i4", [1], values("I32", [1000])))
    put("ids", "npy_negative", npy("<i8", [1], values("I64", [-1])))
    put("ids", "npy_huge", npy("<u8", [1], b"\xff" * 8))
    put("ids", "npy_none", npy("<i4", [4, 0], b""))
    tokens = ("I64", [2, 2], [1, 2, 3, 4])
    for name, lines in {"lines": "[1, 2]\n\n[3]\n", "lines_past": "[1000]\n", "lines_open": "[1", "lines_mark": "\ufeff[1]\n", "lines_text": "x\n"}.items():
        put("ids", name, lines)
    put("ids", "tokens", safetensors({"tokens": tokens}))
    put("ids", "no_tokens", safetensors({"ids": tokens}))
    put("ids", "lengths", safetensors({"tokens": tokens, "lengths": ("I32", [2], [2, 0])}))
    put("ids", "lengths_past", safetensors({"tokens": tokens, "lengths": ("I32", [2], [2, 3])}))
    put("ids", "lengths_few", safetensors({"tokens": tokens, "lengths": ("I32", [1], [2])}))
    put("ids", "lengths_float", safetensors({"tokens": tokens, "lengths": ("F32", [2], [2, 2])}))


def make_blocks():
    q8 = struct.pack("<e32b", 0.5, *range(-16, 16))
    right = [0.5 * i for i in range(-16, 16)]
    base = {"Q8_0.blocks": ("U8", [1, 34], q8), "Q8_0.values": ("F32", [1, 32], right)}
    put("blocks", "right", safetensors(base))
    put("blocks", "wrong", safetensors({**base, "Q8_0.values": ("F32", [32], [1.0] * 32)}))
    put("blocks", "nan", safetensors({**base, "Q8_0.values": ("F32", [32], [float("nan")] * 32)}))
    put("blocks", "no_values", safetensors({"Q8_0.blocks": base["Q8_0.blocks"]}))
    put("blocks", "few_values", safetensors({**base, "Q8_0.values": ("F32", [31], None)}))
    put("blocks", "values_f64", safetensors({**base, "Q8_0.values": ("F64", [32], None)}))
    put("blocks", "ragged", safetensors({**base, "Q8_0.blocks": ("U8", [2, 17], q8)}))
    put("blocks", "not_bytes", safetensors({**base, "Q8_0.blocks": ("I16", [17], q8)}))
    put("blocks", "scalar", safetensors({"Q8_0.blocks": ("U8", [], b"\0")}))
    put("blocks", "no_dtype", safetensors({"Q9_9.blocks": ("U8", [1, 34], q8)}))
    put("blocks", "long_name", safetensors({"Q" * 40 + ".blocks": ("U8", [1, 34], q8)}))
    put("blocks", "nothing", safetensors({"a": ("U8", [1], None)}))
    put("blocks", "two", safetensors({
        **base, "Q4_0.blocks": ("U8", [1, 18], None), "Q4_0.values": ("F32", [32], None)}))


# ----------------------------------------------------------------- golden cases, profiles

CASE = {"B": 1, "Hq": 2, "Hkv": 1, "Sq": 2, "Sk": 3, "D": 2, "Dv": 1, "causal": True}


def case(tensors=None, **changes):
    made = {"q": ("F32", [1, 2, 2, 2], None), "k": ("F32", [1, 1, 3, 2], None), "v": ("F32", [1, 1, 3, 1], None),
            "entropy": ("F64", [1, 2, 2], None), **(tensors or {})}
    options = {k: v for k, v in {**CASE, **changes}.items() if v is not None}
    return safetensors({k: v for k, v in made.items() if v is not None}, {"case": json.dumps(options)})


def make_cases():
    put("verify_case", "good", case())
    for name, changes in {
        "no_size": {"Sq": None}, "size_text": {"Sq": "x"}, "size_past": {"D": 257}, "size_negative": {"B": 0}, "heads": {"Hq": 3, "Hkv": 2},
        "batch_heads": {"B": 1 << 20, "Hq": 2}, "window_negative": {"window_left": -1}, "window_text": {"window_right": "x"},
        "scale": {"scale": 1e9}, "scale_text": {"scale": "x"}, "softcap": {"softcap": -1.0}, "score": {"max_score": 1e9},
        "causal_number": {"causal": 1}, "sink": {"window_sink": 1, "window_left": 0}}.items():
        put("verify_case", name, case(**changes))
    for name, tensors in {
        "no_q": {"q": None}, "q_shape": {"q": ("F32", [1, 2, 2, 3], None)}, "q_dims": {"q": ("F32", [8], None)}, "q_int": {"q": ("I32", [1, 2, 2, 2], None)},
        "argmax_float": {"argmax": ("F64", [1, 2, 2], None)}, "length_past": {"key_length": ("I64", [1], [4])}, "start": {"query_start": ("I64", [1], [1 << 50])},
        "segments": {"segments": ("I64", [3], [0, 1, 2]), "segment_mass": ("F64", [1, 2, 2, 3], None)}, "segments_few": {"segments": ("I64", [3], [0, 1, 2]), "segment_mass": ("F64", [1, 2, 2, 2], None)},
        "segments_past": {"segments": ("I64", [3], [0, 1, 9])}, "mass_alone": {"segment_mass": ("F64", [1, 2, 2, 3], None)}, "dq_alone": {"dq": ("F32", [1, 2, 2, 2], None)},
        "dsinks_alone": {"grad_out": ("F32", [1, 2, 2, 1], None), "dsinks": ("F64", [2], None)},
        "gradients": {"grad_out": ("F32", [1, 2, 2, 1], None), "grad_entropy": ("F32", [1, 2, 2], None), "grad_lse": ("F32", [1, 2, 2], None), "dq": ("F32", [1, 2, 2, 2], None)}}.items():
        put("verify_case", name, case(tensors))
    put("verify_case", "list", safetensors({}, {"case": "[1]"}))
    put("verify_case", "no_case", safetensors({}, {"format": "pt"}))


def read_safetensors(data):
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items()}, metadata


def make_profiles():
    with open(os.path.join(os.path.dirname(__file__), "corpus", "profile", "one_format_2"), "rb") as file:
        tensors, metadata = read_safetensors(file.read())
    for name, changes in {
        "no_format": {"format": None}, "format": {"format": "zz"}, "no_kept": {"kept": None}, "kept_text": {"kept": "x"}, "heads_text": {"heads": "1,2"},
        "heads_many": {"heads": "1 " * 2000 + "1"}, "types_text": {"types": ""}, "no_type": {"type.0": None}, "settings_many": {"settings": "context " * 200}}.items():
        put("profile", name, safetensors({}, {k: v for k, v in {**metadata, **changes}.items() if v is not None}))
    for name, (tensor, content) in {
        "tokens_negative": ("totals", values("I64", [-1, 0])), "sequences_many": ("totals", values("I64", [1, 5])), "count_negative": ("count", values("I64", [-1] * 9)),
        "sum_large": ("sum", b"\xff" * 7 + b"\x7f" + bytes(136)), "unit_large": ("type.lookback", values("I64", [1 << 60])), "max_low": ("max", values("F32", [-9.0] * 9)),
        "histogram_many": ("histogram", values("I64", [1] + [0] * 191)), "place": ("broken_place", values("I64", [5, 5])), "probe_high": ("probe", values("F64", [2.0, 0, 0])),
        "mean_infinite": ("sequence.mean", values("F32", [float("inf"), 0, 0])), "kept_negative": ("sequence.count", None), "positions_infinite": ("sequence.position", None)}.items():
        if tensor not in tensors:
            continue
        dtype, shape, old = tensors[tensor]
        filler = values(dtype, [-1] * count(shape)) if dtype == "I64" else values("F32", [float("inf")] * count(shape)) if dtype == "F32" else old
        put("profile", name, safetensors({**tensors, tensor: (dtype, shape, filler if content is None else content)}, metadata))
    few = {k: v for k, v in tensors.items() if k in ("broken", "broken_place", "count")}
    put("profile", "tensor_missing", safetensors(few, metadata))
    put("profile", "tensor_more", safetensors({**few, "zzz": ("U8", [1], None)}, metadata))
    put("profile", "tensor_dtype", safetensors({**few, "broken": ("F64", [1, 1], None)}, metadata))
    put("profile", "tensor_shape", safetensors({**few, "broken": ("I64", [2, 1], None)}, metadata))
    shorter = dict(tensors)
    dtype, shape, old = shorter["sequence.hash"]
    shorter["sequence.hash"] = (dtype, [0], b"")
    put("profile", "kept_fewer", safetensors(shorter, metadata))
    put("profile", "state_first_format", safetensors(
        {k: v for k, v in tensors.items()}, {**metadata, "format": "headlight profile 1", "headlight.state": "x"}))


# --------------------------------------------------------------------------- states, tables

def make_states():
    two = {"score.entropy": ("F64", [2], [0.5, 1.5]), "empty": ("F64", [0], b"")}
    put("sweep_state", "two", safetensors(two, {"headlight.sweep": "key"}))
    put("sweep_state", "other_key", safetensors(two, {"headlight.sweep": "another"}))
    put("sweep_state", "no_key", safetensors(two, {"format": "pt"}))
    put("sweep_state", "not_f64", safetensors({"a": ("F32", [1], [1.0])}, {"headlight.sweep": "key"}))
    put("sweep_state", "not_a_list", safetensors({"a": ("F64", [1, 1], [1.0])}, {"headlight.sweep": "key"}))
    put("sweep_state", "same_name", safetensors({"one more": ("F64", [1], [1.0])}, {"headlight.sweep": "key"}))
    place = "text %016x max_tokens %d part %d of %d document %d token %d windows %d counted %d overlap %d"
    text = 0xbc91b3ca7bd74a4a  # of the token ids in fuzz_measure_state.c
    for name, numbers in {
        "other_text": (1, 0, 0, 1, 0, 4, 1, 4, 0), "max_tokens": (text, 5, 0, 1, 0, 4, 1, 4, 0),
        "part": (text, 0, 1, 1, 0, 4, 1, 4, 0), "parts": (text, 0, 0, 3, 0, 4, 1, 4, 0),
        "document": (text, 0, 0, 1, 9, 4, 1, 4, 0), "token": (text, 0, 0, 1, 0, 400, 1, 4, 0),
        "negative": (text, 0, 0, 1, -1, -4, -1, -4, -1), "windows": (text, 0, 0, 1, 0, 4, 1 << 62, 4, 0),
        "start": (text, 0, 0, 1, 0, 0, 0, 0, 0), "next": (text, 0, 0, 1, 0, 4, 1, 4, 0),
        "end": (text, 0, 0, 1, 3, 0, 5, 17, 0), "overlap": (text, 0, 0, 1, 0, 4, 1, 4, 3),
    }.items():
        put("measure_state", name, place % numbers)
    put("measure_state", "words", "text abc")
    put("measure_state", "spaces", (place % (text, 0, 0, 1, 0, 4, 1, 4, 0)).replace(" ", "  "))


def make_tables():
    base = {"a": "one", "b": "two", "tables": {
        "points": {"rows": [{"layer": 0, "head": 0}]}, "heads": {"rows": [{"layer": 0}, {}]}}}
    put("tables", "both", json.dumps(base))
    put_changed("tables", base, {
        "no_tables": {"tables": None}, "tables_list": {"tables": []}, "no_points": {"tables/points": None},
        "no_heads": {"tables/heads": None}, "no_rows": {"tables/points": {}},
        "rows_object": {"tables/points": {"rows": {}}}, "row_number": {"tables/heads/rows/0": 5},
        "row_list": {"tables/points/rows/0": [1]},
        "layer_past": {"tables/points/rows/0/layer": 99}, "head_past": {"tables/points/rows/0/head": 99},
        "layer_negative": {"tables/points/rows/0/layer": -1}, "layer_text": {"tables/points/rows/0/layer": "0"},
        "name_number": {"a": 5}, "name_missing": {"b": None}})
    put("tables", "list", "[]")
    put("tables", "open", '{"tables": {')


# ----------------------------------------------------------------------------- JSON of all kinds

def make_json():
    for name, text in {
        "bad_kind_real": '{"i": 0.5, "s": 1}', "bad_kind_bool": '{"i": true}', "bad_kind_null": '{"d": null}',
        "bad_kind_text": '{"b": "x"}', "bad_kind_list": '{"s": [1]}', "bad_kind_object": '{"i": {}}',
        "all": '{"i": 1, "d": 2, "b": false, "s": "x"}', "real": '{"d": 0.25}',
    }.items():
        put("json", name, text)


def make_labels():
    base = {"tokens": [0, 1], "right": True}
    put_changed("labels", base, {
        "range_number": {"tokens": 5}, "range_three": {"tokens": [0, 1, 2]}, "range_texts": {"tokens": ["a", "b"]},
        "range_fraction": {"tokens": [0, 0.5]}, "no_range": {"tokens": None}, "both": {"characters": [0, 1]},
        "no_right": {"right": None}, "right_number": {"right": 1}, "trace_number": {"trace": 5}})
    put("labels", "line_list", "[1]\n")
    put("labels", "line_number", "5\n")


def make_gates():
    base = {"L0": 0.5, "L1H1": 0}
    put_changed("gates", base, {"above": {"L0": 1.5}, "below": {"L1H1": -1}, "text": {"L0": "x"},
                                "layer_past": {"L9": 0}, "head_past": {"L0H9": 0}, "true": {"L0": True}})
    put("gates", "number", "5")
    put("gates", "array", "[0]")
    twelve = [0.5] * 12
    put("gates", "tensor", safetensors({"gates": ("F32", [3, 4], twelve)}))
    put("gates", "tensor_alone", safetensors({"any": ("F32", [3, 4], twelve)}))
    put("gates", "tensor_above", safetensors({"gates": ("F32", [3, 4], twelve[:-1] + [1.5])}))
    put("gates", "tensor_nan", safetensors({"gates": ("F32", [3, 4], twelve[:-1] + [float("nan")])}))
    put("gates", "tensor_shape", safetensors({"gates": ("F32", [4, 3], twelve)}))
    put("gates", "tensor_f64", safetensors({"gates": ("F64", [3, 4], twelve)}))
    put("gates", "tensor_none", safetensors({"a": ("U8", [0], b""), "b": ("U8", [0], b"")}))


LLAMA = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 8, "vocab_size": 8, "max_position_embeddings": 16,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": True}
GEMMA = {**LLAMA, "model_type": "gemma2", "head_dim": 4, "query_pre_attn_scalar": 4, "sliding_window": 4,
         "hidden_activation": "gelu_pytorch_tanh"}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 8, "n_positions": 16}
DECI = {**LLAMA, "model_type": "nemotron-nas"}


def rope(**settings):
    return {"rope_scaling": {"rope_type": "linear", "factor": 2.0, **settings}}


def make_config():
    put_changed("config", LLAMA, {
        "no_type": {"model_type": None}, "type_number": {"model_type": 5}, "type_unknown": {"model_type": "zzz"},
        "no_hidden": {"hidden_size": None}, "no_layers": {"num_hidden_layers": None},
        "hidden_text": {"hidden_size": "8"}, "hidden_negative": {"hidden_size": -8},
        "hidden_fraction": {"hidden_size": 8.5}, "eps_text": {"rms_norm_eps": "x"}, "eps_zero": {"rms_norm_eps": -1},
        "tie_number": {"tie_word_embeddings": 1}, "act_number": {"hidden_act": 5}, "act_unknown": {"hidden_act": "zz"},
        "act_relu2": {"hidden_act": "relu2"}, "heads_odd": {"num_attention_heads": 3},
        "kv_odd": {"num_attention_heads": 4, "num_key_value_heads": 3, "head_dim": 2},
        "kv_many": {"num_key_value_heads": 4}, "kv_zero": {"num_key_value_heads": 0},
        "head_dim_huge": {"head_dim": 512}, "heads_wide": {"hidden_size": 1024, "num_attention_heads": 1, "num_key_value_heads": 1},
        "skip_all": {"num_hidden_layers": 1, "per_layer_config": {"0": {"skip": ["attention"]}}}, "mlp_huge": {"intermediate_size": 1 << 40},
        "mlp_zero": {"intermediate_size": 0}, "heads_zero": {"num_attention_heads": 0},
        "eos_text": {"eos_token_id": "x"}, "eos_list": {"eos_token_id": [1, 2]},
        "eos_list_text": {"eos_token_id": ["x"]}, "eos_many": {"eos_token_id": list(range(40))},
        "eos_huge": {"eos_token_id": 1 << 40}, "bos_list": {"bos_token_id": [1]}, "bos_text": {"bos_token_id": "x"},
        "quant_8bit": {"quantization_config": {"load_in_8bit": True}},
        "quant_nameless": {"quantization_config": {}}, "quant_gptq": {"quantization_config": {"quant_method": "gptq"}},
        "rope_theta_one": {"rope_theta": 1.0}, "rope_theta_text": {"rope_theta": "x"},
        "rope_fraction": {"partial_rotary_factor": 1.5}, "rope_fraction_odd": {"partial_rotary_factor": 0.3},
        "rope_not_object": {"rope_scaling": 5}, "rope_params_list": {"rope_parameters": [1]},
        "rope_kind_number": rope(rope_type=5), "rope_kind_unknown": rope(rope_type="zz"),
        "rope_factor_zero": rope(factor=0), "rope_factor_text": rope(factor="x"),
        "rope_dynamic": rope(rope_type="dynamic"),
        "rope_dynamic_small": {**rope(rope_type="dynamic"), "head_dim": 2},
        "rope_llama3_bad": rope(rope_type="llama3", low_freq_factor=4.0, high_freq_factor=1.0,
                                original_max_position_embeddings=8),
        "rope_yarn": rope(rope_type="yarn", original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=0.5),
        "rope_yarn_beta": rope(rope_type="yarn", beta_slow=-1.0, original_max_position_embeddings=8),
        "rope_yarn_factor": rope(rope_type="yarn", attention_factor=-1.0, original_max_position_embeddings=8),
        "rope_original": rope(rope_type="llama3", original_max_position_embeddings=0),
        "rope_no_original": {**rope(rope_type="yarn"), "max_position_embeddings": None},
        "rope_long": rope(rope_type="longrope", short_factor=[1.0, 2.0], long_factor=[1.0, 2.0],
                          original_max_position_embeddings=8),
        "rope_long_uneven": rope(rope_type="longrope", short_factor=[1.0], long_factor=[1.0, 2.0]),
        "rope_long_wrong": rope(rope_type="longrope", short_factor=[1.0], long_factor=[1.0]),
        "rope_long_zero": rope(rope_type="longrope", short_factor=[1.0, 0], long_factor=[1.0, 2.0]),
        "rope_long_none": rope(rope_type="longrope", short_factor=[], long_factor=[]),
    })
    put_changed("config", GEMMA, {
        "types_few": {"layer_types": ["full_attention"]}, "types_number": {"layer_types": [1, 2]},
        "types_unknown": {"layer_types": ["full_attention", "linear_attention"]},
        "types": {"layer_types": ["full_attention", "sliding_attention"]}, "types_object": {"layer_types": {}},
        "scalar_zero": {"query_pre_attn_scalar": 0}, "softcap_text": {"attn_logit_softcapping": "x"},
        "window_negative": {"sliding_window": -4}, "window_text": {"sliding_window": "x"}})
    put_changed("config", MIXTRAL, {
        "experts": {}, "experts_too_many": {"num_experts_per_tok": 5}, "experts_none": {"num_experts_per_tok": 0},
        "experts_text": {"num_local_experts": "x"}})
    put_changed("config", GPT2, {
        "positions_none": {"n_positions": None}, "heads_none": {"n_head": 0}, "act": {"activation_function": "relu"},
        "inner": {"n_inner": [1]}, "inner_given": {"n_inner": 32}, "inner_huge": {"n_embd": 1 << 20, "n_head": 8192}})
    put_changed("config", {**LLAMA, "model_type": "granite", "embedding_multiplier": 2.0, "logits_scaling": 2.0,
                           "residual_multiplier": 1.0, "attention_multiplier": 0.5}, {
        "scale_zero": {"embedding_multiplier": 0}, "scale_negative": {"logits_scaling": -2.0},
        "scores_zero": {"attention_multiplier": 0.0}, "residual_zero": {"residual_multiplier": 0}})
    layers = {"0": {"num_attention_heads": 1}, "1": {"skip": "mlp"}}
    put_changed("config", {**LLAMA, "per_layer_config": layers}, {
        "layers_number": {"per_layer_config": 5}, "layers_past": {"per_layer_config/7": {}},
        "layers_name": {"per_layer_config/x": {}}, "layers_skip": {"per_layer_config/1": {"skip": "norm"}},
        "layers_text": {"per_layer_config/0": {"num_attention_heads": "x"}}, "layers_entry": {"per_layer_config/0": 5},
        "layers_no_kv": {"per_layer_config/0": {"num_key_value_heads": 0}}, "layers_mlp": {"per_layer_config/0": {"intermediate_size": 1 << 50}}})
    put("config", "number", "5")
    put("config", "generation", json.dumps({**LLAMA, "eos_token_id": [2, 3], "pad_token_id": 0, "bos_token_id": 1}))


# ----------------------------------------------------------------------------------- tokenizers

WORDS = {"added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
         "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "H": 3, "e": 4, "<s>": 5, "</s>": 6, " ": 7},
                   "merges": ["a b"]}}
STEPS = {
    "normalizer": [
        {"type": "NFD"}, {"type": "NFKD"}, {"type": "NFC"}, {"type": "NFKC"}, {"type": "ByteLevel"}, {"type": "Lowercase"},
        {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "StripAccents"}, {"type": "Nmt"},
        {"type": "Prepend", "prepend": "x"}, {"type": "Prepend"}, {"type": "Replace", "pattern": {"String": "l"}, "content": "r"},
        {"type": "Replace", "pattern": {"Regex": "[a-c]+"}, "content": ""}, {"type": "Replace", "pattern": {"Regex": "("}, "content": ""},
        {"type": "Replace", "pattern": {}, "content": ""}, {"type": "Replace", "pattern": {"String": "l"}},
        {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        {"type": "Precompiled"}, {"type": "Precompiled", "precompiled_charsmap": ""}, {"type": "Precompiled", "precompiled_charsmap": None},
        {"type": "Precompiled", "precompiled_charsmap": "AAA="}, {"type": "Precompiled", "precompiled_charsmap": "!!!!"},
        {"type": "Precompiled", "precompiled_charsmap": "/////w=="}, {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAD/"},
        {"type": "Zzz"}, 5, {"type": "Sequence"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}, 5]}],
    "pre_tokenizer": [
        {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}, {"type": "ByteLevel", "add_prefix_space": True},
        {"type": "ByteLevel", "use_regex": False}, {"type": "Digits", "individual_digits": True}, {"type": "Digits"},
        {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Punctuation", "behavior": "Zzz"},
        {"type": "CharDelimiterSplit", "delimiter": "l"}, {"type": "CharDelimiterSplit"}, {"type": "UnicodeScripts"},
        {"type": "FixedLength", "length": 3}, {"type": "FixedLength", "length": 0}, {"type": "FixedLength", "length": -1},
        {"type": "FixedLength", "length": "x"}, {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": False}, {"type": "Metaspace", "prepend_scheme": "never"},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "zzz"}, {"type": "Metaspace", "replacement": "_", "add_prefix_space": False},
        {"type": "Split", "pattern": {"String": "l"}, "behavior": "MergedWithPrevious"},
        {"type": "Split", "pattern": {"String": "l"}, "behavior": "MergedWithNext", "invert": True},
        {"type": "Split", "pattern": {"Regex": "l+"}, "behavior": "Contiguous"}, {"type": "Split", "pattern": {"Regex": "l"}, "behavior": "Removed"},
        {"type": "Split", "pattern": {"Regex": "["}, "behavior": "Removed"}, {"type": "Split", "behavior": "Removed"},
        {"type": "Split", "pattern": {"String": "l"}, "behavior": "Nothing"}, {"type": "Zzz"}, [1]],
    "post_processor": [
        {"type": "ByteLevel", "trim_offsets": True}, {"type": "ByteLevel", "trim_offsets": 5},
        {"type": "BertProcessing", "sep": ["</s>", 6], "cls": ["<s>", 5]}, {"type": "BertProcessing", "sep": ["</s>", -1], "cls": ["<s>", 5]},
        {"type": "BertProcessing"}, {"type": "RobertaProcessing", "sep": ["</s>", 6], "cls": ["<s>", 5], "trim_offsets": True},
        {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]}]},
        {"type": "Sequence", "processors": [5]}, {"type": "Zzz"}, 5,
        {"type": "TemplateProcessing", "single": "<s> $A </s>", "special_tokens": {"<s>": {"ids": [5]}, "</s>": {"ids": [6]}}},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}},
                                                  {"SpecialToken": {"id": "</s>"}}],
         "special_tokens": {"<s>": {"ids": [5]}, "</s>": {"ids": [6]}}},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "zz"}}], "special_tokens": {}},
        {"type": "TemplateProcessing", "single": [{"Other": {}}], "special_tokens": {}}, {"type": "TemplateProcessing"},
        {"type": "TemplateProcessing", "single": ["<s>", "$A", "</s>"], "special_tokens": [{"id": "<s>", "ids": [5]}]},
        {"type": "TemplateProcessing", "single": ["x" * 300], "special_tokens": {}},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {"<s>": {"ids": ["x"]}}}],
    "decoder": [
        {"type": "ByteLevel"}, {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "WordPiece", "prefix": "", "cleanup": False},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}, {"type": "BPEDecoder", "suffix": "b"}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 1, "stop": 1}, {"type": "Strip", "content": "a", "start": -1, "stop": 1},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "z"}, {"type": "Replace", "pattern": {"Regex": "a*"}, "content": "z"},
        {"type": "Replace", "pattern": {"Regex": "("}, "content": "z"}, {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True},
        {"type": "Zzz"}, 5, {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}] * 20},
        {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"Regex": ""}, "content": "-"}, {"type": "Fuse"}]}],
}


def nested(kind, depth):
    step = {"type": "ByteLevel"}
    for _ in range(depth):
        step = {"type": "Sequence", kind: [step]}
    return step


def make_tokenizer():
    for part, steps in STEPS.items():
        for i, step in enumerate(steps):
            put("tokenizer", "%s_%02d" % (part, i), json.dumps(changed(WORDS, {part: step})))
    for part, kind in {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders",
                       "post_processor": "processors"}.items():
        put("tokenizer", part + "_deep", json.dumps(changed(WORDS, {part: nested(kind, 40)})))
    put_changed("tokenizer", WORDS, {
        "merge_lacks_left": {"model/merges": ["z b"]}, "merge_lacks_whole": {"model/merges": ["b a"]},
        "merge_one": {"model/merges": ["ab"]}, "merge_three": {"model/merges": [["a", "b", "c"]]},
        "merge_empty": {"model/merges": [["a", ""]]}, "merge_number": {"model/merges": [5]}, "merges_object": {"model/merges": {}},
        "vocab_list": {"model/vocab": []}, "vocab_text": {"model/vocab/a": "x"}, "vocab_negative": {"model/vocab/a": -1},
        "vocab_same": {"model/vocab/b": 0}, "model_none": {"model": None}, "model_unknown": {"model/type": "Zzz"},
        "model_list": {"model": []}, "dropout": {"model/dropout": 0.5}, "prefix_long": {"model/continuing_subword_prefix": "bbb"},
        "unknown_lacks": {"model/unk_token": "zz"}, "ignore_merges": {"model/ignore_merges": True}})
    added = {"id": 5, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    for name, changes in {
        "no_content": {"content": None}, "empty": {"content": ""}, "negative": {"id": -1}, "no_id": {"id": None},
        "single": {"content": "ab", "id": 2, "single_word": True}, "right": {"rstrip": True, "lstrip": True},
        "normalized": {"normalized": True, "content": "ABC", "id": 9}, "plain": {"special": False}, "other": {"zzz": [1, {"a": 2}]},
        "flag_number": {"special": 1}, "id_text": {"id": "5"}, "content_number": {"content": 5},
        "world": {"content": "rld", "id": 10, "single_word": True}, "number": {"content": "1234", "id": 11, "rstrip": True}}.items():
        put("tokenizer", "added_" + name, json.dumps({**WORDS, "normalizer": {"type": "Lowercase"}, "added_tokens": [changed(added, changes)]}))
    put("tokenizer", "added_object", json.dumps({**WORDS, "added_tokens": {}}))
    put("tokenizer", "added_many", json.dumps({**WORDS, "added_tokens": [{**added, "id": 20 + i, "content": "t%d" % i} for i in range(3)]}))
    for name, text in {
        "escape_pair": '{"model": {"type": "WordLevel", "unk_token": "a", "vocab": {"\\ud83d\\ude00": 1, "a": 0, "\\u00E4\\n\\t": 2}}}',
        "escape_half": '{"model": {"type": "\\ud83d"}}', "escape_low": '{"model": {"type": "\\udc00"}}',
        "escape_short": '{"model": {"type": "\\u12"}}', "escape_hex": '{"model": {"type": "\\u12zz"}}', "escape_unknown": '{"a": "\\x"}',
        "escape_end": '{"a": "\\', "control": '{"a": "\x01"}', "control_escaped": '{"a": "\\n\x01"}', "string_end": '{"a": "bc',
        "string_end_escaped": '{"a": "b\\nc', "wrong_bracket": '{"a": [1}', "no_colon": '{"a" 1}', "no_comma": '{"a": 1 "b": 2}',
        "after": '{} x', "lines": '{\n"a": 1,\n zz', "deep": '{"a": ' + "[" * 2100, "number_dot": '{"a": 1.}', "number_e": '{"a": 1e}',
        "number_exponent": '{"a": [1e5, -2.5E-3, 0, 1e+2]}', "number_zero": '{"a": 01}', "minus": '{"a": -}', "literal": '{"a": trux}',
        "added_bool": '{"added_tokens": [{"special": maybe}]}', "literals": '{"a": [true, false, null]}', "array": "[1]", "nothing_in": "{"}.items():
        put("tokenizer", "json_" + name, text)


def charsmap(rules):
    """Of single bytes: {byte: text}, as a double-array trie whose root is at 1."""
    units, texts = [0] * 512, b""
    units[0] = 1 << 10
    for i, (byte, text) in enumerate(rules.items()):
        leaf = 256 + i
        units[1 ^ byte] = byte | 1 << 8 | ((1 ^ byte) ^ leaf) << 10
        units[leaf] = 1 << 31 | len(texts)
        texts += text + b"\0"
    trie = struct.pack("<512I", *units)
    return struct.pack("<I", len(trie)) + trie + texts


def make_unigram():
    vocab = [["<unk>", 0.0], ["\u2581", -1.0], ["h", -2.0], ["\u2581h", -1.5], ["e", -2.0], ["o", -2.5], ["r", -3.0]]
    rules = charsmap({ord("H"): b"", ord("l"): b"", ord("o"): b"oo", ord("w"): b"W", ord("1"): b"\xc3\xa9"})
    base = {"model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False},
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(rules).decode()},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
            "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}}
    put("tokenizer", "unigram_rules", json.dumps(base))
    put_changed("tokenizer", base, {
        "unigram_no_unknown": {"model/unk_id": None}, "unigram_unknown_past": {"model/unk_id": 99}, "unigram_fallback": {"model/byte_fallback": True},
        "unigram_score": {"model/vocab/1": ["x"]}, "unigram_three": {"model/vocab/1": ["x", 1.0, 2.0]}, "unigram_twice": {"model/vocab/1": ["h", 0.0]},
        "unigram_nan": {"model/vocab/1": ["x", 1e400]}})


def make_chat():
    for name, markers in {
        "chatml": "<|im_start|><|im_end|>", "llama3": "<|start_header_id|><|end_header_id|><|eot_id|>",
        "gemma": "<start_of_turn><end_of_turn>", "mistral": "[INST][/INST]", "phi3": "<|user|><|assistant|><|end|>",
        "unknown": "{{ messages }}", "bos": "{{ bos_token }}<|im_start|><|im_end|>", "phi3_bos": "{{ bos_token }}<|user|><|assistant|><|end|>",
        "llama31": "<|start_header_id|><|end_header_id|><|eot_id|>Cutting Knowledge Date: December 2023 Today Date: 26 Jul 2024",
        "llama31_bos": "{{ bos_token }}{{- bos_token }}<|start_header_id|><|end_header_id|><|eot_id|>Cutting Knowledge Date: ",
        "qwen": "<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n'",
        "qwen_concatenated": "'<|im_start|>system\nYou are a helpful assistant<|im_end|>\n'",
        "mistral_spaces": "' [INST] ' + x + ' [/INST]'", "mistral_new": "'[INST] ' + x + ' [/INST] '",
        "mistral_tight": "[INST]{{ x }}[/INST]"}.items():
        put("chat", name, markers)
        put("chat", name + "_config", json.dumps({"chat_template": markers, "bos_token": "<s>"}))
    base = {"bos_token": "<s>", "eos_token": {"content": "<|im_end|>", "lstrip": False, "special": True}, "unk_token": None,
            "pad_token": {"content": 5}, "sep_token": "none", "cls_token": ["a"], "mask_token": "a", "model_max_length": 10 ** 30,
            "chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "<|im_start|><|im_end|>", "more": [1]}]}
    put("chat", "config", json.dumps(base))
    put_changed("chat", base, {
        "template_number": {"chat_template": 5}, "templates_texts": {"chat_template": ["x"]}, "template_no_default": {"chat_template/1/name": "x"},
        "template_name_number": {"chat_template/0/name": 5}, "bos_twice": {"cls_token": {"content": "<s>", "content2": "x"}}})
    put("chat", "template_cut", '{"chat_template": [{"name": "default"')
    put("chat", "token_cut", '{"bos_token": {"content": ')
    put("chat", "array", "[1]")


def make_encode():
    put("encode", "specials", "<s>a</s> [CLS] [SEP] <|endoftext|><unk>")
    put("encode", "emoji", "\U0001f600\u200d\U0001f600 \u0301\u0302")
    put("encode", "controls", "\x00\x01\t\r\n \u00a0\u2028\ufeff\ufffd")
    put("encode", "bytes", bytes(range(256)))


# -------------------------------------------------------------------------------- folders

def folder(files):
    out = b""
    for name, content in files.items():
        out += (b"\n" if out else b"") + b"@@" + name.encode() + b"\n"
        out += content if isinstance(content, bytes) else content.encode()
    return out


def weights(config, prefix="model."):
    d, kv, mlp, vocab = 8, 4, config["intermediate_size"], config["vocab_size"]
    tensors = {prefix + "embed_tokens.weight": ("F32", [vocab, d], [0.01 * i for i in range(vocab * d)]), prefix + "norm.weight": ("F32", [d], None)}
    for layer in range(config["num_hidden_layers"]):
        at = "%slayers.%d." % (prefix, layer)
        for name, shape in {"input_layernorm": [d], "post_attention_layernorm": [d], "self_attn.q_proj": [d, d],
                            "self_attn.k_proj": [kv, d], "self_attn.v_proj": [kv, d], "self_attn.o_proj": [d, d],
                            "mlp.gate_proj": [mlp, d], "mlp.up_proj": [mlp, d], "mlp.down_proj": [d, mlp]}.items():
            tensors[at + name + ".weight"] = ("F32", shape, [0.1] * count(shape))
    return tensors


def index(first, second, **changes):
    return json.dumps({"weight_map": {**{n: "model-00001-of-00002.safetensors" for n in first},
                                      **{n: "model-00002-of-00002.safetensors" for n in second}, **changes}})


SMALL = {**LLAMA, "num_hidden_layers": 1}


def make_folders():
    config, all_weights = json.dumps(SMALL), weights(SMALL)
    whole = {"config.json": config, "model.safetensors": safetensors(all_weights)}
    names = list(all_weights)
    first = {n: all_weights[n] for n in names[:4]}
    second = {n: all_weights[n] for n in names[4:]}
    sharded = {"config.json": config, "model.safetensors.index.json": index(first, second),
               "model-00001-of-00002.safetensors": safetensors(first), "model-00002-of-00002.safetensors": safetensors(second)}
    put("folder", "whole", folder(whole))
    put("folder", "no_prefix", folder({**whole, "model.safetensors": safetensors(weights(SMALL, ""))}))
    put("folder", "generation", folder({**whole, "generation_config.json": '{"eos_token_id": 2}'}))
    put("folder", "sharded", folder(sharded))
    for name, changes in {
        "shard_missing": {"model-00002-of-00002.safetensors": None}, "index_list": {"model.safetensors.index.json": "[]"},
        "index_empty": {"model.safetensors.index.json": '{"weight_map": {}}'},
        "index_number": {"model.safetensors.index.json": index(first, second, x=5)},
        "index_outside": {"model.safetensors.index.json": index(first, second, x="../x.safetensors")},
        "index_dots": {"model.safetensors.index.json": index(first, second, x="..")},
        "index_absent": {"model.safetensors.index.json": index(first, second, x="model-00001-of-00002.safetensors")},
        "index_lacks": {"model.safetensors.index.json": index(first, names[4:-1])},
        "index_swapped": {"model.safetensors.index.json": index(second, first)},
        "index_open": {"model.safetensors.index.json": "{"}, "index_none": {"model.safetensors.index.json": None},
        "same_tensor": {"model-00002-of-00002.safetensors": safetensors({**second, names[0]: first[names[0]]})},
    }.items():
        put("folder", name, folder({k: v for k, v in {**sharded, **changes}.items() if v is not None}))
    put("folder", "config_none", folder({"model.safetensors": whole["model.safetensors"]}))
    for name, quant in {"gptq": {"quant_method": "gptq"}, "bits": {"load_in_4bit": True}, "nameless": {}, "mxfp4": {"quant_method": "mxfp4"}}.items():
        put("folder", "quant_" + name, folder({**whole, "config.json": json.dumps({**SMALL, "quantization_config": quant})}))
    put("folder", "quant_inner", folder({**whole, "config.json": json.dumps({**SMALL, "text_config": {"quantization_config": {"quant_method": "awq"}}})}))
    put("folder", "weight_shape", folder({**whole, "model.safetensors": safetensors({**all_weights, "model.norm.weight": ("F32", [7], None)})}))
    put("folder", "weight_dtype", folder({**whole, "model.safetensors": safetensors({**all_weights, "model.norm.weight": ("I32", [8], None)})}))
    put("folder", "weight_missing", folder({**whole, "model.safetensors": safetensors(first)}))
    put("folder", "weight_more", folder({**whole, "model.safetensors": safetensors({**all_weights, "x": ("U8", [1], None)})}))
    put("folder", "config_only", folder({"config.json": config}))
    put("folder", "pickles", folder({"config.json": config, "pytorch_model.bin": b"\x80\x02x", "model.bin": b"PK\3\4"}))
    put("folder", "onnx", folder({"model.onnx": b"\x08\x07", "model.bin": b"<!DOCTYPE html>", "tokenizer.bin": "zz"}))
    put("folder", "gguf_only_by_name", folder({"model.gguf": "x", "model.safetensors": "y"}))
    put("folder", "numpy", folder({"model.bin": b"\x93NUMPY", "model.safetensors": "version https://git-lfs.github.com"}))
    gpt2 = {"wte.weight": ("F32", [8, 8], None), "wpe.weight": ("F32", [16, 8], None), "ln_f.gamma": ("F32", [8], None), "ln_f.beta": ("F32", [8], None)}
    for name, shape in {"ln_1.weight": [8], "ln_1.bias": [8], "ln_2.weight": [8], "ln_2.bias": [8], "attn.c_attn.weight": [8, 24],
                        "attn.c_attn.bias": [24], "attn.c_proj.weight": [8, 8], "attn.c_proj.bias": [8], "mlp.c_fc.weight": [8, 32],
                        "mlp.c_fc.bias": [32], "mlp.c_proj.weight": [32, 8], "mlp.c_proj.bias": [8]}.items():
        gpt2["h.0." + name] = ("F32", shape, None)
    put("folder", "gpt2", folder({"config.json": json.dumps(GPT2), "model.safetensors": safetensors(gpt2)}))
    put("folder", "gpt2_prefix", folder({"config.json": json.dumps(GPT2), "model.safetensors": safetensors({"transformer." + k: v for k, v in gpt2.items()})}))


def model_pairs(**changes):
    pairs = {"general.architecture": (TEXT, "llama"), "llama.block_count": (U32, 1), "llama.embedding_length": (U32, 8),
             "llama.attention.head_count": (U32, 2), "llama.attention.head_count_kv": (U32, 1), "llama.feed_forward_length": (U32, 8),
             "llama.context_length": (U32, 16), "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5), "llama.vocab_size": (U32, 8)}
    pairs.update({k.replace("__", "."): v for k, v in changes.items()})
    return [(k, v[0], v[1]) for k, v in pairs.items() if v is not None]


def model_tensors(**more):
    shapes = {"token_embd.weight": [8, 8], "output_norm.weight": [8], "blk.0.attn_norm.weight": [8], "blk.0.attn_q.weight": [8, 8],
              "blk.0.attn_k.weight": [8, 4], "blk.0.attn_v.weight": [8, 4], "blk.0.attn_output.weight": [8, 8],
              "blk.0.ffn_norm.weight": [8], "blk.0.ffn_gate.weight": [8, 8], "blk.0.ffn_up.weight": [8, 8], "blk.0.ffn_down.weight": [8, 8]}
    tensors = [(n, 0, s, values("F32", [0.1] * count(s))) for n, s in shapes.items()]
    return tensors + [(n.replace("__", "."), 0, [len(v)], values("F32", v)) for n, v in more.items()]


def vocab_pairs(model="llama", n=8, **changes):
    tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581a", "<0x41>"][:n]
    pairs = {"model": (TEXT, model), "tokens": (ARRAY, (TEXT, tokens)), "scores": (ARRAY, (F32, [-float(i) for i in range(n)])),
             "token_type": (ARRAY, (I32, [2, 3, 3, 1, 1, 1, 4, 6][:n]))}
    pairs.update(changes)
    return [("tokenizer.ggml." + k, v[0], v[1]) for k, v in pairs.items() if v is not None]


def put_gguf(name, pairs, tensors=(), **how):
    put("folder", "gguf_" + name, folder({"model.gguf": gguf(pairs, tensors, **how)}))


def make_gguf_models():
    tensors = model_tensors()
    put_gguf("whole", model_pairs() + vocab_pairs(), tensors)
    for name, changes in {
        "no_arch": {"general__architecture": None}, "arch_number": {"general__architecture": (U32, 5)}, "arch_unknown": {"general__architecture": (TEXT, "zz")},
        "arch_long": {"general__architecture": (TEXT, "l" * 300)}, "no_layers": {"llama__block_count": None}, "layers_text": {"llama__block_count": (TEXT, "x")},
        "layers_real": {"llama__block_count": (F32, 1.5)}, "layers_bool": {"llama__block_count": (BOOL, 1)}, "heads_list": {"llama__attention__head_count": (ARRAY, (I32, [2]))},
        "heads_list_long": {"llama__attention__head_count": (ARRAY, (I32, [2, 2]))}, "heads_list_text": {"llama__attention__head_count": (ARRAY, (TEXT, ["x"]))},
        "kv_list": {"llama__attention__head_count_kv": (ARRAY, (I32, [1]))}, "mlp_list": {"llama__feed_forward_length": (ARRAY, (I32, [8]))},
        "mlp_list_negative": {"llama__feed_forward_length": (ARRAY, (I32, [-8]))}, "no_vocab": {"llama__vocab_size": None}, "vocab_huge": {"llama__vocab_size": (U32, 1 << 31)},
        "eps_nan": {"llama__attention__layer_norm_rms_epsilon": (F32, float("nan"))}, "eps_int": {"llama__attention__layer_norm_rms_epsilon": (U32, 1)},
        "rope_linear": {"llama__rope__scaling__type": (TEXT, "linear"), "llama__rope__scaling__factor": (F32, 2.0), "llama__rope__dimension_count": (U32, 4)},
        "rope_yarn": {"llama__rope__scaling__type": (TEXT, "yarn"), "llama__rope__scaling__factor": (F32, 2.0), "llama__rope__freq_base": (F32, 1e4),
                      "llama__rope__scaling__original_context_length": (U32, 8), "llama__rope__scaling__attn_factor": (F32, 1.0)},
        "rope_unknown": {"llama__rope__scaling__type": (TEXT, "zz")}, "rope_dims_odd": {"llama__rope__dimension_count": (U32, 3)},
        "rope_dims_zero": {"llama__rope__dimension_count": (U32, 0)},
    }.items():
        put_gguf("model_" + name, model_pairs(**changes) + vocab_pairs(), tensors)
    put_gguf("freqs", model_pairs(), model_tensors(rope_freqs__weight=[1.0, 2.0]))
    put_gguf("freqs_zero", model_pairs(), model_tensors(rope_freqs__weight=[1.0, 0.0]))
    put_gguf("freqs_many", model_pairs(), model_tensors(rope_freqs__weight=[1.0] * 300))
    put_gguf("freqs_wrong", model_pairs(), model_tensors(rope_freqs__weight=[1.0] * 3))
    both = {"rope_factors_short__weight": [1.0, 2.0], "rope_factors_long__weight": [1.0, 2.0]}
    put_gguf("factors", model_pairs(llama__rope__scaling__original_context_length=(U32, 8)), model_tensors(**both))
    put_gguf("factors_uneven", model_pairs(), model_tensors(rope_factors_short__weight=[1.0, 2.0]))
    put_gguf("biases", model_pairs(general__architecture=(TEXT, "llama")), model_tensors(
        blk__0__attn_q__bias=[0.1] * 8, blk__0__attn_k__bias=[0.1] * 4, blk__0__attn_v__bias=[0.1] * 4))
    experts = [(n, 0, s, bytes(4 * count(s))) for n, s in {
        "blk.0.ffn_gate_inp.weight": [8, 2], "blk.0.ffn_gate_exps.weight": [8, 8, 2], "blk.0.ffn_up_exps.weight": [8, 8, 2],
        "blk.0.ffn_down_exps.weight": [8, 8, 2]}.items()]
    put_gguf("experts", model_pairs(llama__expert_count=(U32, 2), llama__expert_used_count=(U32, 1)), [t for t in tensors if "ffn_norm" in t[0] or "ffn" not in t[0]] + experts)
    make_split_gguf(tensors)


def make_split_gguf(tensors):
    def part(no, n, total, mine):
        split = [("split.no", U16, no), ("split.count", U16, n), ("split.tensors.count", I32, total)]
        return gguf(model_pairs() + split if no == 0 else split, mine)

    halves = {"model-00001-of-00002.gguf": part(0, 2, 11, tensors[:5]), "model-00002-of-00002.gguf": part(1, 2, 11, tensors[5:])}
    put("folder", "split", folder(halves))
    put("folder", "split_wrong_number", folder({**halves, "model-00002-of-00002.gguf": part(0, 2, 11, tensors[5:])}))
    put("folder", "split_wrong_total", folder({**halves, "model-00001-of-00002.gguf": part(0, 2, 12, tensors[:5])}))
    put("folder", "split_missing", folder({"model-00001-of-00002.gguf": halves["model-00001-of-00002.gguf"]}))
    put("folder", "split_renamed", folder({"model.gguf": halves["model-00001-of-00002.gguf"]}))
    put("folder", "split_huge", folder({"model.gguf": part(0, 60000, 11, tensors[:5])}))


def make_gguf_vocabs():
    merges = (ARRAY, (TEXT, ["a b"]))
    for name, pairs in {
        "llama": vocab_pairs(), "llama_plain": vocab_pairs(add_space_prefix=(BOOL, 0), add_bos_token=(BOOL, 0), add_eos_token=(BOOL, 1)),
        "gpt2": vocab_pairs("gpt2", pre=(TEXT, "gpt-2"), merges=merges), "gpt2_default": vocab_pairs("gpt2", merges=merges),
        "gpt2_unknown_pre": vocab_pairs("gpt2", pre=(TEXT, "zzz")), "gpt2_llama_bpe": vocab_pairs("gpt2", pre=(TEXT, "llama-bpe"), merges=merges, bos_token_id=(U32, 1)),
        "gpt2_bad_merge": vocab_pairs("gpt2", pre=(TEXT, "gpt-2"), merges=(ARRAY, (TEXT, ["ab"]))), "gpt2_lacks": vocab_pairs("gpt2", pre=(TEXT, "gpt-2"), merges=(ARRAY, (TEXT, ["x y"]))),
        "merges_numbers": vocab_pairs("gpt2", merges=(ARRAY, (I32, [1]))), "bert": vocab_pairs("bert", cls_token_id=(U32, 1), seperator_token_id=(U32, 2), unknown_token_id=(U32, 0)),
        "bert_case": vocab_pairs("bert", cls_token_id=(U32, 1)) + [("tokenizer.ggml.lowercase", BOOL, 0)], "bert_brackets": vocab_pairs("bert", tokens=(ARRAY, (TEXT, ["[PAD]", "[UNK]", "[CLS]", "\u2581hello", "\u2581a", "s", ",", "[SEP]"]))),
        "t5": vocab_pairs("t5"), "t5_charsmap": vocab_pairs("t5", precompiled_charsmap=(ARRAY, (U8, [4, 0, 0, 0, 0, 0, 0, 0, 65, 0])), remove_extra_whitespaces=(BOOL, 0), add_space_prefix=(BOOL, 0)),
        "t5_charsmap_texts": vocab_pairs("t5", precompiled_charsmap=(ARRAY, (TEXT, ["x"]))), "t5_charsmap_short": vocab_pairs("t5", precompiled_charsmap=(ARRAY, (U8, [1]))),
        "t5_no_scores": vocab_pairs("t5", scores=None), "unknown_model": vocab_pairs("zzz"), "no_model": vocab_pairs(model=None) if False else vocab_pairs("llama", tokens=None),
        "tokens_numbers": vocab_pairs(tokens=(ARRAY, (I32, [1]))), "scores_few": vocab_pairs(scores=(ARRAY, (F32, [1.0]))), "scores_texts": vocab_pairs(scores=(ARRAY, (TEXT, ["x"] * 8))),
        "types_texts": vocab_pairs(token_type=(ARRAY, (TEXT, ["x"] * 8))), "types_odd": vocab_pairs(token_type=(ARRAY, (I32, [99] * 8))), "no_types": vocab_pairs(token_type=None),
        "bos_past": vocab_pairs(bos_token_id=(U32, 99)), "bos_none": vocab_pairs(bos_token_id=(U32, 0xffffffff)), "bos_text": vocab_pairs(bos_token_id=(TEXT, "x")),
        "bos_bool": vocab_pairs(add_bos_token=(U32, 1)), "nul": vocab_pairs(tokens=(ARRAY, (TEXT, ["a", "a", "", "b", "c", "\0", "x", "y"]))),
        "template": vocab_pairs() + [("tokenizer.chat_template", TEXT, "<|im_start|><|im_end|>")], "template_number": vocab_pairs() + [("tokenizer.chat_template", U32, 5)],
        "equal_scores": vocab_pairs(scores=(ARRAY, (F32, [0.0] * 7 + [float("nan")])), tokens=(ARRAY, (TEXT, ["<unk>", "<s>", "</s>", "a", "b", "ab", "aab", "\u00e4b"])), token_type=(ARRAY, (I32, [2, 3, 3, 1, 1, 1, 1, 1]))),
    }.items():
        put_gguf("vocab_" + name, pairs)


def make_llama2c():
    header = struct.pack("<7i", 8, 8, 1, 2, 1, 8, 16)
    size = 8 * 8 + 8 + 64 + 32 + 32 + 64 + 8 + 64 * 3 + 8 + 16 * 2 * 2
    checkpoint = header + values("F32", [0.1] * size)
    def pieces(n):
        out = struct.pack("<i", 4)
        for i in range(n):
            text = b"abcd"[i % 4:i % 4 + 1 + (i > 300)]
            out += struct.pack("<fi", -float(i), len(text)) + text
        return out
    put("folder", "llama2c", folder({"model.bin": checkpoint, "tokenizer.bin": pieces(262)}))
    put("folder", "llama2c_few", folder({"model.bin": checkpoint, "tokenizer.bin": pieces(20)}))
    put("folder", "llama2c_cut", folder({"model.bin": checkpoint, "tokenizer.bin": pieces(262)[:-3]}))
    put("folder", "llama2c_alone", folder({"model.bin": checkpoint}))
    put("folder", "tokenizer_bin", folder({"tokenizer.bin": pieces(262)}))
    put("folder", "tokenizer_json", folder({"tokenizer.json": json.dumps(WORDS), "model.safetensors": "x"}))
    put("llama2c", "tokenizer_cut", pieces(3)[:-1])
    put("llama2c", "tokenizer_cut_length", pieces(3)[:-3])


# ------------------------------------------------------------------------------- requests

def request(method, path, body=b"", headers=(), host="localhost", kind="application/json", length=None, token="t"):
    body = body.encode() if isinstance(body, str) else body
    lines = ["%s %s HTTP/1.1" % (method, path)]
    lines += ["Host: " + host] if host is not None else []
    lines += ["Authorization: Bearer " + token] if token is not None else []
    lines += ["Content-Type: " + kind] if kind is not None and method == "POST" else []
    lines += ["Content-Length: %d" % (len(body) if length is None else length)] if method == "POST" else []
    return ("\r\n".join([*lines, "Connection: close", *headers]) + "\r\n\r\n").encode() + body


COMPLETION = {"prompt": "a", "max_tokens": 2, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
BODIES = {
    "completion": COMPLETION, "stream": {**COMPLETION, "stream": True, "stream_options": {"include_usage": True}}, "ids": {**COMPLETION, "prompt": [1, 2]},
    "many_ids": {**COMPLETION, "prompt": [[1, 2], [3]]}, "many_texts": {**COMPLETION, "prompt": ["a", "b"], "n": 2}, "mixed": {**COMPLETION, "prompt": ["a", 1]},
    "ids_past": {**COMPLETION, "prompt": [999]}, "ids_text": {**COMPLETION, "prompt": [1, "a"]}, "ids_none": {**COMPLETION, "prompt": []}, "ids_inner_none": {**COMPLETION, "prompt": [[]]},
    "prompt_number": {**COMPLETION, "prompt": 5}, "prompt_object": {**COMPLETION, "prompt": [{}]}, "prompt_empty": {**COMPLETION, "prompt": ""}, "prompt_many": {**COMPLETION, "prompt": ["a"] * 200},
    "prompt_none": {"max_tokens": 1}, "long": {**COMPLETION, "prompt": "a b " * 100}, "model": {**COMPLETION, "model": "m"}, "model_other": {**COMPLETION, "model": "x"}, "model_number": {**COMPLETION, "model": 5},
    "numbers": {**COMPLETION, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "repeat_penalty": 1.1, "repetition_penalty": 1.1, "frequency_penalty": 0, "presence_penalty": 0, "seed": 7, "user": "x", "best_of": 1, "suffix": None, "logit_bias": {}},
    "temperature": {**COMPLETION, "temperature": 3}, "temperature_text": {**COMPLETION, "temperature": "x"}, "top_k": {**COMPLETION, "top_k": -1}, "top_k_text": {**COMPLETION, "top_k": "x"}, "top_k_real": {**COMPLETION, "top_k": 1.5},
    "n_many": {**COMPLETION, "n": 1000}, "best_of": {**COMPLETION, "best_of": 2}, "stream_number": {**COMPLETION, "stream": 1}, "options_number": {**COMPLETION, "stream": True, "stream_options": 5},
    "options_unknown": {**COMPLETION, "stream": True, "stream_options": {"x": 1}}, "options_text": {**COMPLETION, "stream": True, "stream_options": {"include_usage": "x"}}, "options_alone": {**COMPLETION, "stream_options": {"include_usage": True}},
    "stop": {**COMPLETION, "stop": "b"}, "stops": {**COMPLETION, "stop": ["b", "c"]}, "stop_number": {**COMPLETION, "stop": 5}, "stops_number": {**COMPLETION, "stop": [5]}, "stop_empty": {**COMPLETION, "stop": ""},
    "stops_many": {**COMPLETION, "stop": ["x%d" % i for i in range(20)]}, "ignore_eos": {**COMPLETION, "ignore_eos": True}, "logprobs": {**COMPLETION, "logprobs": 3}, "logprobs_many": {**COMPLETION, "logprobs": 99}, "logprobs_true": {**COMPLETION, "logprobs": True},
    "unknown": {**COMPLETION, "zzz": 1}, "no_tokens": {**COMPLETION, "max_tokens": 0}, "echo": {**COMPLETION, "max_tokens": 0, "echo": True}, "echo_logprobs": {**COMPLETION, "echo": True, "logprobs": 1}, "list": [1], "number": 5,
    "rows": {**COMPLETION, "headlight": {"rows": ["entropy", "renyi2", "nosink"], "prompt": True, "entropy": True}}, "rows_unknown": {**COMPLETION, "headlight": {"rows": ["x"]}}, "rows_number": {**COMPLETION, "headlight": {"rows": 5}}, "rows_inner": {**COMPLETION, "headlight": {"rows": [5]}},
    "off": {**COMPLETION, "headlight": {"off": ["L0H1"]}}, "off_text": {**COMPLETION, "headlight": {"off": "L0"}}, "off_number": {**COMPLETION, "headlight": {"off": 5}}, "off_unknown": {**COMPLETION, "headlight": {"off": ["L9H9"]}}, "off_inner": {**COMPLETION, "headlight": {"off": [5]}},
    "gates": {**COMPLETION, "headlight": {"gates": {"L0H0": 0.5}}}, "gates_number": {**COMPLETION, "headlight": {"gates": 5}}, "gates_off": {**COMPLETION, "headlight": {"gates": {"L0H0": 0.5}, "off": ["L1H1"]}}, "patterns": {**COMPLETION, "headlight": {"patterns": ["L0H0"]}},
    "patterns_many": {**COMPLETION, "headlight": {"patterns": ["L%dH%d" % (i, j) for i in range(3) for j in range(4)]}}, "patterns_null": {**COMPLETION, "headlight": {"patterns": None, "off": None, "rows": None}}, "headlight_number": {**COMPLETION, "headlight": 5}, "headlight_unknown": {**COMPLETION, "headlight": {"x": 1}},
    "headlight_entropy": {**COMPLETION, "headlight": {"entropy": 5}}, "headlight_prompt": {**COMPLETION, "headlight": {"prompt": 5}}, "long_text": {**COMPLETION, "stop": "x" * 2000}}
CHATS = {
    "chat": CHAT, "chat_stream": {**CHAT, "stream": True}, "chat_parts": {**CHAT, "messages": [{"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
    "chat_parts_image": {**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "chat_no_content": {**CHAT, "messages": [{"role": "user"}]}, "chat_no_role": {**CHAT, "messages": [{"content": "a"}]},
    "chat_role": {**CHAT, "messages": [{"role": "zzz", "content": "a"}]}, "chat_developer": {**CHAT, "messages": [{"role": "developer", "content": "a"}, {"role": "assistant", "content": "b"}]}, "chat_none": {**CHAT, "messages": []},
    "chat_text": {**CHAT, "messages": "x"}, "chat_inner": {**CHAT, "messages": [5]}, "chat_nul": {**CHAT, "messages": [{"role": "user", "content": "a\0b"}]}, "chat_many": {**CHAT, "messages": [{"role": "user", "content": "a"}] * 40}, "chat_missing": {"max_tokens": 1},
    "chat_top": {**CHAT, "logprobs": True, "top_logprobs": 2}, "chat_top_alone": {**CHAT, "top_logprobs": 2}, "chat_logprobs": {**CHAT, "logprobs": 5}, "chat_tools": {**CHAT, "tools": [{"type": "function"}]}, "chat_tools_none": {**CHAT, "tools": [], "tool_choice": "none"},
    "chat_format": {**CHAT, "response_format": {"type": "json_object"}}, "chat_format_text": {**CHAT, "response_format": {"type": "text"}}, "chat_format_number": {**CHAT, "response_format": 5}, "chat_max": {**CHAT, "max_completion_tokens": 1}, "chat_modalities": {**CHAT, "modalities": ["audio"]}}


def make_requests():
    for bodies, path in ((BODIES, "/v1/completions"), (CHATS, "/v1/chat/completions")):
        for name, body in bodies.items():
            put("http", name, request("POST", path, json.dumps(body)))
            put("serve", name, json.dumps(body))
    for i, path in enumerate(["/", "/health", "/metrics", "/v1/models", "/v1/headlight/model", "/favicon.ico", "/zzz", "/v1/models/m", "/v1/completions"]):
        put("http", "get_%d" % i, request("GET", path))
    put("http", "head", request("HEAD", "/health"))
    put("http", "post_health", request("POST", "/health", "{}"))
    put("http", "no_token", request("GET", "/v1/models", token=None))
    put("http", "wrong_token", request("GET", "/v1/models", token="x"))
    put("http", "no_host", request("GET", "/health", host=None))
    put("http", "other_host", request("GET", "/health", host="evil.example"))
    put("http", "origin", request("GET", "/health", headers=["Origin: http://evil.example"]))
    put("http", "own_origin", request("GET", "/health", headers=["Origin: http://localhost"]))
    put("http", "cross_site", request("GET", "/health", headers=["Sec-Fetch-Site: cross-site"]))
    put("http", "form", request("POST", "/v1/completions", "a=b", kind="application/x-www-form-urlencoded"))
    put("http", "no_kind", request("POST", "/v1/completions", "{}", kind=None))
    put("http", "charset", request("POST", "/v1/completions", "{}", kind="application/json; charset=utf-8"))
    put("http", "json_wrong", request("POST", "/v1/completions", "{x"))
    put("http", "too_long", request("POST", "/v1/completions", "x" * 5000))
    put("http", "many_values", request("POST", "/v1/completions", "[" + "1," * 2000 + "1]"))
    put("http", "strings", request("POST", "/v1/completions", '{"a\\"b,": "[,]"}'))
    put("http", "half", request("POST", "/v1/completions", "{}", length=100))
    put("http", "chunked", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\n\r\n")
    put("http", "two", request("GET", "/health").replace(b"Connection: close\r\n", b"") + request("GET", "/v1/models"))
    put("http", "expect", request("POST", "/v1/completions", "{}", headers=["Expect: 100-continue"]))
    put("http", "bad_line", b"GET\r\n\r\n")
    put("http", "old", b"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
    put("http", "noise", b"\x16\x03\x01\x02\x00\x01\x00")
    for route in ("lens", "tokens", "measure"):
        for name, body in {"text": {"prompt": "a b"}, "empty": {}, "ids": {"prompt": [1, 2]}, "more": {"text": "a b", "input": "a b", "prompt": "a"}}.items():
            put("http", "%s_%s" % (route, name), request("POST", "/v1/headlight/" + route, json.dumps(body)))
    for name, text in {"host_ip": "192.168.0.1", "host_port": "localhost:x", "host_open": "[::1", "host_empty": "", "host_after": "[::1]x", "origin_https": "https://localhost:7700",
                       "origin_null": "null", "token_wrong": "Bearer a token that nobody can guesz", "token_short": "Bearer a", "basic": "Basic YTpi", "host_long": "l" * 300, "host_name": "lamp.example:80",
                       "host_ip6": "[2001:db8::1]:80"}.items():
        put("serve", name, text)


def make_choices():
    for target, n in {"attention": 28, "gguf_write": 60, "decode": 40}.items():
        for seed in range(6):
            put(target, "choices_%d" % seed, bytes((i * (37 + 20 * seed) + seed * 101) % 256 for i in range(n)))


def main():
    for make in (make_safetensors, make_gguf, make_maps, make_ids, make_blocks, make_cases, make_profiles, make_states, make_tables, make_json, make_labels, make_gates, make_config,
                 make_tokenizer, make_unigram, make_chat, make_encode, make_folders, make_gguf_models, make_gguf_vocabs, make_llama2c, make_requests, make_choices):
        make()


if __name__ == "__main__":
    main()
