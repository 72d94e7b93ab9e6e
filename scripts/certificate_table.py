#!/usr/bin/env python3
"""How tight certificates are: the proved error of O over the measured one, by decade of the proved error.

    certificate_table.py [--redblue build/release/redblue] [--data ../shared/data]

Queries are divided so that the certified range of the widest head is R; polynomials of several degrees for that range
run in f64, and each head is compared with exact attention, here in numpy. Of each decade the median of proved over
measured, the least of it, and how many heads there are. docs/certificates.md has the table."""
import argparse
import collections
import json
import math
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[1]
RANGES = (0.125, 0.25, 0.5, 1.0, 2.0)


def exact(q, k, v):
    z = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])
    w = np.exp(z - z.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", w / w.sum(-1, keepdims=True), v)


def certified_heads(redblue, tensors, degree, reach):
    """Of each head what is proved and what is measured, in units of its largest |V|; and the proof's rounding."""
    with tempfile.TemporaryDirectory() as folder:
        x, y, c = (f"{folder}/{name}" for name in ("x.safetensors", "y.safetensors", "c.json"))
        save_file(tensors, x)
        command = [redblue, "run", "--M", "4000000", "--input", x, "--output", y, "--quiet"]
        subprocess.run([*command, "--approximate", f"{degree}:{reach}", "--certificate", c], check=True)
        heads = json.loads(pathlib.Path(c).read_text())["per_head"]
        gaps = np.abs(load_file(y)["o"] - exact(*(tensors[n] for n in "qkv"))).max((2, 3))
    for head in heads:
        gap = gaps[head["batch"], head["head"]]
        if head["rounding"] is None or head["output_error"] is None:
            continue
        assert gap <= head["output_error"] + head["rounding"], head
        yield head["output_error"] / head["largest_v"], gap / head["largest_v"]


def decades(redblue, tensors, degrees):
    tensors = {n: np.ascontiguousarray(tensors[n], dtype=np.float64) for n in "qkv"}
    d = tensors["q"].shape[-1]
    widest = max(
        np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max() / math.sqrt(d)
        for q, k in zip(tensors["q"][0], tensors["k"][0])
    )
    found = collections.defaultdict(list)
    for reach in RANGES:
        divided = tensors | {"q": tensors["q"] * (reach * (1 - 1e-9) / widest)}
        for degree in degrees:
            for proved, measured in certified_heads(redblue, divided, degree, reach):
                found[math.floor(math.log10(proved))].append(proved / measured)
    return widest, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--redblue", default=str(ROOT / "build" / "release" / "redblue"))
    parser.add_argument("--data", type=pathlib.Path, default=ROOT.parent / "shared" / "data")
    args = parser.parse_args()
    random = np.random.default_rng(1)
    sources = {}
    for layer in (0, 5):
        file = args.data / f"minilm-layer{layer}.safetensors"
        if file.is_file():
            sources[f"minilm layer {layer}"] = (load_file(file), range(1, 5))
    sources["normal, d = 32"] = ({n: random.standard_normal((1, 12, 512, 32)) for n in "qkv"}, range(1, 5))
    sources["normal, d = 4"] = ({n: random.standard_normal((1, 12, 512, 4)) for n in "qkv"}, range(1, 9))
    table = {name: decades(args.redblue, *source) for name, source in sources.items()}
    print("| proved | " + " | ".join(f"{name} (range {widest:.3g} before)" for name, (widest, _) in table.items()) + " |")
    print("|---" * (len(table) + 1) + "|")
    for power in range(-1, -13, -1):
        cells = []
        for _, found in table.values():
            ratios = found.get(power, [])
            cells.append(f"{statistics.median(ratios):.3g} ({min(ratios):.3g}), {len(ratios)}" if ratios else "-")
        print(f"| 1e{power} to 1e{power + 1} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
