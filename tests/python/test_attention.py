"""test_attention.py - attention through Python against PyTorch's numbers (golden/attention)."""
import json
import os
import threading
import time
import unittest

import numpy as np

import headlight
from support import attention_cases, read_safetensors

# metrics.md, "Rounding": the largest error, absolute or (of the largest value) relative, but no
# less than 8 * 2^-24 of the largest score.
ENTROPIES = {name: (2e-5, False)
             for name in ("lse", "entropy", "renyi2", "varentropy", "entropy_nosink")}
PROBABILITIES = {name: (1e-5, False)
                 for name in ("peak", "diagonal", "previous", "first", "segment_mass")}
GRADIENTS = {name: (1e-4, True) for name in ("dq", "dk", "dv", "dgates", "dsinks")}
TOLERANCES = {"out": (1e-5, True), **ENTROPIES, **PROBABILITIES, **GRADIENTS}

OPTIONS = ("softcap", "window_left", "window_right", "window_sink", "causal", "scale")
ARRAYS = ("query_start", "key_length", "alibi_slopes", "key_bias", "sinks", "gates", "segments")


def options_of(tensors, case):
    options = {name: case[name] for name in OPTIONS if case.get(name) is not None}
    options.update((name, tensors[name]) for name in ARRAYS if name in tensors)
    if "segments" in tensors:
        options["n_segments"] = tensors["segment_mass"].shape[-1]
    return options


def error(ours, theirs, relative):
    ours, theirs = np.asarray(ours, dtype=np.float64), theirs.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & (theirs == 0))  # 0 in files: undefined
    worst = np.max(np.where(same, 0.0, np.abs(np.where(same, 0.0, ours) - np.where(same, 0.0, theirs))),
                   initial=0.0)
    return worst / max(np.abs(theirs).max(initial=0.0), 1e-300) if relative and worst else worst


def seen_keys(n_queries, n_keys, causal, left, right, sink, start, length):
    """(batch, queries, keys) booleans, by the definition in headlight/attention.h."""
    length = np.full(2, n_keys) if length is None else np.asarray(length)
    start = length - n_queries if start is None else np.asarray(start)
    p = (start[:, None] + np.arange(n_queries))[:, :, None]
    j = np.arange(n_keys)[None, None, :]
    seen = (j < length[:, None, None]) & (j <= p if causal else p == p)
    seen &= (j >= p - left) | (j < sink) if left is not None else True
    return seen & (j <= p + right if right is not None else True), p[:, :, 0]


class Received(unittest.TestCase):
    """The largest logits, and the attention that keys receive, against numpy in double precision."""

    def test_sums_and_maxima(self):
        random = np.random.default_rng(3)
        for n_queries, n_keys, last in ((700, 700, 0), (90, 1000, 0), (333, 501, 20), (1, 7, 1)):
            q = random.standard_normal((2, 4, n_queries, 24)).astype(np.float32)
            k = random.standard_normal((2, 2, n_keys, 24)).astype(np.float32)
            found = headlight.attention(q, k, k, want=("lse", "max_logit"), causal=True)
            received = headlight.attention_received(q, k, found.lse, last=last, causal=True)
            scores = np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64),
                               np.repeat(k, 2, axis=1).astype(np.float64)) / np.sqrt(24)
            hidden = np.arange(n_keys)[None, :] > n_keys - n_queries + np.arange(n_queries)[:, None]
            scores[:, :, hidden] = -np.inf
            most = scores.max(axis=3)
            weights = np.exp(scores - most[..., None])
            exact = (weights / weights.sum(axis=3, keepdims=True))[:, :, -last:].sum(axis=2)
            np.testing.assert_allclose(found.max_logit, most, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(received, exact, rtol=1e-6, atol=1e-7)

    def test_mistakes_are_named(self):
        q = np.zeros((1, 1, 3, 4), np.float32)
        with self.assertRaisesRegex(headlight.Error, "last is 4, wanted 0 to 3 queries"):
            headlight.attention_received(q, q, np.zeros((1, 1, 3), np.float32), last=4)
        with self.assertRaisesRegex(headlight.Error, "lse has shape"):
            headlight.attention_received(q, q, np.zeros((1, 1, 4), np.float32))


class Undefined(unittest.TestCase):
    def test_statistics_of_keys_that_a_row_does_not_see_are_nan(self):
        random = np.random.default_rng(5)
        names = ("diagonal", "previous", "first", "entropy_nosink", "entropy")
        for _ in range(200):
            n_queries, n_keys = (int(x) for x in random.integers(1, 9, 2))
            pick = lambda *values: values[random.integers(len(values))]
            settings = dict(causal=pick(True, False), window_left=pick(None, None, 0, 1, 3),
                            window_right=pick(None, None, 0, 2), window_sink=pick(0, 1, 3),
                            query_start=pick(None, [-1, 2]), key_length=pick(None, [0, n_keys]))
            q = random.standard_normal((2, 3, n_queries, 4)).astype(np.float32)
            k = random.standard_normal((2, 3, n_keys, 4)).astype(np.float32)
            found = headlight.attention(q, k, k, want=names, **settings)
            seen, position = seen_keys(n_queries, n_keys, *settings.values())
            blind = ~seen.any(axis=2)
            at = lambda key: ((key >= 0) & (key < n_keys) &
                              np.take_along_axis(seen, np.clip(key, 0, n_keys - 1)[:, :, None], 2)[:, :, 0])
            defined = {"diagonal": at(position), "previous": at(position - 1), "first": at(0 * position),
                       "entropy_nosink": seen[:, :, 1:].any(axis=2), "entropy": np.ones_like(blind)}
            for name in names:
                np.testing.assert_array_equal(
                    np.isnan(getattr(found, name)),
                    np.broadcast_to((~defined[name] & ~blind)[:, None, :], (2, 3, n_queries)), f"{name} {settings}")

    def test_row_0_has_no_previous_token(self):
        x = np.ones((1, 1, 3, 4), dtype=np.float32)
        found = headlight.attention(x, x, x, causal=True, want=("previous", "entropy_nosink", "first"))
        np.testing.assert_allclose(found.previous[0, 0], [np.nan, 1 / 2, 1 / 3], rtol=1e-6)
        np.testing.assert_allclose(found.entropy_nosink[0, 0], [np.nan, 0, np.log(2)], rtol=1e-6)
        np.testing.assert_allclose(found.first[0, 0], [1, 1 / 2, 1 / 3], rtol=1e-6)


class Golden(unittest.TestCase):
    def compare(self, path, tensors, case, found):
        for name, ours in found.items():
            if ours is None or name not in tensors:
                continue
            self.assertEqual(tuple(ours.shape), tensors[name].shape, f"{path} {name}")
            if name == "argmax":
                np.testing.assert_array_equal(ours, tensors[name], f"{path} {name}")
                continue
            tolerance, relative = TOLERANCES[name]
            tolerance = max(tolerance, 8 * 2.0 ** -24 * case["max_score"])
            tolerance += 2.0 ** -11 if ours.dtype == np.float16 else 0.0  # gradients of f16 inputs are f16
            self.assertLessEqual(error(ours, tensors[name], relative), tolerance, f"{path} {name}")

    def run_case(self, path, change=lambda array: array):
        tensors, metadata = read_safetensors(path)
        case = json.loads(metadata["case"])
        options = options_of(tensors, case)
        q, k, v = (change(tensors[name]) for name in "qkv")
        want = [name for name in ("out", "argmax", *ENTROPIES, *PROBABILITIES) if name in tensors]
        forward = headlight.attention(q, k, v, want=want, out_dtype="float32", **options)
        gradients = headlight.attention_backward(
            q, k, v, forward, grad_out=change(tensors["grad_out"]),
            grad_entropy=tensors["grad_entropy"], grad_lse=tensors["grad_lse"], **options)
        found = {**vars(forward), **vars(gradients)}
        self.compare(os.path.basename(path), tensors, case, found)
        return len([name for name in found if name in tensors])

    def test_forward_and_backward_agree_with_pytorch(self):
        cases = attention_cases()
        self.assertGreaterEqual(len(cases), 17)
        for path in cases:
            with self.subTest(os.path.basename(path)):
                self.assertGreaterEqual(self.run_case(path), 13)

    def test_strides_are_honored(self):
        """The same numbers with tokens before heads, as in models, and with gaps."""
        def tokens_first(array):
            return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)

        def with_gaps(array):
            wide = np.zeros((*array.shape[:3], array.shape[3] + 5), dtype=array.dtype)
            wide[..., :array.shape[3]] = array
            return wide[..., :array.shape[3]]

        def backwards(array):  # negative strides cause a copy
            return np.ascontiguousarray(array[:, :, ::-1])[:, :, ::-1]

        def columns_apart(array):  # numbers of a row that are not adjacent cause a copy
            return np.ascontiguousarray(array.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)

        for name in ("pad_causal", "segments", "f16", "bf16"):
            path = next(p for p in attention_cases() if os.path.basename(p) == name + ".safetensors")
            for change in (tokens_first, with_gaps, backwards, columns_apart):
                with self.subTest(name=name, change=change.__name__):
                    self.run_case(path, change)


def plain(q, k, v, causal):
    """Attention and entropy by the definition, in float64."""
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64), k) / np.sqrt(q.shape[-1])
    if causal:
        n, m = scores.shape[2:]
        scores = np.where(np.arange(m) <= np.arange(n)[:, None] + m - n, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p, p @ v


class Attention(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(1)
        self.q, self.k, self.v = (random.standard_normal((2, 3, 40, 16)) for _ in range(3))

    def test_float64_stays_float64(self):
        found = headlight.attention(self.q, self.k, self.v, causal=True)
        p, out = plain(self.q, self.k, self.v, True)
        self.assertEqual(found.out.dtype, np.float64)
        np.testing.assert_allclose(found.out, out, atol=1e-12)

    def test_it_agrees_with_the_textbooks_entropy(self):
        q, k, v = (x.astype(np.float32) for x in (self.q, self.k, self.v))
        p, _ = plain(q, k, v, True)
        by_matrix = headlight.compute_attention_entropy(p, eps=0.0 + 1e-300)
        fused = headlight.attention(q, k, v, causal=True, want="entropy")
        np.testing.assert_allclose(fused.entropy.mean(axis=(0, 2)), by_matrix, atol=2e-6)
        self.assertIsNone(fused.out)

    def test_compute_attention_entropy_is_the_formula(self):
        p = np.full((2, 3, 4, 8), 1 / 8)
        np.testing.assert_allclose(headlight.compute_attention_entropy(p), [np.log(8)] * 3, rtol=1e-6)
        one = np.zeros((1, 1, 2, 4))
        one[..., 0] = 1.0
        eps = 1e-3
        np.testing.assert_allclose(headlight.compute_attention_entropy(one, eps=eps),
                                   [-np.log(1 + eps)], rtol=1e-12)
        self.assertEqual(headlight.compute_attention_entropy(p.astype(np.float32)).dtype, np.float32)

    def test_one_query_after_a_broadcast_cache(self):
        """A stride of 0 is used, and only zeros are not mistaken for a packed array."""
        k = np.broadcast_to(self.k[:1, :1, :1], (2, 3, 40, 16))
        found = headlight.attention(self.q, k, self.v, want=("entropy", "argmax"))
        np.testing.assert_allclose(found.entropy, np.log(40), atol=1e-6)
        half = np.broadcast_to(self.k[:, :1], (2, 3, 40, 16))
        found = headlight.attention(self.q, half, self.v)
        np.testing.assert_allclose(found.out, plain(self.q, half, self.v, False)[1], atol=1e-12)

    def test_nothing_is_fine(self):
        found = headlight.attention(self.q[:, :, :0], self.k, self.v)
        self.assertEqual(found.out.shape, (2, 3, 0, 16))
        blind = headlight.attention(self.q, self.k[:, :, :0], self.v[:, :, :0])
        self.assertTrue(np.all(blind.lse == -np.inf) and np.all(blind.out == 0))

    def test_mistakes_are_named(self):
        q, k, v = self.q, self.k, self.v
        for expected, arguments, options in (
                ("k has shape (2, 3, 40, 8), wanted (2, 3, 40, 16)", (q, k[..., :8], v), {}),
                ("q has 3 axes", (q[0], k, v), {}),
                ("q is of complex128", (q + 0j, k, v), {}),
                ("there is no 'entrophy'", (q, k, v), {"want": ["entrophy"]}),
                ("gates has shape (2,), wanted (3,)", (q, k, v), {"gates": [1, 1]}),
                ("key_length is 3 to 41, wanted 0 to 40", (q, k, v), {"key_length": [3, 41]}),
                ("window_left is -1", (q, k, v), {"window_left": -1}),
                ("softcap", (q, k, v), {"softcap": -1.0}),
                ("no segments", (q, k, v), {"want": "segment_mass"}),
                ("n_segments is 9", (q, k, v), {"segments": np.zeros(40), "n_segments": 9}),
                ("not a multiple of k's 2", (q, k[:, :2], v[:, :2]), {})):
            with self.subTest(expected), self.assertRaises(headlight.Error) as caught:
                headlight.attention(*arguments, **options)
            self.assertIn(expected, str(caught.exception))
            self.assertEqual(caught.exception.status, "bad argument")

    def test_an_unknown_option_is_the_callers(self):
        q, k, v = self.q, self.k, self.v
        with self.assertRaisesRegex(TypeError, r"^attention\(\) .* 'casual'"):
            headlight.attention(q, k, v, casual=True)
        with self.assertRaisesRegex(TypeError, r"^attention_backward\(\) .* 'casual'"):
            headlight.attention_backward(q, k, v, headlight.attention(q, k, v), casual=True)

    def test_gradient_says_what_it_lacks(self):
        forward = headlight.attention(self.q, self.k, self.v, want="lse")
        with self.assertRaisesRegex(headlight.Error, "needs out of the forward pass"):
            headlight.attention_backward(self.q, self.k, self.v, forward, grad_out=self.v)

    def test_backends_can_be_chosen(self):
        self.assertEqual(headlight.backends()[0], "scalar")
        before = headlight.backend()
        try:
            headlight.select_backend("scalar")
            self.assertEqual(headlight.backend(), "scalar")
            with self.assertRaises(headlight.Error):
                headlight.select_backend("abacus")
        finally:
            headlight.select_backend(before)


class Threads(unittest.TestCase):
    def test_the_interpreter_goes_on_while_a_call_runs(self):
        """The interpreter's lock is released: another thread wakes many times during one call."""
        q = np.random.default_rng(4).standard_normal((1, 4, 1500, 64)).astype(np.float32)
        began, ended = threading.Event(), threading.Event()

        def work():
            began.set()
            headlight.attention(q, q, q, n_threads=1)
            ended.set()

        thread = threading.Thread(target=work)
        thread.start()
        began.wait()
        n_wakes = 0
        while not ended.is_set():
            time.sleep(0.001)
            n_wakes += 1
        thread.join()
        self.assertGreater(n_wakes, 5)


class Capsule:
    """An object that only supports DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OtherLibraries(unittest.TestCase):
    def test_dlpack(self):
        random = np.random.default_rng(2)
        arrays = [random.standard_normal((1, 2, 9, 8)).astype(np.float32) for _ in range(3)]
        turned = [np.ascontiguousarray(a.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for a in arrays]
        wanted = headlight.attention(*arrays, causal=True)
        found = headlight.attention(*map(Capsule, turned), causal=True)
        np.testing.assert_array_equal(found.entropy, wanted.entropy)
        np.testing.assert_array_equal(found.out, wanted.out)
        with self.assertRaisesRegex(headlight.Error, "wanted floats"):
            headlight.attention(*(Capsule(a.astype(np.int32)) for a in arrays))

    def test_dlpack_with_gaps_is_copied(self):
        random = np.random.default_rng(3)
        arrays = [random.standard_normal((1, 2, 8, 9)).astype(np.float32).transpose(0, 1, 3, 2)
                  for _ in range(3)]
        np.testing.assert_array_equal(headlight.attention(*map(Capsule, arrays)).out,
                                      headlight.attention(*arrays).out)

    def test_torch_tensors_in_and_out(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no python3-torch")
        torch.manual_seed(0)
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2)):
            q, k, v = (torch.randn(2, 9, 3, 8).to(dtype).transpose(1, 2) for _ in range(3))
            found = headlight.attention(q, k, v)
            p = (q.double() @ k.double().transpose(2, 3) / 8 ** 0.5).softmax(-1)
            self.assertEqual(found.out.dtype, dtype)
            self.assertEqual(found.entropy.dtype, torch.float32)
            self.assertLess((found.out.double() - p @ v.double()).abs().max().item(), tolerance)
            ours = headlight.compute_attention_entropy(p)
            self.assertLess((found.entropy.mean(dim=(0, 2)) - ours).abs().max().item(), 1e-6)

    def test_seed_function_keeps_torchs_graph(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no python3-torch")
        scores = torch.randn(2, 3, 5, 5, requires_grad=True)
        headlight.compute_attention_entropy(scores.softmax(-1)).sum().backward()
        self.assertGreater(scores.grad.abs().sum().item(), 0)
