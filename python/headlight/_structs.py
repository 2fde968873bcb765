"""The structs and constants of headlight.h that Python uses, field by field.

They are checked by tests/python/test_layout.py, which compiles a program against the header and
compares every size, offset and constant.  `c_name` is the name of a struct in C.
"""
from __future__ import annotations

import ctypes as c
from typing import Any, List

Status = c.c_int
Text = c.c_char_p
Pointer = c.c_void_p
Size = c.c_size_t

# ------------------------------------------------------------------ constants

STATUS = ("OK", "BAD_ARGUMENT", "BAD_INPUT", "NOT_FOUND", "IO", "NO_MEMORY", "LIMIT",
          "UNSUPPORTED", "CANCELLED", "INTERNAL", "BUSY")
OK, BAD_ARGUMENT, CANCELLED = 0, 1, 8

F32, F16, BF16, F64 = 0, 1, 2, 3

CAUSAL, WINDOW_LEFT, WINDOW_RIGHT, SCALE = 1, 2, 4, 8
MAX_SEGMENTS = 8

WANT_LAST_DRAW = 1 << 14

STOPS = ("NONE", "END", "LENGTH", "CONTEXT", "WORD", "SPIKE")
SPECIALS = ("BOS", "EOS", "UNK", "SEP", "PAD", "CLS", "MASK", "EOT")
AROUNDS = ("window", "document", "none")

QUANTITIES = ("entropy", "normalized", "renyi2", "varentropy", "peak", "self", "previous", "first",
              "entropy_nosink")
HISTOGRAMS = ("normalized", "normalized_nosink", "peak")
PATTERN_METRICS = ("self", "previous", "band", "sink", "self_top", "peak", "content",
                   "edges", "k90", "support2", "chance")
PROBES = ("induction", "duplicate", "previous")
VERDICTS = ("not found", "found", "not run")
COLUMN_TYPES = ("text", "int", "real", "bool", "list")
THEMES = ("light", "dark")
UNITS = ("nats", "bits", "normalized")
SCALES = ("continuous", "classes")
N_BINS = 64
CHECK_KINDS = ("alarm", "observation")
N_DIAGNOSES = 12
N_THRESHOLDS = 23

CUDA_INTERFACE = 3

# The constants above that the header names, for the test.
CONSTANTS = {
    **{f"HL_{name}": i for i, name in enumerate(STATUS)},
    "HL_DTYPE_F32": F32, "HL_DTYPE_F16": F16, "HL_DTYPE_BF16": BF16, "HL_DTYPE_F64": F64,
    "HL_ATTENTION_CAUSAL": CAUSAL, "HL_ATTENTION_WINDOW_LEFT": WINDOW_LEFT,
    "HL_ATTENTION_WINDOW_RIGHT": WINDOW_RIGHT, "HL_ATTENTION_SCALE": SCALE,
    "HL_MAX_SEGMENTS": MAX_SEGMENTS, "HL_WANT_LAST_DRAW": WANT_LAST_DRAW,
    **{f"HL_STOP_{name}": i for i, name in enumerate(STOPS)},
    **{f"HL_SPECIAL_{name}": i for i, name in enumerate(SPECIALS)},
    "HL_SPECIAL_COUNT": len(SPECIALS),
    **{f"HL_AROUND_{name.upper()}": i for i, name in enumerate(AROUNDS)},
    **{f"HL_Q_{name.upper()}": i for i, name in enumerate(QUANTITIES)},
    "HL_N_QUANTITIES": len(QUANTITIES),
    **{f"HL_HIST_{name.upper()}": i for i, name in enumerate(HISTOGRAMS)},
    "HL_N_HISTOGRAMS": len(HISTOGRAMS),
    **{f"HL_PM_{name.upper()}": i for i, name in enumerate(PATTERN_METRICS)},
    "HL_N_PATTERN_METRICS": len(PATTERN_METRICS),
    **{f"HL_PROBE_{name.upper()}": i for i, name in enumerate(PROBES)},
    "HL_N_PROBES": len(PROBES),
    **{f"HL_VERDICT_{name.upper().replace(' ', '_')}": i for i, name in enumerate(VERDICTS)},
    **{f"HL_CHECK_{name.upper()}": i for i, name in enumerate(CHECK_KINDS)},
    **{f"HL_COLUMN_{name.upper()}": i for i, name in enumerate(COLUMN_TYPES)},
    **{f"HL_THEME_{name.upper()}": i for i, name in enumerate(THEMES)},
    **{f"HL_UNIT_{name.upper()}": i for i, name in enumerate(UNITS)},
    **{f"HL_SCALE_{name.upper()}": i for i, name in enumerate(SCALES)},
    "HL_N_DIAGNOSES": N_DIAGNOSES, "HL_N_THRESHOLDS": N_THRESHOLDS,
    "HL_CUDA_INTERFACE": CUDA_INTERFACE,
}


def _fields(kind: Any, *names: str) -> List[Any]:
    return [(name, kind) for name in names]


# ------------------------------------------------------------------ attention


class Rows(c.Structure):
    c_name = "hl_rows"
    _fields_ = [("data", Pointer), ("dtype", c.c_int),
                *_fields(c.c_int64, "batch_stride", "head_stride", "row_stride")]


class Attention(c.Structure):
    c_name = "hl_attention"
    _fields_ = [
        *_fields(c.c_int64, "n_batch", "n_heads", "n_kv_heads", "n_queries", "n_keys", "d_head",
                 "d_value"),
        *_fields(Rows, "q", "k", "v"),
        ("flags", c.c_uint32),
        *_fields(c.c_double, "scale", "softcap"),
        *_fields(c.c_int64, "window_left", "window_right", "window_sink"),
        *_fields(Pointer, "query_start", "key_length", "alibi_slopes", "key_bias", "row_bias", "sinks",
                 "gates",
                 "segments"),
        *_fields(c.c_int64, "segment_stride", "n_segments"),
        ("n_threads", c.c_int32),
    ]


class AttentionResult(c.Structure):
    c_name = "hl_attention_result"
    _fields_ = [("out", Rows),
                *_fields(Pointer, "lse", "entropy", "renyi2", "varentropy", "entropy_nosink",
                         "peak", "argmax", "self", "previous", "first", "segment_mass", "max_logit")]


class RecordSetting(c.Structure):
    c_name = "hl_record_setting"
    _fields_ = _fields(Text, "key", "value")


class RecordOptions(c.Structure):
    c_name = "hl_record_options"
    _fields_ = [("n_layers", c.c_int64), ("heads", Pointer), ("context", c.c_int64),
                ("seed", c.c_uint64), ("settings", c.POINTER(RecordSetting)), ("n_settings", Size),
                ("n_threads", c.c_int32)]


class RecordWindow(c.Structure):
    c_name = "hl_record_window"
    _fields_ = [("tokens", Pointer), *_fields(c.c_int64, "n_tokens", "first_row", "document", "start"),
                ("in_pieces", c.c_bool)]


class RecordLayer(c.Structure):
    c_name = "hl_record_layer"
    _fields_ = [*_fields(c.c_int64, "layer", "n_keys"), ("rows", c.POINTER(AttentionResult)),
                ("whole", Pointer), *_fields(c.c_bool, "is_causal", "is_cross", "has_window", "has_sink"),
                *_fields(c.c_int64, "window_left", "window_right")]


class AttentionUpstream(c.Structure):
    c_name = "hl_attention_upstream"
    _fields_ = [("grad_out", Rows), *_fields(Pointer, "grad_entropy", "grad_lse"), ("out", Rows),
                *_fields(Pointer, "lse", "entropy")]


class AttentionGradient(c.Structure):
    c_name = "hl_attention_gradient"
    _fields_ = [*_fields(Rows, "dq", "dk", "dv"), *_fields(Pointer, "dgates", "dsinks")]


class CudaLaunch(c.Structure):
    c_name = "hl_cuda_launch"
    _fields_ = [("stream", Pointer), ("kernel", c.c_int)]


# --------------------------------------------------------------------- models


class ModelInfo(c.Structure):
    c_name = "hl_model_info"
    _fields_ = [
        *_fields(Text, "family", "format", "tokenizer_path"),
        ("is_encoder", c.c_bool),
        *_fields(c.c_int64, "n_layers", "n_heads", "n_kv_heads", "d_mlp", "d_model", "d_head",
                 "d_vocab", "n_ctx", "n_experts", "n_experts_used", "d_expert"),
        *_fields(Text, "norm", "norm_place", "residual", "position", "rope"),
        ("rope_base", c.c_double),
        ("activation", Text),
        *_fields(c.c_bool, "is_gated", "is_tied", "has_head", "has_sinks"),
        *_fields(c.c_int64, "bos_id", "pad_id"),
        ("eos_ids", c.c_int64 * 16),
        ("n_eos_ids", c.c_int),
        ("foreign_ids", c.c_int64 * 18),
        ("n_foreign_ids", c.c_int),
        *_fields(c.c_int64, "n_params", "n_tensors"),
        *_fields(Size, "tensor_bytes", "kv_bytes_f32", "kv_bytes_f16"),
    ]


class Span(c.Structure):
    c_name = "hl_span"
    _fields_ = _fields(Size, "begin", "end")


class EncodeOptions(c.Structure):
    c_name = "hl_encode_options"
    _fields_ = (_fields(c.c_bool, "add_special", "plain") +
                _fields(c.c_void_p, "stop", "context"))


class Encoding(c.Structure):
    c_name = "hl_encoding"
    _fields_ = [("ids", c.POINTER(c.c_int64)), ("spans", c.POINTER(Span)),
                ("types", c.POINTER(c.c_int)), ("roles", c.POINTER(c.c_uint8)), ("n_tokens", Size)]


class DecodeOptions(c.Structure):
    c_name = "hl_decode_options"
    _fields_ = _fields(c.c_bool, "skip_special")


class Gates(c.Structure):
    c_name = "hl_gates"
    _fields_ = [*_fields(c.c_int64, "n_layers", "n_heads"), ("values", c.POINTER(c.c_float))]


# ------------------------------------------------------- generating, evaluating


class Progress(c.Structure):
    c_name = "hl_progress"
    _fields_ = [("stage", Text), ("share", c.c_double), *_fields(c.c_int64, "n_tokens", "n_windows")]


ProgressCallback = c.CFUNCTYPE(Status, Pointer, c.POINTER(Progress))


class SessionOptions(c.Structure):
    c_name = "hl_session_options"
    _fields_ = [*_fields(c.c_int64, "n_ctx", "n_batch", "n_chunk", "n_patterns"),
                ("wants", c.c_uint32), ("cache_dtype", c.c_int), ("n_threads", c.c_int32),
                ("beyond_ctx", c.c_bool), ("math", c.c_int), ("steady", c.c_bool),
                ("n_rows", c.c_int64), ("device", Text), ("n_sampled", c.c_int64),
                ("n_kept", c.c_int64),
                ("stream_every", c.c_int64), ("repack", c.c_bool)]


class SampleOptions(c.Structure):
    c_name = "hl_sample_options"
    _fields_ = [("temperature", c.c_double), ("top_k", c.c_int64),
                *_fields(c.c_double, "top_p", "min_p", "repeat_penalty"),
                ("repeat_last", c.c_int64), ("seed", c.c_uint64)]


class GenerateOptions(c.Structure):
    c_name = "hl_generate_options"
    _fields_ = [("sample", SampleOptions), ("max_tokens", c.c_int64), ("ignore_end", c.c_bool),
                ("end_ids", Pointer), ("n_end_ids", c.c_int), *_fields(Pointer, "gates", "segments"),
                ("n_segments", c.c_int64), ("tap", Pointer)]


class Generated(c.Structure):
    c_name = "hl_generated"
    _fields_ = [("id", c.c_int64),
                *_fields(c.c_double, "logprob", "entropy", "varentropy", "attention_entropy"),
                ("stop", c.c_int)]


class AroundTokens(c.Structure):
    c_name = "hl_around_tokens"
    _fields_ = [("before", Pointer), ("n_before", Size), ("after", Pointer), ("n_after", Size)]


class PerplexityOptions(c.Structure):
    c_name = "hl_perplexity_options"
    _fields_ = [*_fields(c.c_int64, "n_ctx", "stride", "n_batch"), ("gates", Pointer),
                ("n_threads", c.c_int32), ("progress", ProgressCallback), ("context", Pointer),
                ("around", AroundTokens)]


class ScoredText(c.Structure):
    c_name = "hl_scored_text"
    _fields_ = [("tokens", Pointer), ("n_tokens", c.c_int64),
                *_fields(Pointer, "n_bytes", "nll", "top")]


class Interval(c.Structure):
    c_name = "hl_interval"
    _fields_ = [*_fields(c.c_double, "low", "high", "error", "level"), ("n", c.c_int64),
                ("units", c.c_int)]


class Nll(c.Structure):
    c_name = "hl_nll"
    _fields_ = [("sum", c.c_double),
                *_fields(c.c_int64, "n_scored", "n_tokens", "n_bytes", "n_windows", "n_texts"),
                *_fields(c.c_double, "mean", "perplexity", "bits_per_byte"),
                ("interval", Interval), *_fields(c.c_int64, "n_broken", "first_broken")]


# ------------------------------------------------------------------ measuring


class CorpusOptions(c.Structure):
    c_name = "hl_corpus_options"
    _fields_ = [("inputs", c.POINTER(Text)), ("n_inputs", Size), ("format", c.c_int),
                *_fields(Text, "field", "token_ids"), ("types", c.POINTER(Text)),
                ("n_types", Size), ("n_sample", c.c_int64), ("seed", c.c_uint64),
                ("plain", c.c_bool), *_fields(c.c_void_p, "stop", "context")]


class WindowOptions(c.Structure):
    c_name = "hl_window_options"
    _fields_ = [*_fields(c.c_int64, "n_ctx", "stride", "n_batch", "max_tokens"),
                ("pack", c.c_bool), *_fields(c.c_int64, "part", "n_parts"), ("around", c.c_int)]


class MeasureOptions(c.Structure):
    c_name = "hl_measure_options"
    _fields_ = [("windows", WindowOptions), ("seed", c.c_uint64),
                *_fields(c.c_bool, "nll", "no_probe"), ("epsilon", c.c_double),
                *_fields(Text, "rows_path", "state_path"), ("save_every", c.c_double),
                ("resume", c.c_bool), ("n_threads", c.c_int32), ("progress", ProgressCallback),
                ("context", Pointer)]


class MapsOptions(c.Structure):
    c_name = "hl_maps_options"
    _fields_ = [("scores", c.c_bool), ("mask", c.c_int), ("seed", c.c_uint64),
                ("n_threads", c.c_int32)]


class Patterns(c.Structure):
    c_name = "hl_patterns"
    _fields_ = [*_fields(c.c_int64, "n_layers", "n_heads", "n_tokens"),
                ("tokens", c.POINTER(c.c_int64)), ("values", c.POINTER(c.c_float))]


# ------------------------------------------------------------------- profiles


class Moments(c.Structure):
    c_name = "hl_moments"
    _fields_ = [("count", c.c_int64), *_fields(c.c_double, "mean", "variance", "min", "max")]


class AnalysisOptions(c.Structure):
    c_name = "hl_analysis_options"
    _fields_ = [("seed", c.c_uint64), ("n_extremes", c.c_int64)]


class Thresholds(c.Structure):
    c_name = "hl_thresholds"
    _fields_ = [("values", c.c_double * N_THRESHOLDS)]


class ShownBy(c.Structure):
    c_name = "hl_shown_by"
    _fields_ = [*_fields(c.c_int64, "layer", "head"), ("value", c.c_double)]


class Cause(c.Structure):
    c_name = "hl_cause"
    _fields_ = [*_fields(Text, "name", "supports", "against", "command")]


class Diagnosis(c.Structure):
    c_name = "hl_diagnosis"
    _fields_ = [("name", Text), *_fields(c.c_int, "kind", "verdict"),
                *_fields(c.c_double, "value", "threshold"), ("unit", Text),
                ("errors", c.c_double), ("below", c.c_bool),
                *_fields(Text, "evidence", "source", "mitigation", "measure", "rule", "finding",
                         "against", "usual"),
                ("heads", c.POINTER(ShownBy)), ("n_heads", c.c_int64),
                ("causes", c.POINTER(Cause)), ("n_causes", c.c_int64)]


class Diagnoses(c.Structure):
    c_name = "hl_diagnoses"
    _fields_ = [("items", Diagnosis * N_DIAGNOSES)]


# ------------------------------------------------------------------- pruning


class Head(c.Structure):
    c_name = "hl_head"
    _fields_ = _fields(c.c_int64, "layer", "head")


class HeadList(c.Structure):
    c_name = "hl_head_list"
    _fields_ = [("heads", c.POINTER(Head)), ("n_heads", c.c_int64)]


class Choice(c.Structure):
    c_name = "hl_choice"
    _fields_ = [("ratio", c.c_double), *_fields(c.c_int64, "count", "per_layer_max"),
                ("empty_layers", c.c_bool), ("keep", Pointer)]


class BudgetOptions(c.Structure):
    c_name = "hl_budget_options"
    _fields_ = [*_fields(c.c_double, "until_loss", "until_kl"), ("until_bytes", Size),
                ("rankers", c.POINTER(c.c_int)), ("n_rankers", c.c_int64), ("choice", Choice),
                ("groups", c.c_bool), ("repair", c.c_bool), ("write", Pointer), ("path", Text),
                ("windows", WindowOptions), ("seed", c.c_uint64), ("memory_bytes", Size),
                ("n_threads", c.c_int32), ("progress", ProgressCallback), ("context", Pointer)]


class FrontierPoint(c.Structure):
    c_name = "hl_frontier_point"
    _fields_ = [("ranker", c.c_int), ("n_off", c.c_int64), ("tensor_bytes", Size),
                *_fields(c.c_double, "rise", "rise_low", "rise_high", "kl", "kl_low", "kl_high",
                         "same"),
                *_fields(c.c_bool, "fits", "is_best")]


class Frontier(c.Structure):
    c_name = "hl_frontier"
    _fields_ = [("points", c.POINTER(FrontierPoint)), *_fields(c.c_int64, "n_points", "recommended"),
                ("heads", c.POINTER(HeadList)), ("budget", BudgetOptions), ("tensor_bytes", Size),
                ("n_heads", c.c_int64), ("nll", c.c_double),
                *_fields(c.c_int64, "n_scored", "n_windows", "n_ctx"), ("all_went", c.c_bool)]


class DrawOptions(c.Structure):
    c_name = "hl_draw_options"
    _fields_ = [*_fields(Text, "title", "caption"), *_fields(c.c_int, "theme", "unit", "scale"),
                *_fields(c.c_double, "width", "dpi"), ("seed", c.c_uint64),
                *_fields(Text, "pruned", "candidates"), ("n_candidates", c.c_int64),
                ("candidates_by_entropy", c.c_bool)]


STRUCTS = [kind for kind in list(globals().values())
           if isinstance(kind, type) and issubclass(kind, c.Structure) and hasattr(kind, "c_name")]
