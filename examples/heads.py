"""heads.py - what every head of a model does on a text: the sharpest and the flattest, and a figure.

    PYTHONPATH=python python3 examples/heads.py models/demo models/text/alice.txt heads.svg
"""
import sys

import numpy as np

import headlight


def main(model_path, text_path, figure_path):
    with headlight.open(model_path) as model:
        profile = model.measure(files=text_path, max_tokens=1000, context=256)
    order = np.argsort(profile.entropy.values, axis=None)
    for title, chosen in (("sharpest", order[:3]), ("flattest", order[:-4:-1])):
        for layer, head in zip(*np.unravel_index(chosen, profile.entropy.shape)):
            print(f"{title}  L{layer}H{head}  {profile.entropy[layer, head]:.3f} nats")
    for found in profile.diagnose():
        if found.verdict == "present":
            print(f"{found.name}: {found.finding}")
    profile.plot(figure_path)


if __name__ == "__main__":
    main(*sys.argv[1:])
