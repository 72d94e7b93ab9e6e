#!/usr/bin/env python3
"""Puts the table of a race into docs/speed.md, and three rows of it into README.md:
scripts/bench_table.py bench/results/FILE.json"""

import collections
import json
import math
import pathlib
import statistics
import sys

import blocks

ROOT = blocks.ROOT


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def cells_of(results):
    """Entries of all peers by cell."""
    cells = collections.defaultdict(list)
    for e in results["results"]:
        cells[e["threads"], e["dtype"], e["op"], e["causal"], e["n"], e["d"]].append(e)
    return cells


def share_of_peak(results, cell, entries):
    """The median over the peers' races, each against the peak measured before it."""
    threads, dtype = cell[0], cell[1]
    peaks = {
        w["peer"]: max(p["flops"] for p in w["hardware"]["peaks"] if p["dtype"] == dtype)
        for w in results["workers"]
        if w["threads"] == threads and any(p["dtype"] == dtype for p in w["hardware"]["peaks"])
    }
    shares = [e["redblue_gflops"] * 1e9 / (threads * peaks[e["peer"]]) for e in entries if e["peer"] in peaks]
    return statistics.median(shares) if shares else None


def cell_text(results, cell, entries):
    done = [e for e in entries if "failed" not in e]
    if not done:
        return "failed"
    best = min(done, key=lambda e: e["ratio"])
    rate = f"{statistics.median(e['redblue_gflops'] for e in done):.0f}"
    share = share_of_peak(results, cell, done)
    if share is not None:
        rate += f" ({100 * share:.0f} %)"
    ratio = f"{best['ratio']:.2f} {best['peer']}"
    wrong = "" if all(e["agrees"] for e in done) else ", outputs differ"
    return f"{rate}, {f'**{ratio}**' if best['ratio'] < 1 else ratio}{wrong}"


def grid(results):
    cells = cells_of(results)
    ds = sorted({cell[5] for cell in cells})
    rows = sorted({cell[:5] for cell in cells}, key=lambda r: (r[0], r[1] != "f32", r[2] != "forward", r[3], r[4]))
    yield "| threads | type | | n | " + " | ".join(f"d = {d}" for d in ds) + " |"
    yield "|---|---|---|---|" + "---|" * len(ds)
    for row in rows:
        threads, dtype, op, causal, n = row
        texts = [cell_text(results, (*row, d), cells[(*row, d)]) if (*row, d) in cells else "" for d in ds]
        yield f"| {threads} | {dtype} | {op}{' causal' if causal else ''} | {n} | " + " | ".join(texts) + " |"


def summary(results):
    done = [e for e in results["results"] if "failed" not in e]
    about = {w["peer"]: w["about"] for w in results["workers"]}
    yield "| against | cells | won | geometric mean | least |"
    yield "|---|---|---|---|---|"

    def line(name, ratios):
        won = sum(r >= 1 for r in ratios)
        return f"| {name} | {len(ratios)} | {won} | {geometric_mean(ratios):.2f} | {min(ratios):.2f} |"

    for peer in about:
        ratios = [e["ratio"] for e in done if e["peer"] == peer]
        if ratios:
            yield line(about[peer], ratios)
    best = [min(e["ratio"] for e in es if "failed" not in e) for es in cells_of({"results": done}).values()]
    if best:
        yield line("the best peer of each cell", best)


def failures(results):
    failed = collections.Counter((e["peer"], e["failed"]) for e in results["results"] if "failed" in e)
    return [f"{count} cells beside {peer} failed: {why}" for (peer, why), count in sorted(failed.items())]


def listed(entries, name):
    """The values of a property: "512 and 2048"."""
    *most, last = map(str, sorted({e[name] for e in entries}))
    return f"{', '.join(most)} and {last}" if most else last


def mean_and_least(ratios):
    return f"{geometric_mean(ratios):.2f} ({min(ratios):.2f})" if ratios else ""


def table(path):
    """Markdown for docs/speed.md: every cell of this file of results."""
    results = json.loads((ROOT / path).read_text())
    c = results["context"]
    text = [
        blocks.paragraph(
            f"[{path}](../{path}) has the results. `{c['command']}` made them at commit {c['commit']} on "
            f"{c['date'][:10]}: {c['machine']['cpu']}, {c['machine']['cpus']} CPUs; {c['redblue']['compiler']}, "
            f"{c['redblue']['flags']}."
        ),
        "",
        blocks.paragraph(
            f"{listed(results['results'], 'heads')} heads. A cell has two figures: GFLOP/s of redblue (with their share of "
            "the measured peak), then the time of the fastest peer over redblue's time, in interleaved pairs. Bold: redblue loses."
        ),
        "",
        *grid(results),
        "",
        *summary(results),
    ]
    return "\n".join([*text, *([""] if failures(results) else []), *failures(results)]) + "\n"


def three_rows(path):
    """Markdown for README.md: the whole race in a row for each kind of work."""
    results = json.loads((ROOT / path).read_text())
    done = [e for e in results["results"] if "failed" not in e]
    kinds = {}
    for cell, entries in cells_of({"results": done}).items():
        kinds.setdefault((cell[2], cell[1]), []).append((cell, entries))
    c = results["context"]
    text = [
        blocks.paragraph(
            f"{c['machine']['cpu']}, {c['machine']['cpus']} CPUs, commit {c['commit']} ([every cell](docs/speed.md)): "
            f"{listed(done, 'heads')} heads, n = {listed(done, 'n')}, d = {listed(done, 'd')}, {listed(done, 'threads')} threads. "
            "Times are those of a peer over those of redblue: above 1 redblue is faster."
        ),
        "",
        "| | share of the measured peak, median | time of PyTorch: geometric mean (least) | "
        "time of the fastest peer: geometric mean (least) | faster than every peer |",
        "|---|---|---|---|---|",
    ]
    for (op, dtype), cells in sorted(kinds.items(), key=lambda k: (k[0][1] != "f32", k[0][0] != "forward")):
        best = [min(e["ratio"] for e in entries) for _, entries in cells]
        shares = [share_of_peak(results, cell, entries) for cell, entries in cells]
        shares = [s for s in shares if s is not None]
        share = f"{100 * statistics.median(shares):.0f} %" if shares else ""
        won = sum(r >= 1 for r in best)
        pytorch = [e["ratio"] for _, entries in cells for e in entries if e["peer"] == "pytorch"]
        text.append(f"| {op} {dtype} | {share} | {mean_and_least(pytorch)} | {mean_and_least(best)} | in {won} of {len(best)} cells |")
    return "\n".join(text) + "\n"


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_file():
        sys.exit(__doc__)
    path = pathlib.Path(sys.argv[1]).resolve().relative_to(ROOT)
    blocks.write("docs/speed.md", "bench", table(path))
    blocks.write("README.md", "speed", three_rows(path))


if __name__ == "__main__":
    main()
