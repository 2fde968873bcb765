"""surgeon_numpy.py - the surgeon's scores of one layer by brute force, in NumPy and float64.

    python3 tests/surgeon_numpy.py FOLDER

FOLDER has Z (n, H d) of a layer, its output projection w0 (D, H d), the sum of the products g g' of the m
gradients of its output (D, D; lower triangle) and `shape`: n H d D m; and the scores (H).  Here every candidate is tried: the rows of the heads that stay are solved again,
by least squares over the change of all weights with the ridge.  Prints the largest relative difference.
"""
import sys

import numpy as np


def read(name, dtype, *shape):
    return np.fromfile(f"{sys.argv[1]}/{name}", dtype=dtype).astype(np.float64).reshape(shape)


n, heads, d, width, m = (int(v) for v in read("shape", np.float64, 5))
z = read("z", np.float32, n, heads * d)
lower = read("fisher", np.float64, width, width) / m
fisher = np.tril(lower) + np.tril(lower, -1).T
fisher += 1e-6 * np.mean(np.diag(fisher)) * np.eye(width)
w = read("w0", np.float32, width, heads * d).T
scores = read("scores", np.float64, heads)

ridge = 1e-3 * np.mean(np.sum(z * z, axis=0))
centered = z - z.mean(axis=0)
gram = centered.T @ centered + ridge * np.eye(heads * d)


def left(gone):
    """The rise of the loss by the error that is least, ridge included, when the heads `gone` write nothing."""
    off = np.concatenate([np.arange(h * d, h * d + d) for h in gone])
    on = np.setdiff1d(np.arange(heads * d), off)
    change = np.zeros_like(w)
    change[off] = -w[off]
    if len(on):
        change[on] = np.linalg.solve(gram[np.ix_(on, on)], -gram[np.ix_(on, off)] @ change[off])
    return np.sum(change * (gram @ change @ fisher)) / (2 * n)


gone, error, score, before = [], 0.0, 0.0, 0.0
while len(gone) < heads:
    best = min((h for h in range(heads) if h not in gone), key=lambda h: left(gone + [h]))
    gone.append(best)
    score, before = max(score, left(gone) - before), left(gone)
    error = max(error, abs(score - scores[best]) / scores[best])
print(f"{error:.3e}")
