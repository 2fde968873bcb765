"""make_tokens.py - texts as one row of token ids, for the scripts beside it.

    PYTHONPATH=python python3 bench/torch/make_tokens.py models/demo tokens.npy texts/*.txt

The texts stand in random order (seed 0) with id 0, models/demo's <|endoftext|>, after each.  The runs in
bench/results are on the training text of models/README.md: 252 texts, 11,100,053 tokens.
"""
import sys

import numpy as np

import headlight


def main(model_path, out_path, *texts):
    stream = []
    with headlight.open(model_path) as model:
        for text in texts:
            with open(text, encoding="utf-8") as file:
                stream.append(np.append(model.tokenize(file.read()), 0).astype(np.uint16))
    order = np.random.default_rng(0).permutation(len(stream))
    np.save(out_path, np.concatenate([stream[i] for i in order]))
    print(f"{len(stream)} texts, {sum(map(len, stream))} tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
