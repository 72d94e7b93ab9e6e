#!/usr/bin/env python3
"""Races redblue against PyTorch under masks and on modified scores, interleaved.

    build/peers/venv/bin/python bench/peers/masks.py    (bench/peers/race.sh --quick makes the environment and builds)
    scripts/masks_table.py bench/results/FILE.json      # the table of docs/speed.md

Each line has redblue's GFLOP/s on the pairs that the mask leaves, their share of redblue's own rate without a mask,
and the time of each peer over redblue's. Peers: scaled_dot_product_attention with a mask (forward and backward), and
flex_attention, compiled (forward; it has no backward on CPUs). bench/README.md says what is fair about it.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

import masked
import numpy as np
import race
import runners
import torch
from runners import rb
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS = 4
BLOCK = 64


class Cell:
    """What is hidden and what is added, in the terms of each library."""

    def __init__(self, n, problem=None, seen=None, seen_mod=None, score_mod=None, added=None, slopes=None, blocks=None):
        """problem: fields of redblue_problem. seen: [n, n] booleans, or None. added: [heads, n, n], or None."""
        self.problem, self.seen, self.added = problem or {}, seen, added
        self.seen_mod, self.score_mod, self.slopes, self.blocks = seen_mod, score_mod, slopes, blocks
        self.pairs = n * n if seen is None else int(seen.sum())


def cells(n):
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    w = n // 8
    ends = masked.mixed_lengths(n)
    sequence = np.searchsorted(ends, np.arange(n), side="right")
    sequences = torch.from_numpy(sequence)
    slopes = np.float32(2.0 ** -np.arange(2, 2 * HEADS + 1, 2))
    slope_list = torch.from_numpy(slopes)
    found = {
        "full": Cell(n),
        "window": Cell(n, masked.window(w, w), abs(i - j) <= w,
                       lambda b, h, q, k: (q - k).abs() <= w),
        "causal_window": Cell(n, masked.window(w, causal=1), (j <= i) & (i - j <= w),
                              lambda b, h, q, k: (k <= q) & (q - k <= w)),
        "prefix": Cell(n, {"causal": 1, "prefix": n // 4}, (j <= i) | (j < n // 4), lambda b, h, q, k: (k <= q) | (k < n // 4)),
        "sequences": Cell(n, masked.packed(ends), sequence[:, None] == sequence[None, :],
                          lambda b, h, q, k: sequences[q] == sequences[k]),
        "alibi": Cell(n, {"alibi": 1}, score_mod=lambda s, b, h, q, k: s - slope_list[h] * (q - k).abs(),
                      added=-slopes[:, None, None] * np.float32(abs(i - j)), slopes=slopes),
        "softcap": Cell(n, {"softcap": 20.0}, score_mod=lambda s, b, h, q, k: 20 * torch.tanh(s / 20)),
    }  # fmt: skip
    for percent in (5, 20, 50):
        blocks = masked.drawn_blocks(n // BLOCK, percent)
        table = torch.from_numpy(blocks)
        found[f"blocks_{percent}"] = Cell(n, {}, np.kron(blocks, np.ones((BLOCK, BLOCK), bool)),
                                          lambda b, h, q, k, table=table: table[q // BLOCK, k // BLOCK], blocks=blocks)  # fmt: skip
    return found


def sdpa(cell, arrays, backward):
    tensors = [torch.from_numpy(arrays[x])[None] for x in "qkv"]
    mask = cell.seen if cell.added is None else cell.added
    mask = None if mask is None else torch.from_numpy(mask if mask.ndim == 3 else mask[None])[None]
    attention = torch.nn.functional.scaled_dot_product_attention
    if not backward:

        def call():
            with torch.inference_mode():
                return [attention(*tensors, attn_mask=mask)]

        return call
    for x in tensors:
        x.requires_grad_()
    o, dO = attention(*tensors, attn_mask=mask), torch.from_numpy(arrays["d_o"])[None]
    return lambda: torch.autograd.grad(o, tensors, dO, retain_graph=True)


def flex(cell, arrays, n):
    tensors = [torch.from_numpy(arrays[x])[None] for x in "qkv"]
    mask = cell.seen_mod and create_block_mask(cell.seen_mod, None, None, n, n, device="cpu")
    torch._dynamo.reset()  # what was compiled for other cells counts against a limit
    compiled = torch.compile(flex_attention, fullgraph=True)

    def call():
        with torch.no_grad():
            return [compiled(*tensors, score_mod=cell.score_mod, block_mask=mask)]

    return call


def result_of(name, cell, n, d, op, options, dense):
    random = np.random.default_rng([n, d])
    draw = lambda: random.standard_normal((HEADS, n, d), np.float32)
    arrays = {x: draw() for x in "qkv"}
    o, lse = np.zeros((HEADS, n, d), np.float32), np.zeros((HEADS, n, 1), np.float32)
    redblue = lambda op, given, made: masked.Redblue(op, given, made, options.worker, cell.problem, cell.blocks, BLOCK, cell.slopes)
    ours = redblue(rb.FORWARD, arrays, {"o": o, "lse": lse})
    outputs = [o]
    if op == "backward":
        ours()
        arrays |= {"o": o, "lse": lse, "d_o": draw()}
        outputs = [np.zeros((HEADS, n, d), np.float32) for _ in range(3)]
        ours = redblue(rb.BACKWARD, arrays, dict(zip(("dq", "dk", "dv"), outputs)))
    peers = {}
    if cell.score_mod is None or cell.added is not None:
        peers["sdpa"] = sdpa(cell, arrays, op == "backward")
    if op == "forward":
        peers["flex"] = flex(cell, arrays, n)
    flops = 4 * cell.pairs * d * HEADS * (2.5 if op == "backward" else 1)
    entry = {"cell": name, "op": op, "n": n, "d": d, "threads": options.worker, "pairs_seen": cell.pairs,
             "schedule": ours.plan.info().schedule.decode(), "peers": {}}  # fmt: skip
    seconds = []
    for peer, theirs in peers.items():
        try:
            times = race.pairs(ours, theirs, options.seconds, 3)
        except torch._inductor.exc.InductorError as failure:  # PyTorch cannot compile all that flex_attention takes
            entry["peers"][peer] = {"failed": str(failure).splitlines()[0]}
            continue
        error = max(float(np.abs(x - y.detach().numpy()[0]).max() / np.abs(x).max()) for x, y in zip(outputs, theirs()))
        entry["peers"][peer] = {"ratio": statistics.median(y / x for x, y in times), "error": error,
                                "agrees": error <= race.TOLERANCE["f32"], "pairs": len(times)}  # fmt: skip
        seconds += [x for x, _ in times]
    if not seconds:  # nobody to race against
        ours()
        seconds = [race.timed(ours) for _ in range(5)]
    entry["gflops"] = 1e-9 * flops / statistics.median(seconds)
    entry["share"] = entry["gflops"] / dense if dense else 1.0
    return entry


def report(e):
    ratios = "  ".join(f"{k} {v['ratio']:.2f} (error {v['error']:.0e})" if "ratio" in v else f"{k} failed" for k, v in e["peers"].items())
    return (f"{e['threads']} {e['op']:<9}n {e['n']:<6}d {e['d']:<4}{e['cell']:<14}{e['schedule']:<18}"
            f"{e['gflops']:6.1f} GFLOP/s {100 * e['share']:4.0f} %  {ratios}")  # fmt: skip


def work(options):
    """All cells with one number of threads; a line of JSON for each."""
    torch.set_num_threads(options.worker)
    rb.LIB = rb.load(options.library)
    for op in options.ops.split(","):
        for n in options.n:
            for d in options.d:
                dense = None
                for name, cell in cells(n).items():
                    if options.cells and name not in ["full", *options.cells.split(",")]:
                        continue
                    entry = result_of(name, cell, n, d, op, options, dense)
                    dense = dense or entry["gflops"]
                    print(json.dumps(entry), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(x) for x in text.split(",")]
    parser.add_argument("--n", type=numbers, default=[2048])
    parser.add_argument("--d", type=numbers, default=[64, 128])
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--ops", default="forward,backward")
    parser.add_argument("--cells", help="default: all")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each race")
    parser.add_argument("--library", default=str(runners.ROOT / "build/release/libredblue_c.so"))
    parser.add_argument("--output", type=pathlib.Path, help="default bench/results/masks-MACHINE-DATE-COMMIT.json")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    cpu = race.re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), race.re.MULTILINE)[1]
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    results = {"schema": "redblue.masks/1", "command": " ".join(["bench/peers/masks.py", *sys.argv[1:]]), "commit": race.commit(),
               "date": date, "cpu": cpu, "cpus": os.cpu_count(), "peer": f"PyTorch {torch.__version__}", "heads": HEADS,
               **race.compiled_with(pathlib.Path(options.library).parent), "results": []}  # fmt: skip
    for threads in options.threads:
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", str(threads)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=race.environment(threads)) as process:
            for line in process.stdout:
                results["results"].append(json.loads(line))
                print(report(results["results"][-1]), flush=True)
        if process.returncode != 0:
            sys.exit(f"threads {threads}: ended with {process.returncode}")
    name = f"masks-{race.slug(cpu)}-{os.cpu_count()}-cpus-{date}-{results['commit']}.json"
    output = options.output or runners.ROOT / "bench/results" / name
    output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
