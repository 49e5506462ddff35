#!/usr/bin/python3
"""Writes a checkpoint of train.py as a GGUF file and reads it back to check it.

    export_gguf.py CHECKPOINT GGUF
"""

import argparse

import gguf
import train

LIMIT = 1_500_000  # bytes; the program carries the file inside itself


def main():
    parser = argparse.ArgumentParser(description="Write a checkpoint as a GGUF file.")
    parser.add_argument("checkpoint")
    parser.add_argument("gguf")
    options = parser.parse_args()
    model, tokenizer, state = train.load(options.checkpoint)
    size = gguf.write(options.gguf, model, tokenizer, "Cellar storyteller")
    if size > LIMIT:
        raise SystemExit(f"{size} bytes are more than {LIMIT}")
    again, tokenizer_again, _ = gguf.read(options.gguf)
    assert tokenizer_again.tokens == tokenizer.tokens
    for key, weight in model.state_dict().items():
        # Half a step of rounding, and the scale's own rounding to f16 times up to 127 steps.
        step = (0.5 / 127 + 2.0 ** -11) * 1.001 if weight.dim() == 2 else 0
        limit = weight.abs().max().item() * step
        assert (again.state_dict()[key] - weight).abs().max().item() <= limit, key
    print(f"{options.gguf}: {size} bytes, after step {state['step']} of {state['steps']}")


if __name__ == "__main__":
    main()
