#!/usr/bin/env python3
"""Is the plan of least modelled time the fastest? Random problems, each timed with the chosen plan and with the plan
that the planner makes for every other common schedule.

    bench/regret.py --cases 100 --seed 1    # needs a release build: about 5 minutes

Prints every problem where another schedule is faster by more than --more, as the ratio of the two times (the regret),
and at the end the median of all ratios, the 90th percentile and the largest.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEDULES = {
    "forward": ["flash", "flash_pinned", "flash_tiled", "split_keys", "ring", "strips"],
    "backward": ["fused_key_outer", "grouped_key_outer", "fused_query_outer", "two_pass", "ring_queries"],
}


def sequences(draw, n):
    """Lengths of packed sequences, some long and many short, about n in all."""
    weights = [draw.lognormvariate(0, 1) for _ in range(draw.randint(2, max(2, min(n // 8, 40))))]
    return [max(1, int(n * w / sum(weights))) for w in weights]


def mask_file(draw, files, n, block, share):
    """A boolean mask of blocks, each seen at random, in a file."""
    seen = np.random.default_rng(draw.randrange(1 << 30)).random((n // block, n // block)) < share
    path = pathlib.Path(files) / f"{n}-{block}-{share}.npy"
    np.save(path, np.kron(seen, np.ones((block, block), bool))[:n, :n])
    return path


def problem(draw, files):
    """(operation, options) of a problem, whose mask may be a file in the folder `files`."""
    op, n, heads = draw.choice(list(SCHEDULES)), int(2 ** draw.uniform(7, 11.3)), draw.choice([1, 2, 4, 8])
    nq, nk, kv_heads, options = n, n, heads, []
    match draw.choice(["none", "causal", "window", "packed", "padded", "prefill", "decode", "bias", "alibi", "softcap", "bigbird", "longformer", "strided", "fixed", "dilated", "scattered", "blocks", "small"]):
        case "causal":
            options, kv_heads = ["--causal"], draw.choice([heads, 1])
        case "window":
            options = ["--window", draw.choice(["64,0", "128,0", "256,0", "128,128", "512,0"])]
        case "packed":
            lengths = sequences(draw, n)
            nq = nk = sum(lengths)
            options = ["--seqlens", ",".join(map(str, lengths)), *draw.choice([[], ["--causal"]])]
        case "padded":
            nq = nk = min(n, 1024)
            batch = draw.randint(2, 6)
            options = ["--batch", batch, "--seqused-k", ",".join(str(draw.randint(1, nk)) for _ in range(batch))]
        case "prefill":
            nq, nk, options, kv_heads = draw.choice([16, 64, 256, 512]), draw.choice([1024, 4096, 8192]), ["--causal"], draw.choice([heads, 1])
        case "decode":
            op, nq, nk, kv_heads = "forward", draw.choice([1, 1, 4]), draw.choice([1024, 8192, 32768]), draw.choice([heads, 1])
        case "bias":
            options = ["--bias", draw.choice([f"1,1,{n},{n}", f"1,{heads},{n},{n}", f"1,1,1,{n}"])]
        case "alibi":
            options = ["--alibi", "--causal"]
        case "softcap":
            options = ["--softcap", 30, "--causal"]
        case "bigbird":
            nq = nk = max(512, n // 64 * 64)
            options = ["--big-bird", "64,1,1,2"]
        case "longformer":
            options = ["--window", "64,64", "--globals", 16]
        case "strided":
            nq = nk = min(n, 1024)
            options = ["--strided", 64]
        case "fixed":
            nq = nk = min(n, 1024)
            options = ["--fixed", "64,8"]
        case "dilated":
            nq = nk = min(n, 1024)
            options = ["--window", "64,64", "--dilation", draw.choice([2, 4, 8])]
        case "scattered":
            nq = nk = min(n, 1024)
            options = ["--mask", mask_file(draw, files, nq, 1, draw.choice([0.05, 0.3, 0.7]))]
        case "blocks":
            nq = nk = max(256, min(n, 1024) // 64 * 64)
            options = ["--mask", mask_file(draw, files, nq, draw.choice([32, 64]), draw.choice([0.1, 0.2, 0.4]))]
        case "small":
            nq = nk = draw.randint(4, 200)
    d, threads = draw.choice([16, 32, 64, 64, 64, 80, 96, 128, 128, 256]), draw.choice([1, 1, 2])
    sizes = ["--op", op, "--nq", nq, "--nk", nk, "--d", d, "--heads", heads, "--kv-heads", kv_heads, "--threads", threads]
    return op, [str(x) for x in [*sizes, *options]]


def timed(redblue, options, schedule=None, repetitions=3):
    """(median milliseconds, schedule and tiles), or None where the schedule cannot run this."""
    named = ["--schedule", schedule] if schedule else []
    command = [redblue, "bench", "--json", "--repetitions", str(repetitions), "--min-time", "0.01", *options, *named]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    runs = json.loads(done.stdout)["benchmarks"]
    return statistics.median(r["real_time"] for r in runs if r["run_type"] == "iteration"), runs[0]["label"]


def regrets_of(given, files):
    """The ratios of all problems; those above --more are printed."""
    draw, regrets = random.Random(given.seed), []
    for _ in range(given.cases):
        op, options = problem(draw, files)
        chosen = timed(given.redblue, options)
        if chosen is None:
            continue
        others = {s: timed(given.redblue, options, s) for s in SCHEDULES[op] if s != chosen[1].split()[0]}
        others = {s: t for s, t in others.items() if t is not None}
        best = min(others, key=lambda s: others[s][0], default=None)
        regret = max(1.0, chosen[0] / others[best][0]) if best else 1.0
        again = (timed(given.redblue, options, None, 5), timed(given.redblue, options, best, 5)) if regret > given.more else (None, None)
        if None not in again:  # the least of each
            regret = min(chosen[0], again[0][0]) / min(others[best][0], again[1][0])
        regrets.append(max(1.0, regret))
        if regret > given.more:
            print(f"{regret:.2f}  {chosen[0]:.3f} ms with {chosen[1]}; faster: {others[best][1]}; {' '.join(options)}", flush=True)
    return sorted(regrets)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--more", type=float, default=1.08, help="print regrets above this (default: 1.08)")
    parser.add_argument("--redblue", default=str(ROOT / "build/release/redblue"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as files:
        regrets = regrets_of(given, files)
    if not regrets:
        raise SystemExit("no problem could be timed: is --redblue a release build?")
    print(f"{len(regrets)} problems: median {statistics.median(regrets):.2f}, 90th percentile {regrets[int(0.9 * (len(regrets) - 1))]:.2f}, largest {regrets[-1]:.2f}")


if __name__ == "__main__":
    main()
