#!/usr/bin/env python3
"""Modelled against measured time, for every schedule on a grid of shapes.

  bench/model.py                                     # writes bench/results/model-MACHINE-DATE-COMMIT.json
  bench/model.py --table bench/results/FILE.json     # puts its tables into docs/time-model.md

`redblue plan --objective time` models the time, `redblue bench` measures it with the same schedule and tiles on one
thread. It runs the schedules of a problem in turn, --rounds times, and takes the least time of each, because other load
can only add time. It leaves out schedules whose modelled time is more than --within times the least. Run it on an idle
machine, or with priority over other programs (chrt -f 10). Needs a hardware file (redblue doctor, or --machine FILE).
"""

import argparse
import datetime
import itertools
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/time-model.md"
SCHEMA = "redblue.model/2"  # since 2: which row the plan chose
BLOCK = re.compile(r"<!-- model -->\n(.*?)<!-- /model -->", re.DOTALL)


def redblue(program, *args):
    done = subprocess.run([program, *args, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(args)}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def measure(args):
    machine = ["--machine", args.machine] if args.machine else []
    for op, n, d, causal in itertools.product(args.op, args.n, args.d, (False, True)):
        heads = args.heads or max(1, 2048 // n)
        problem = {"op": op, "n": n, "d": d, "heads": heads, "causal": causal}
        sizes = [x for k, v in problem.items() if k != "causal" for x in (f"--{k}", str(v))]
        common = [*sizes, *(["--causal"] if causal else []), "--threads", "1", "--objective", "time", *machine]
        plan = redblue(args.redblue, "plan", *common)
        chosen = plan["plans"][plan["chosen"]]["schedule"]
        rows = [r for r in plan["plans"] if r["stable"] and r["fits"]]
        least = min(r["time"]["total_s"] for r in rows)
        # Plan each schedule alone, as it will run. A table of all schedules shows the fastest tiling of each; a plan for
        # one schedule may choose another tiling, with fewer words and hardly more time.
        rows = [
            redblue(args.redblue, "plan", *common, "--schedule", r["schedule"])["plans"][0]
            for r in rows
            if r["time"]["total_s"] <= args.within * least
        ]
        seconds = {r["schedule"]: [] for r in rows}
        for _, row in itertools.product(range(args.rounds), rows):
            timing = ["--schedule", row["schedule"], "--repetitions", "2", "--min-time", "0.01"]
            runs = redblue(args.redblue, "bench", *common, *timing)["benchmarks"]
            planned = " ".join([row["schedule"], *(f"{k}={v}" for k, v in row["tiling"].items())])
            if runs[0]["label"] != planned:
                sys.exit(f"{problem}: planned {planned}, but {runs[0]['label']} ran")
            seconds[row["schedule"]] += [r["real_time"] * 1e-3 for r in runs if r["run_type"] == "iteration"]
        for row in rows:
            modelled = {k: v for k, v in row["time"].items() if k.endswith("_s")}
            measured = min(seconds[row["schedule"]])
            yield {
                **problem, "schedule": row["schedule"], "tiling": row["tiling"], "chosen": row["schedule"] == chosen,
                "modelled": modelled, "measured_s": measured,
            }  # fmt: skip


def git(*args):
    try:
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git here
        return ""


def context():
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(["bench/model.py", *sys.argv[1:]]),
        "commit": git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or "unknown",
        "machine": {"cpu": cpu, "cpus": os.cpu_count(), "system": platform.platform()},
        "load_average": os.getloadavg(),
    }


def by(results, *keys):
    groups = {}
    for e in results:
        groups.setdefault(tuple(e[k] for k in keys), []).append(e)
    return groups


def ratio(e):
    return e["measured_s"] / e["modelled"]["total_s"]


def tables(file):
    """Markdown: per schedule, and how good the plans' choices are."""
    report = json.loads(file.read_text())
    if report["schema"] != SCHEMA:
        sys.exit(f"{file} is of {report['schema']}, the tables want {SCHEMA}: measure again (without --table)")
    about, results = report["context"], report["results"]
    problems = by(results, "op", "n", "d", "heads", "causal")
    lines = [
        f"{about['machine']['cpu']}, {about['date'][:10]}, commit {about['commit']}, one thread, f32: {len(problems)} "
        f"problems, {len(results)} runs ([{file.name}](../bench/results/{file.name})), `{about['command']}`.",
        "",
        "| operation | schedule | problems | measured / modelled: median | least | most |",
        "|---|---|---|---|---|---|",
    ]
    for (op, schedule), entries in sorted(by(results, "op", "schedule").items()):
        r = sorted(map(ratio, entries))
        lines.append(f"| {op} | {schedule} | {len(r)} | {statistics.median(r):.2f} | {r[0]:.2f} | {r[-1]:.2f} |")
    lines += [
        "",
        "| operation | mask | problems | the plan's choice is the fastest, or within 2 % | slower than the fastest: median | most |",
        "|---|---|---|---|---|---|",
    ]
    losses = {}
    for (op, _, _, _, causal), entries in problems.items():
        [modelled] = [e["modelled"]["total_s"] for e in entries if e["chosen"]]
        # Rows of one modelled time are the same operations under several names.
        chosen = min(e["measured_s"] for e in entries if math.isclose(e["modelled"]["total_s"], modelled, rel_tol=1e-9))
        loss = chosen / min(e["measured_s"] for e in entries) - 1
        losses.setdefault((op, causal), []).append(loss)
    for (op, causal), loss in sorted(losses.items()):
        right = sum(x <= 0.02 for x in loss)
        mask = "causal" if causal else "none"
        lines.append(
            f"| {op} | {mask} | {len(loss)} | {right} | {statistics.median(loss):.1%} | {max(loss):.1%} |".replace("%", " %")
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redblue", default=ROOT / "build/release/redblue", help="the program")
    parser.add_argument("--machine", help="hardware file (default: this machine's)")
    parser.add_argument("--op", nargs="+", default=["forward", "backward"])
    parser.add_argument("--n", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--d", nargs="+", type=int, default=[32, 64, 96, 128, 256, 512])
    parser.add_argument("--heads", type=int, help="default: 2048 / n")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--within", type=float, default=20, help="leave out what is modelled this many times slower")
    parser.add_argument("--table", type=pathlib.Path, help="measure nothing; write a result's tables into docs/time-model.md")
    args = parser.parse_args()
    if args.table:
        page = PAGE.read_text()
        PAGE.write_text(BLOCK.sub(lambda _: f"<!-- model -->\n{tables(args.table)}<!-- /model -->", page))
        return
    about = context()
    results = []
    for e in measure(args):
        print(f"{e['op']} n={e['n']} d={e['d']} {'causal ' if e['causal'] else ''}{e['schedule']}: {ratio(e):.2f}", flush=True)
        results.append(e)
    cpu = re.sub(r"[^a-z0-9]+", "-", about["machine"]["cpu"].lower()).strip("-")
    file = ROOT / f"bench/results/model-{cpu}-{about['machine']['cpus']}-cpus-{about['date'][:10]}-{about['commit']}.json"
    file.write_text(json.dumps({"schema": SCHEMA, "context": about, "results": results}, indent=1) + "\n")
    print(file)


if __name__ == "__main__":
    main()
