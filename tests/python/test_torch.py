"""test_torch.py - headlight.torch and headlight.transformers on the CPU.

With a PyTorch before 2.4, such as Debian's, a replacement registers the operators: everything else is
tested here, and the registration by tests/python/device/check_torch.py.
"""
import gc
import importlib.util
import itertools
import json
import math
import sys
import threading
import types
import unittest

import numpy as np

import headlight
from support import ROOT, attention_cases, read_safetensors
from test_attention import GRADIENTS, TOLERANCES, error, options_of

try:
    import torch
except ImportError:
    torch = None


class Operator:
    """A replacement for the decorator torch.library.custom_op, with the parts that are used."""

    def __init__(self, function):
        self.function, self.gradient = function, None

    def register_fake(self, function):
        return function

    def register_autograd(self, backward, *, setup_context):
        function = self.function

        class Gradient(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                output = function(*inputs)
                setup_context(ctx, inputs, output)
                return output

            @staticmethod
            def backward(ctx, *grads):
                return backward(ctx, *grads)

        self.gradient = Gradient

    def __call__(self, *inputs):
        return self.function(*inputs) if self.gradient is None else self.gradient.apply(*inputs)


class OneLayer(torch.nn.Module if torch is not None else object):
    """A language model of 8 tokens with the interface of transformers' models."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.embed = torch.nn.Embedding(8, 16)
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, tokens, labels, use_cache):
        x = self.embed(tokens)
        q, k, v = (part.view(*tokens.shape, 2, 8).transpose(1, 2)
                   for part in self.qkv(x).split(16, dim=-1))
        out = self.attention(q, k, v, causal=True, layer=0).out.transpose(1, 2).flatten(2)
        logits = (x + out) @ self.embed.weight.t()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1),
                                                 labels[:, 1:].flatten())
        return types.SimpleNamespace(loss=loss)


_collect = blocks = None


def load():
    """headlight.torch and headlight.transformers, the latter without transformers."""
    if not hasattr(torch.library, "custom_op"):
        torch.library.custom_op = lambda name, mutates_args: Operator
        torch.is_autocast_enabled = lambda device: False  # takes no argument before 2.4
    interface = types.SimpleNamespace(register=lambda name, function: None)
    there = "transformers" in sys.modules
    if not there:
        sys.modules["transformers"] = types.SimpleNamespace(AttentionInterface=interface,
                                                           PreTrainedModel=type("PreTrainedModel", (), {}))
        sys.modules["transformers.masking_utils"] = types.SimpleNamespace(
            AttentionMaskInterface=interface)
    try:
        import headlight.torch
        import headlight.transformers
    finally:
        if not there:
            del sys.modules["transformers"], sys.modules["transformers.masking_utils"]
    global _collect, blocks
    from headlight import _blocks as blocks, _collect
    return headlight.torch, headlight.transformers


@unittest.skipIf(torch is None, "no python3-torch")
class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.torch, cls.transformers = load()

    def setUp(self):
        torch.manual_seed(0)

    def test_types_that_are_not_taken_are_named(self):
        q = torch.ones(1, 2, 3, 4)
        for other, words in ((q.int(), "k is of torch.int32, wanted float16, bfloat16, float32 or"),
                             (torch.empty(q.shape, device="meta"), "k lies on meta, wanted a CPU")):
            with self.assertRaisesRegex(headlight.Error, words):
                headlight.attention(q, other, q)

    def test_tensors_of_a_graph_are_taken(self):
        q = torch.ones(1, 2, 3, 4, requires_grad=True)
        self.assertFalse(headlight.attention(q, q * 2, q, causal=True).out.requires_grad)

    def test_gradients_are_pytorchs(self):
        """Golden cases through autograd, with a loss that depends on out, lse and entropy."""
        n_cases = 0
        for path in attention_cases():
            tensors, metadata = read_safetensors(path)
            case = json.loads(metadata["case"])
            if tensors["q"].dtype != np.float32:
                continue
            options = options_of(tensors, case)
            for name in ("segments", "n_segments"):
                options.pop(name, None)
            leaves = {}
            for name in ("q", "k", "v", "gates", "sinks"):
                if name in tensors:
                    leaves[name] = torch.tensor(tensors[name], requires_grad=True)
            options = {name: torch.tensor(value) if isinstance(value, np.ndarray) else value
                       for name, value in options.items()}
            options.update((name, value) for name, value in leaves.items() if name not in "qkv")
            rows = self.torch.attention(leaves["q"], leaves["k"], leaves["v"], **options)
            loss = sum((getattr(rows, name) * torch.tensor(tensors["grad_" + name])).nan_to_num(
                posinf=0.0, neginf=0.0).sum() for name in ("out", "lse", "entropy"))
            loss.backward()
            n_cases += 1
            for name, leaf in leaves.items():
                tolerance = max(GRADIENTS["d" + name][0], 8 * 2.0 ** -24 * case["max_score"])
                self.assertLessEqual(error(leaf.grad, tensors["d" + name], True), tolerance,
                                     f"{path} d{name}")
            self.assertLessEqual(error(rows.entropy.detach(), tensors["entropy"], False),
                                 max(TOLERANCES["entropy"][0], 8 * 2.0 ** -24 * case["max_score"]))
        self.assertGreaterEqual(n_cases, 14)

    def test_the_direct_way_is_the_operators(self):
        """_direct.py: the same bytes as through the operators, for every layout in memory."""
        from unittest import mock
        from headlight import _direct as direct, _structs as s
        import ctypes
        for packed, kind in ((direct.PROBLEM, s.Attention), (direct.RESULT, s.AttentionResult),
                             (direct.UPSTREAM, s.AttentionUpstream), (direct.GRADIENT, s.AttentionGradient),
                             (direct.LAUNCH, s.CudaLaunch)):
            self.assertEqual(packed.size, ctypes.sizeof(kind), kind.c_name)
        if not direct.takes(*(torch.ones(1, 1, 2, 4) for _ in range(3))):
            self.skipTest("this PyTorch does not say which modes are on")

        def tensors(layout, batch, heads, kv_heads, rows, keys, width, value):
            made = []
            for n_heads, n, d in ((heads, rows, width), (kv_heads, keys, width), (kv_heads, keys, value)):
                x = torch.randn(batch, n_heads, n, d)
                if layout == "merged":  # as models have it: (batch, rows, heads, width)
                    x = x.transpose(1, 2).contiguous().transpose(1, 2)
                elif layout == "gaps":
                    x = torch.randn(batch, n_heads, n, 2 * d)[..., ::2]
                elif layout == "repeated":
                    x = torch.randn(1, 1, 1, d).expand(batch, n_heads, n, d)
                made.append(x.detach().requires_grad_())
            return made

        def run(leaves, upstream, **options):
            rows = self.torch.attention(*leaves, **options)
            extra = [options[name] for name in ("sinks", "gates") if options.get(name) is not None]
            found = torch.autograd.grad([rows.out, rows.lse, rows.entropy], [*leaves, *extra], upstream)
            return [rows.out, rows.lse, rows.entropy, *found]

        n_direct = 0
        shapes = ((2, 4, 2, 9, 9, 8, 8), (1, 3, 3, 5, 7, 6, 4), (3, 2, 1, 1, 12, 16, 16), (1, 1, 1, 4, 4, 1, 3))
        for shape, layout in itertools.product(shapes, ("packed", "merged", "gaps", "repeated")):
            leaves = tensors(layout, *shape)
            rows = (shape[0], shape[1], shape[3])
            upstream = [torch.randn(*rows, shape[6]), torch.randn(rows), torch.randn(rows)]
            for options in ({"causal": True}, {"scale": 0.3, "softcap": 5.0},
                            {"causal": True, "window_left": 2, "window_sink": 1},
                            {"sinks": torch.randn(shape[1], requires_grad=True),
                             "gates": torch.rand(shape[1], requires_grad=True)}):
                with self.subTest(shape=shape, layout=layout, options=list(options)):
                    with mock.patch.object(direct, "attention", wraps=direct.attention) as used:
                        found = run(leaves, upstream, **options)
                    n_direct += used.call_count
                    with mock.patch.object(direct, "takes", lambda *_: False):
                        wanted = run(leaves, upstream, **options)
                    for a, b in zip(found, wanted):
                        self.assertTrue(torch.equal(a, b))
                    if layout == "merged":  # merging the heads does not copy
                        self.assertTrue(found[0].transpose(1, 2).is_contiguous())
        self.assertEqual(n_direct, 64)
        with self.assertRaisesRegex(RuntimeError, "once_differentiable"):
            rows = self.torch.attention(*leaves, causal=True)
            grad, = torch.autograd.grad(rows.out.square().sum(), leaves[0], create_graph=True)
            grad.sum().backward()

    def test_gradcheck(self):
        q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True)
                   for _ in range(3))
        self.assertTrue(torch.autograd.gradcheck(
            lambda *qkv: self.torch.attention(*qkv, causal=True).out, (q, k, v), nondet_tol=0))
        for name in ("entropy", "lse"):  # these are float32: their differences need a larger step
            self.assertTrue(torch.autograd.gradcheck(
                lambda *qkv: getattr(self.torch.attention(*qkv, causal=True), name).double(),
                (q, k, v), eps=3e-3, atol=2e-4, rtol=1e-3))

    def test_regularizer(self):
        entropy = torch.tensor([[[1.0, 2.0], [3.0, 3.0]]], requires_grad=True)  # the means are 1.5 and 3
        for side, wanted in (("both", (0.25 + 1.0) / 2), ("below", 0.25 / 2), ("above", 1.0 / 2)):
            found = self.torch.EntropyRegularizer(2.0, 10.0, side)(entropy)
            self.assertAlmostEqual(found.item(), 10.0 * wanted, places=6)
        found.backward()
        self.assertTrue(torch.equal(entropy.grad[0, 0], torch.zeros(2)))
        with self.assertRaisesRegex(self.torch.Error, "side is 'up'"):
            self.torch.EntropyRegularizer(2.0, 1.0, "up")
        with self.assertRaisesRegex(self.torch.Error, "no entropies were collected"):
            self.torch.EntropyRegularizer(2.0, 1.0)(self.torch.Collector())

    def test_the_regularizer_moves_entropy(self):
        q, k, v = (torch.randn(1, 2, 24, 8) for _ in range(3))
        weight = torch.eye(8).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.3)
        regularizer = self.torch.EntropyRegularizer(target=1.0, weight=1.0)
        losses = []
        for _ in range(40):
            with self.torch.Collector() as seen:
                self.torch.attention(q @ weight, k, v, causal=True, layer=0)
            loss = regularizer(seen)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.1 * losses[0])

    def test_monitor(self):
        steps, alarms = [], []
        module, other = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        q, k, v = (torch.randn(2, 3, 12, 8) for _ in range(3))
        with self.torch.AttentionMonitor(module, on_step=lambda *x: steps.append(x),
                                         on_alarm=alarms.append) as monitor:
            rows = self.torch.attention(q * 0, k, v, causal=True, layer=1, module=module)
            self.torch.attention(q * 100, k, v, causal=True, layer=1, module=other)
            with monitor.paused():
                self.torch.attention(q * 100, k, v, causal=True, layer=1, module=module)
            monitor.step(5, loss=1.0)
            with self.assertRaisesRegex(self.torch.Error, "no entropies were seen"):
                monitor.step(6)
        (step, entropy, normalized), = steps
        self.assertEqual((step, entropy.shape), (5, (2, 3)))
        np.testing.assert_allclose(entropy[1], rows.entropy.mean(dim=(0, 2)), rtol=1e-6)
        np.testing.assert_allclose(normalized[1], 1.0, rtol=1e-6)  # uniform attention
        self.assertTrue(np.isnan(entropy[0]).all())
        self.assertEqual([alarm.kind for alarm in alarms], ["overload"])
        self.assertFalse(self.torch.listening())

    def test_a_dropped_monitor_stops_listening(self):
        monitor = self.torch.AttentionMonitor()
        self.assertTrue(self.torch.listening())
        del monitor
        gc.collect()
        self.assertFalse(self.torch.listening())

    def test_listeners_are_of_a_thread(self):
        q = torch.randn(1, 2, 6, 4)
        counts, barrier = [], threading.Barrier(3)

        def run():
            with self.torch.Collector() as seen:
                for _ in range(4):
                    self.torch.attention(q, q, q, causal=True, layer=0)
                    barrier.wait(10)
            counts.append(len(seen.layers[0]))

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(counts, [4, 4, 4])

    def test_monitor_of_a_run_that_diverges(self):
        q, k, v = (torch.randn(2, 3, 12, 8) for _ in range(3))
        with self.torch.AttentionMonitor() as monitor:
            self.torch.attention(q * math.nan, k, v, causal=True, layer=0)
            (alarm,) = monitor.step(1)
            self.assertEqual((alarm.kind, alarm.share), ("broken", 1.0))
            q[0, 1, 7, 3] = math.inf
            self.torch.attention(q, k, v, causal=True, layer=0)
            (alarm,) = monitor.step(2)
            self.assertEqual((alarm.kind, alarm.heads), ("broken", [(0, 1)]))

    def test_normalized_entropy_is_of_what_a_row_sees(self):
        """Uniform attention has a normalized entropy of 1 with any mask."""
        q, k, v = (torch.randn(2, 3, 12, 8) for _ in range(3))
        for options in ({"causal": True}, {}, {"causal": True, "window_left": 3},
                        {"window_left": 2, "window_right": 2}):
            with self.subTest(**options), self.torch.AttentionMonitor() as monitor:
                for n in (12, 5):
                    self.torch.attention(q[:, :, :n] * 0, k, v, layer=0, **options)
                np.testing.assert_allclose(monitor.entropies()[1], 1.0, rtol=1e-6)
        self.assertEqual(_collect.visible_keys(2, 5, True, 0, None, None, "cpu").tolist(), [[1, 1]])

    def test_the_sparsify_example(self):
        """The loop of the example on a model of one layer: entropy falls, and more with the penalty."""
        spec = importlib.util.spec_from_file_location("sparsify", ROOT + "/examples/sparsify.py")
        sparsify = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sparsify)
        text = torch.arange(400).view(10, 40) % 7
        last = []
        for weight in (0.0, 10.0):
            torch.manual_seed(1)
            steps = []
            sparsify.fine_tune(OneLayer(self.torch.attention), itertools.repeat(text),
                               sparsify.fused, weight=weight, rate=0.05, n_steps=80,
                               on_step=lambda *x: steps.append(x))
            self.assertEqual([step for step, *_ in steps], list(range(80)))
            self.assertLess(steps[-1][1], 0.8 * steps[0][1])
            last.append(steps[-1][2])
        self.assertLess(last[1], 0.75 * last[0])  # tokens repeat: entropy stays above 0
        uniform = torch.arange(1, 11).float().log().expand(2, 3, 10)
        self.assertAlmostEqual(sparsify.normalized(uniform).item(), 1.0, places=6)

    # ------------------------------------------------------- for transformers

    def plain(self, q, k, v, visible):
        """(batch, queries, heads, d) and entropy, by the definition."""
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(~visible, -math.inf)
        p = scores.softmax(-1).nan_to_num()
        return (p @ v).transpose(1, 2), -(p * p.clamp(min=1e-30).log()).sum(-1)

    def run_padded(self, mask, n_queries, sliding_window=None):
        n_batch, n_keys = mask.shape
        q = torch.randn(n_batch, 4, n_queries, 8)
        k, v = (torch.randn(n_batch, 2, n_keys, 8) for _ in range(2))
        places = torch.arange(n_keys)
        rows = places[n_keys - n_queries:, None]
        visible = (places <= rows) & mask[:, None, None, :]
        if sliding_window is not None:
            visible = visible & (places > rows - sliding_window)
        wanted, entropy = self.plain(q, k, v, visible)
        module = torch.nn.Module()
        module.layer_idx, module.is_causal = 2, True
        found = self.transformers.padding_mask(batch_size=n_batch, q_length=n_queries,
                                               kv_length=n_keys, q_offset=n_keys - n_queries,
                                               attention_mask=mask.long())
        with self.torch.Collector() as seen:
            out, none = self.transformers.attention_forward(module, q, k, v, found,
                                                            sliding_window=sliding_window)
        self.assertIsNone(none)
        real = mask[:, n_keys - n_queries:]
        self.assertLess((out - wanted)[real].abs().max().item(), 2e-6)
        means = entropy.transpose(1, 2)[real].mean(dim=0)
        self.assertLess((seen.means()[2] - means).abs().max().item(), 2e-6)

    def test_padding_left_and_right(self):
        full = torch.ones(3, 10, dtype=torch.bool)
        right, left = full.clone(), full.clone()
        right[1, 7:], right[2, 3:] = False, False
        left[1, :4], left[2, :8] = False, False
        for mask in (full, right, left):
            self.run_padded(mask, 10)
            self.run_padded(mask, 10, sliding_window=3)
        for n_queries in (1, 2):  # one or two queries after a cache
            self.run_padded(left, n_queries)
            self.run_padded(full, n_queries, sliding_window=4)

    def test_masks_of_any_kind(self):
        """Holes, pairs, numbers that are added: by the definition."""
        module = torch.nn.Module()
        module.is_causal = True
        q, k, v = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
        causal = torch.ones(9, 9, dtype=torch.bool).tril()
        holes = torch.ones(2, 9, dtype=torch.bool)
        holes[0, 3], holes[1, 5:7] = False, False
        pairs = causal[None, None].expand(2, 1, 9, 9).clone()
        pairs[:, :, 4:, :3] = False
        for mask, visible in ((holes, causal & holes[:, None, None]), (pairs, pairs),
                              (torch.where(pairs, 0.0, torch.finfo(torch.float32).min), pairs)):
            wanted, _ = self.plain(q, k, v, visible)
            found, _ = self.transformers.attention_forward(module, q, k, v, mask)
            self.assertLess((found - wanted).abs().max().item(), 2e-6)
        bias = torch.randn(1, 4, 9, 9, requires_grad=True)
        found, _ = self.transformers.attention_forward(module, q, k, v, pairs, position_bias=bias)
        scores = (q @ k.repeat_interleave(2, 1).transpose(2, 3) / 8 ** 0.5 + bias).masked_fill(~pairs, -math.inf)
        wanted = (scores.softmax(-1) @ v.repeat_interleave(2, 1)).transpose(1, 2)
        self.assertLess((found - wanted).abs().max().item(), 2e-6)
        grads = [torch.autograd.grad((x * x).sum(), bias, retain_graph=True)[0] for x in (found, wanted)]
        self.assertLess((grads[0] - grads[1]).abs().max().item(), 2e-5)

    def test_dropout_is_of_a_seed(self):
        q = torch.randn(1, 2, 64, 8, requires_grad=True)
        v = torch.ones(1, 2, 64, 1)

        def run(seed):
            return self.torch.attention(q, q, v, dropout=0.25, seed=torch.tensor(seed))

        self.assertTrue(torch.equal(run(3).out, run(3).out))
        self.assertFalse(torch.equal(run(3).out, run(4).out))
        self.assertAlmostEqual(run(3).out.mean().item(), 1.0, delta=0.05)  # what stays is scaled up
        plain = self.torch.attention(q, q, v)
        self.assertLess((run(3).entropy - plain.entropy).abs().max().item(), 1e-5)
        numbers = [x.detach().double().requires_grad_() for x in (q[:, :, :5], v[:, :, :5])]
        self.assertTrue(torch.autograd.gradcheck(
            lambda q, v: self.torch.attention(q, q, v, dropout=0.25, seed=torch.tensor(3)).out, numbers))

    def test_all_statistics(self):
        """The kernels and the blocks agree on every statistic, and gradients on every smooth one."""
        q, k, v = (torch.randn(2, 4, 11, 8, requires_grad=True), *(torch.randn(2, 2, 11, 8) for _ in range(2)))
        names = [name for name in blocks.NAMES if name != "segment_mass"]
        options = {"segments": torch.arange(11, dtype=torch.uint8) % 3, "n_segments": 3}
        everything = torch.ones(1, 1, 11, 11, dtype=torch.bool)
        for mode in ({"causal": True}, {}, {"causal": True, "window_left": 2, "window_sink": 1},
                     {"softcap": 3.0, "sinks": torch.randn(4)}, {"gates": torch.rand(4)}):
            with self.subTest(**mode):
                a, b = (self.torch.attention(q, k, v, want=(*names, "segment_mass"), **options, **mode, **more)
                        for more in ({}, {"mask": everything}))
                double = self.torch.attention(q.double(), k.double(), v.double(), want=names,
                                              **{name: x.double() if torch.is_tensor(x) else x
                                                 for name, x in mode.items()})
                for name in (*names, "segment_mass"):
                    x, y = getattr(a, name), getattr(b, name)
                    self.assertTrue(torch.equal(x.isnan(), y.isnan()), name)
                    self.assertLess((x - y).nan_to_num().abs().max().item(), 5e-6, name)
                    if name not in ("argmax", "segment_mass"):
                        self.assertEqual(getattr(double, name).dtype, torch.float64)
                        self.assertLess((x - getattr(double, name)).nan_to_num().abs().max().item(), 5e-6, name)
                for name in ("out", "lse", "entropy", "renyi2", "max_logit"):
                    grads = [torch.autograd.grad(getattr(x, name).sin().sum(), q, retain_graph=True)[0]
                             for x in (a, b)]
                    self.assertLess((grads[0] - grads[1]).abs().max().item(), 5e-6, name)

    def test_gradients_in_double(self):
        q, k, v, bias = (torch.randn(shape, dtype=torch.float64, requires_grad=True)
                         for shape in ((1, 4, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4), (1, 4, 5, 5)))
        for name in ("out", "lse", "entropy", "renyi2", "varentropy", "received"):
            for n_values in (1 << 23, 20):  # in one block, and a query at a time
                blocks.BLOCK_VALUES, before = n_values, blocks.BLOCK_VALUES
                try:
                    self.assertTrue(torch.autograd.gradcheck(
                        lambda *x: getattr(self.torch.attention(*x[:3], bias=x[3], causal=True, want=(name,)),
                                           name), (q, k, v, bias)), name)
                finally:
                    blocks.BLOCK_VALUES = before

    def test_what_is_wrong_is_named(self):
        q = torch.ones(1, 2, 3, 4)
        for expected, call in (
                ("q has 3 axes", lambda: self.torch.attention(q[0], q, q)),
                ("k is a numpy.ndarray", lambda: self.torch.attention(q, q.numpy(), q)),
                ("v is of torch.int32", lambda: self.torch.attention(q, q, q.int())),
                ("k has shape .1, 2, 3, 5.", lambda: self.torch.attention(q, torch.ones(1, 2, 3, 5), q)),
                ("q has 2 heads, not a multiple", lambda: self.torch.attention(
                    q, torch.ones(1, 3, 3, 4), torch.ones(1, 3, 3, 4))),
                ("bias has shape .3, 3.", lambda: self.torch.attention(q, q, q, bias=torch.ones(3, 3))),
                ("mask has shape .1, 7.", lambda: self.torch.attention(
                    q, q, q, mask=torch.ones(1, 7, dtype=torch.bool))),
                ("there is no 'shape'", lambda: self.torch.attention(q, q, q, want=("shape",))),
                ("there are no segments", lambda: self.torch.attention(q, q, q, want=("segment_mass",)))):
            with self.subTest(expected), self.assertRaisesRegex(ValueError, expected):
                call()
