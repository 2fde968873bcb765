"""without_heads.py - a text as a model writes it, and what it writes when some heads are off.

    PYTHONPATH=python python3 examples/without_heads.py models/demo "Alice was" L0,L3H2
"""
import sys

import headlight


def main(model_path, prompt, off):
    with headlight.open(model_path) as model:
        for name, heads in (("all heads", ()), (f"without {off}", off)):
            found = model.generate(prompt, max_tokens=24, off=heads)
            entropy = sum(token.attention_entropy for token in found.tokens) / len(found.tokens)
            loss = -sum(token.logprob for token in found.tokens) / len(found.tokens)
            print(f"{name}: {found.text!r}")
            print(f"    attention {entropy:.2f} nats, {loss:.2f} nats a token")


if __name__ == "__main__":
    main(*sys.argv[1:])
