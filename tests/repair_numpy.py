"""repair_numpy.py - the problem that a repair solves, solved again by NumPy in float64.

    python3 tests/repair_numpy.py FOLDER

FOLDER has, for one layer, Z (n, k), the original stream and the pruned model's (n, d), the output
projection and bias before and after (d, k) and (d), as raw arrays, and `shape`: n k d has_bias scale.
Prints the largest relative difference.
"""
import sys

import numpy as np


def read(name, dtype, *shape):
    return np.fromfile(f"{sys.argv[1]}/{name}", dtype=dtype).astype(np.float64).reshape(shape)


n, k, d, has_bias, scale = read("shape", np.float64, 5)
n, k, d = int(n), int(k), int(d)
z = read("z", np.float32, n, k)
wanted, had = read("wanted", np.float32, n, d), read("had", np.float32, n, d)
w0, w1 = read("w0", np.float32, d, k), read("w1", np.float32, d, k)
b0, b1 = read("b0", np.float32, d), read("b1", np.float32, d)

root = 1 / np.sqrt(np.mean(wanted * wanted, axis=1, keepdims=True))  # a norm reads the stream
r = root * (wanted - had) / scale
z = root * z
ridge = 1e-3 * np.mean(np.sum(z * z, axis=0))
if has_bias:  # a column of ones times the rows' factors, without a ridge
    z = np.hstack([z, root])
penalty = ridge * np.eye(z.shape[1])
if has_bias:
    penalty[-1, -1] = 0.0
change = np.linalg.solve(z.T @ z + penalty, z.T @ r).T
w = w0 + change[:, :k]
b = b0 + change[:, k] if has_bias else b0
error = np.abs(w - w1).max() / np.abs(w).max()
if has_bias:
    error = max(error, np.abs(b - b1).max() / np.abs(b).max())
print(f"{error:.3e}")
