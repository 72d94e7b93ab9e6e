#!/usr/bin/env python3
"""Writes examples/data/flat.safetensors, or the file that is named: q, k and v whose scores are small, so that a polynomial
pays. It needs NumPy and safetensors.

    scripts/make_flat_data.py [FILE]
"""

import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

TARGET = pathlib.Path(__file__).resolve().parents[1] / "examples/data/flat.safetensors"


def main(arguments):
    if len(arguments) > 1 or any(word.startswith("-") for word in arguments):
        sys.exit(__doc__.strip())
    normal = np.random.default_rng(1).standard_normal
    sizes = {"q": 0.5, "k": 0.5, "v": 1.0}
    tensors = {name: (size * normal((1, 2, 1024, 8))).astype(np.float32) for name, size in sizes.items()}
    save_file(tensors, arguments[0] if arguments else TARGET)


if __name__ == "__main__":
    main(sys.argv[1:])
