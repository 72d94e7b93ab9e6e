#!/usr/bin/env python3
"""The rate under masks as a share of redblue's own rate without one, interleaved. Needs numpy and a release build.

    bench/shares.py                                      # writes bench/results/shares-MACHINE-DATE-COMMIT.json
    bench/shares.py --table bench/results/FILE.json      # puts its table into docs/speed.md

A cell and the problem that it is compared with, its reference, run in turn; a share is the median over those pairs.
Shares count flops for the pairs that the mask shows, and for all pairs of the tiles of 64 queries and 64 keys that have
such a pair (visited tiles, the unit of block-sparse kernels). bench/README.md says more.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "scripts")]
import blocks as document_blocks  # noqa: E402
import masked  # noqa: E402
import race  # noqa: E402
from runners import rb  # noqa: E402

SCHEMA = "redblue.shares/1"
TILE = 64


class Cell:
    def __init__(self, name, n_q, n_k, seen=None, problem=(), blocks=None, block=64, reference=None, aim=None, ops=("forward", "backward")):
        """seen: [n_q, n_k] booleans; None: all. reference: its queries and keys; None: those of the cell.
        aim: what is aimed at, as (a key of an entry, the least value)."""
        self.name, self.n_q, self.n_k, self.problem, self.blocks, self.block = name, n_q, n_k, problem, blocks, block
        self.reference, self.aim, self.ops = reference or (n_q, n_k), aim, ops
        seen = np.ones((n_q, n_k), bool) if seen is None else seen
        self.pairs = int(seen.sum())
        padded = np.pad(seen, [(0, -n % TILE) for n in seen.shape])
        tiles = padded.reshape(padded.shape[0] // TILE, TILE, -1, TILE).any((1, 3))
        self.tiles = TILE * min(TILE, n_q) * int(tiles.sum())  # a few queries make a tile of their own height


def cells(n):
    tile = ("tile_share", 0.85)
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    w, ends = n // 8, masked.mixed_lengths(n)
    yield Cell("window", n, n, abs(i - j) <= w, masked.window(w, w), aim=tile)
    yield Cell("causal window", n, n, (j <= i) & (i - j <= w), masked.window(w, causal=1), aim=tile)
    for block in (64, 128):
        for percent in (5, 20, 40):
            drawn = masked.drawn_blocks(n // block, percent)
            seen = np.kron(drawn, np.ones((block, block), bool))
            yield Cell(f"blocks of {block}, {percent} %", n, n, seen, blocks=drawn, block=block, aim=tile)
    sequence = np.searchsorted(ends, np.arange(n), side="right")
    seen = sequence[:, None] == sequence[None, :]
    one = round(seen.sum() ** 0.5)
    yield Cell("sequences", n, n, seen, masked.packed(ends), reference=(one, one), aim=("pair_share", 0.9))
    q, off = n // 4, 2 * n - n // 4  # a chunk of queries at the end of the keys
    chunk, keys = np.arange(q)[:, None] + off, np.arange(2 * n)[None, :]
    seen = (keys <= chunk) & (chunk - keys <= n // 2)
    yield Cell("chunked prefill, window", q, 2 * n, seen, masked.window(n // 2, causal=1), reference=(q, n // 2 + q), ops=("forward",))
    long = 32 * n
    seen = (np.arange(long) >= long - 2 * n)[None, :]
    yield Cell("decode, window", 1, long, seen, masked.window(2 * n - 1, causal=1), reference=(1, 2 * n), ops=("forward",))


def prepared(op, arrays, threads, **mask):
    """A run of the forward or backward pass on these q, k, v."""
    heads, n_q, _ = arrays["q"].shape
    o, lse = np.zeros_like(arrays["q"]), np.zeros((heads, n_q, 1), np.float32)
    run = masked.Redblue(rb.FORWARD, arrays, {"o": o, "lse": lse}, threads, **mask)
    if op == "forward":
        return run
    run()
    given = {**arrays, "o": o, "lse": lse, "d_o": np.random.default_rng(1).standard_normal(o.shape, np.float32)}
    made = {f"d{x}": np.zeros_like(arrays[x]) for x in "qkv"}
    return masked.Redblue(rb.BACKWARD, given, made, threads, **mask)


def inputs(heads, n_q, n_k, d):
    random = np.random.default_rng([n_q, n_k, d])
    return {x: random.standard_normal((heads, n, d), np.float32) for x, n in (("q", n_q), ("k", n_k), ("v", n_k))}


def measured(cell, op, d, heads, threads, seconds, warm):
    mask = {"problem": cell.problem, "blocks": cell.blocks, "block": cell.block}
    ours = prepared(op, inputs(heads, cell.n_q, cell.n_k, d), threads, **mask)
    reference = prepared(op, inputs(heads, *cell.reference, d), threads)
    ours(), reference()
    estimate = race.timed(ours) + race.timed(reference)
    # Runs of microseconds are repeated within one reading of the clock.
    repeats = max(1, int(2e-3 / estimate))

    def timed(run):
        for _ in range(warm):
            run()
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        return (time.perf_counter() - start) / repeats

    times = [(timed(ours), timed(reference)) for _ in range(max(5, int(seconds / estimate / repeats)))]
    us, them = (statistics.median(t[i] for t in times) for i in (0, 1))
    over = statistics.median(x / y for x, y in times)
    pairs = cell.reference[0] * cell.reference[1]
    info = ours.plan.info()
    return {
        "cell": cell.name, "op": op, "d": d, "threads": threads, "schedule": info.schedule.decode(),
        "words": info.words_read + info.words_written, "seconds": us, "reference_seconds": them, "time": over,
        "gflops": 1e-9 * 4 * d * heads * cell.pairs * (2.5 if op == "backward" else 1) / us,
        "pair_share": cell.pairs / pairs / over, "tile_share": cell.tiles / pairs / over, "aim": cell.aim,
    }  # fmt: skip


def table(path):
    """Markdown; bold: below the aim."""
    r = json.loads((ROOT / path).read_text())
    if r["schema"] != SCHEMA:
        sys.exit(f"{path} is of {r['schema']}, the table wants {SCHEMA}: measure again (without --table)")
    document_blocks.rename_cells(r["results"])
    columns = sorted({(e["threads"], e["op"], e["d"]) for e in r["results"]}, key=lambda c: (c[0], c[1] != "forward", c[2]))
    found = {(e["cell"], e["threads"], e["op"], e["d"]): e for e in r["results"]}

    def text(e):
        if e is None:
            return ""
        missed = e["aim"] and e[e["aim"][0]] < e["aim"][1]
        shares = f"{100 * e['tile_share']:.0f} %, {100 * e['pair_share']:.0f} %"
        return f"{f'**{shares}**' if missed else shares}, {e['time']:.2f}"

    aimed = [e for e in r["results"] if e["aim"]]
    missed = [e for e in aimed if e[e["aim"][0]] < e["aim"][1]]
    lines = [
        document_blocks.paragraph(
            f"[{path}](../{path}) has the results. `{r['command']}` made them at commit {r['commit']} on {r['date']}: "
            f"{r['cpu']}, {r['cpus']} CPUs; {r['compiler']}, {r['flags']}."
        ),
        "",
        document_blocks.paragraph(
            f"n = {r['n']}, {r['heads']} heads, f32. Three figures: the share of the reference's rate by visited tiles of "
            "64 by 64, the share by pairs, and the time over that of the reference. Bold: below the aim, 85 % by visited tiles, "
            f"for sequences 90 % by pairs. {len(aimed) - len(missed)} of {len(aimed)} cells reach it."
        ),
        "",
        "| mask | " + " | ".join(f"{t} thread{'s' if t > 1 else ''}, {op}, d = {d}" for t, op, d in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for name in dict.fromkeys(e["cell"] for e in r["results"]):
        lines.append(f"| {name} | " + " | ".join(text(found.get((name, *c))) for c in columns) + " |")
    return "\n".join(lines) + "\n"


def work(options):
    """All cells with one number of threads; a line of JSON for each."""
    rb.LIB = rb.load(options.library)
    for op in options.ops.split(","):
        for d in options.d:
            for cell in cells(options.n):
                if op in cell.ops and (not options.cells or cell.name in options.cells):
                    print(json.dumps(measured(cell, op, d, options.heads, options.worker, options.seconds, options.warm)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--d", type=race.numbers, default=[64, 128])
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--threads", type=race.numbers, default=[1, 2])
    parser.add_argument("--ops", default="forward,backward")
    parser.add_argument("--cells", nargs="+", help="names of rows of the table; default: all")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each cell")
    parser.add_argument("--warm", type=int, default=0, help="runs of each before the one that is timed: caches are used then")
    parser.add_argument("--library", default=str(ROOT / "build/release/libredblue_c.so"))
    parser.add_argument("--output", type=pathlib.Path, help="default bench/results/shares-MACHINE-DATE-COMMIT.json")
    parser.add_argument("--table", type=pathlib.Path, help="measure nothing; write a result's table into docs/speed.md")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        return document_blocks.write("docs/speed.md", "shares", table(options.table.resolve().relative_to(ROOT)))
    if options.worker:
        return work(options)
    cpu = race.re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), race.re.MULTILINE)[1]
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    results = {"schema": SCHEMA, "command": " ".join(["bench/shares.py", *sys.argv[1:]]), "commit": race.commit(),
               "date": date, "cpu": cpu, "cpus": os.cpu_count(), "n": options.n, "heads": options.heads,
               **race.compiled_with(pathlib.Path(options.library).parent), "results": []}  # fmt: skip
    for threads in options.threads:
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", str(threads)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=race.environment(threads)) as process:
            for line in process.stdout:
                e = json.loads(line)
                results["results"].append(e)
                print(f"{e['threads']} {e['op']:<9}d {e['d']:<4}{e['cell']:<24}{e['schedule']:<18}{e['gflops']:6.1f} GFLOP/s "
                      f"tiles {e['tile_share']:.2f} pairs {e['pair_share']:.2f} time {e['time']:.3f}", flush=True)  # fmt: skip
        if process.returncode != 0:
            sys.exit(f"threads {threads}: ended with {process.returncode}")
    name = f"shares-{race.slug(cpu)}-{os.cpu_count()}-cpus-{date}-{results['commit']}.json"
    output = options.output or ROOT / "bench/results" / name
    output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
