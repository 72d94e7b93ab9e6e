#!/usr/bin/env python3
"""Do plans move no more words with more fast memory? Random problems under masks, each planned for rising M.

    bench/monotone.py --modifier bias    # none, bias, alibi or sinks; needs a release build

Prints how many pairs of M, one after the other, were compared, and every pair with more words for the larger M.
"""

import argparse
import json
import pathlib
import random
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODIFIERS = {"none": [], "alibi": ["--alibi"], "sinks": ["--sinks"]}


def problem(draw, modifier):
    """Options of a problem, and its widths."""
    n, d = draw.randint(40, 700), draw.choice([4, 8, 16, 32, 64])
    op = draw.choice(["forward", "forward", "backward"])
    heads, kv_heads = draw.choice([(1, 1), (2, 1), (4, 2)])
    options = ["--op", op, "--n", n, "--d", d, "--heads", heads, "--kv-heads", kv_heads]
    options += ["--causal"] if draw.random() < 0.4 else ["--window", f"{draw.randint(0, n // 3)},{draw.choice([0, n // 8])}"]
    if modifier == "bias":
        options += ["--bias", draw.choice([f"1,1,{n},{n}", f"1,{heads},{n},{n}", f"1,1,1,{n}"])]
    else:
        options += MODIFIERS[modifier]
    return [str(x) for x in options], d


def planned(redblue, options, M):
    """(words, schedule), or None where nothing fits."""
    done = subprocess.run([redblue, "plan", *options, "--M", str(M), "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    best = json.loads(done.stdout)["plans"][0]
    return best["io"], best["schedule"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modifier", choices=["bias", *MODIFIERS], default="bias")
    parser.add_argument("--redblue", default=str(ROOT / "build/release/redblue"))
    options = parser.parse_args()
    draw, pairs, worse, worst = random.Random(options.seed), 0, 0, 1.0
    for _ in range(options.cases):
        case, d = problem(draw, options.modifier)
        before = None
        for M in sorted(draw.randint(6 * d, 60 * d * d) for _ in range(8)):
            now = planned(options.redblue, case, M)
            if before and now:
                pairs += 1
                if now[0] > before[0]:
                    worse, worst = worse + 1, max(worst, now[0] / before[0])
                    print(f"{' '.join(case)}: {before[0]} words ({before[1]}) for M = {smaller}, {now[0]} ({now[1]}) for {M}")
            before, smaller = now, M
    print(f"{pairs} pairs of M, {worse} with more words for more memory, by {100 * (worst - 1):.1f} % at most")


if __name__ == "__main__":
    main()
