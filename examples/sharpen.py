"""sharpen.py - gradient descent on entropy: queries are turned until every head looks at 2 keys.

    PYTHONPATH=python python3 examples/sharpen.py

numpy only.  The loss is the mean of (H - ln 2)^2 over heads, H a head's mean entropy, and its
gradient comes from the fused backward pass: no attention matrix is made.
"""
import numpy as np

import headlight


def main(n_steps=60, rate=20.0):
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((1, 4, 64, 16)).astype(np.float32) for _ in range(3))
    target = np.log(2.0)
    for step in range(n_steps + 1):
        found = headlight.attention(q, k, v, want=("lse", "entropy"))
        off = found.entropy.mean(axis=(0, 2)) - target  # (heads)
        if step % 20 == 0:
            print(f"step {step:3}  loss {np.mean(off ** 2):.4f}  entropy "
                  f"{np.round(off + target, 2)}")
        slope = 2 * off / (off.size * found.entropy.shape[0] * found.entropy.shape[2])
        grad = np.broadcast_to(slope[None, :, None], found.entropy.shape)
        q = q - rate * headlight.attention_backward(q, k, v, found, grad_entropy=grad).dq
    return float(np.mean(off ** 2))


if __name__ == "__main__":
    main()
