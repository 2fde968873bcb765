"""The examples in docstrings, run by doctest, and a forked process."""
import doctest
import multiprocessing
import unittest

import numpy as np

import headlight
from headlight import _attention, _named


class Docstrings(unittest.TestCase):
    def test_examples(self):
        for module in (_attention, _named):
            failed, n = doctest.testmod(module)
            self.assertEqual(failed, 0)
            self.assertGreater(n, 1)


def entropy(queue, x):
    queue.put(headlight.attention(x, x, x, causal=True).entropy)


class Fork(unittest.TestCase):
    def test_a_forked_child_computes_the_same(self):
        x = np.random.default_rng(0).standard_normal((1, 4, 300, 64)).astype(np.float32)
        wanted = headlight.attention(x, x, x, causal=True).entropy  # the library has its threads now
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=entropy, args=(queue, x), daemon=True)
        child.start()
        self.assertTrue(np.array_equal(queue.get(timeout=60), wanted))
        child.join(60)


if __name__ == "__main__":
    unittest.main()
