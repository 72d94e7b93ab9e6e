#!/usr/bin/env python3
"""Puts the table of a race under masks into docs/speed.md: scripts/masks_table.py bench/results/masks-FILE.json"""

import json
import pathlib
import sys

import blocks

ROOT = blocks.ROOT
NAMES = {"full": "none", "window": "window, 1/8 of n on either side", "causal_window": "causal window, 1/8 of n", "prefix": "prefix-LM, 1/4 of n",
         "sequences": "packed sequences, n/64 to n/4 long", "alibi": "ALiBi", "softcap": "softcap", "blocks_5": "blocks of 64: those of the diagonal, and 5 % of the others",
         "blocks_20": "the same, 20 %", "blocks_50": "the same, 50 %"}  # fmt: skip


def text_of(e):
    """The rate, its share of the rate without a mask, and the nearest peer."""
    rate = f"{e['gflops']:.0f}" + (f" ({100 * e['share']:.0f} %)" if e["cell"] != "full" else "")
    raced = {name: p for name, p in e["peers"].items() if "ratio" in p}
    if not raced:
        return rate
    name, peer = min(raced.items(), key=lambda x: x[1]["ratio"])
    ratio = f"{peer['ratio']:.2f} {name}"
    wrong = "" if all(p["agrees"] for p in raced.values()) else ", outputs differ"
    return f"{rate}, {ratio if peer['ratio'] >= 1 else f'**{ratio}**'}{wrong}"


def table(path):
    r = json.loads((ROOT / path).read_text())
    blocks.rename_cells(r["results"])
    columns = sorted({(e["threads"], e["op"], e["d"]) for e in r["results"]}, key=lambda c: (c[0], c[1] != "forward", c[2]))
    found = {(e["cell"], e["threads"], e["op"], e["d"]): e for e in r["results"]}
    ratios = [p["ratio"] for e in r["results"] for p in e["peers"].values() if "ratio" in p]
    failed = sorted({f"{name} cannot compile the cell {e['cell']}" for e in r["results"] for name, p in e["peers"].items() if "failed" in p})
    n = ", ".join(map(str, sorted({e["n"] for e in r["results"]})))
    lines = [
        blocks.paragraph(
            f"[{path}](../{path}) has the results. `{r['command']}` made them at commit {r['commit']} on {r['date']}: "
            f"{r['cpu']}, {r['cpus']} CPUs; {r['compiler']}, {r['flags']}; {r['peer']}."
        ),
        "",
        blocks.paragraph(
            f"n = {n}, {r['heads']} heads, f32. GFLOP/s of redblue on the pairs that the mask leaves (their share of its rate "
            "without a mask), then the time of the faster peer over redblue's time: scaled_dot_product_attention with a mask, or "
            f"compiled flex_attention, which has no backward here. {len(ratios)} races, {sum(x >= 1 for x in ratios)} won."
        ),
        "",
        "| mask | " + " | ".join(f"{t} thread{'s' if t > 1 else ''}, {op}, d = {d}" for t, op, d in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for cell in NAMES:
        if any((cell, *c) in found for c in columns):
            lines.append(f"| {NAMES[cell]} | " + " | ".join(text_of(found[(cell, *c)]) if (cell, *c) in found else "" for c in columns) + " |")
    return "\n".join([*lines, *(["", "; ".join(failed) + "."] if failed else [])]) + "\n"


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_file():
        sys.exit(__doc__)
    blocks.write("docs/speed.md", "masks", table(pathlib.Path(sys.argv[1]).resolve().relative_to(ROOT)))


if __name__ == "__main__":
    main()
