#!/usr/bin/env python3
"""Races redblue against other libraries, interleaved, and keeps the results.

    bench/peers/race.sh                 builds all that is needed, then runs this on the whole grid
    bench/peers/race.sh --quick         a part of it, a few minutes

bench/README.md says what is fair about it, and how to read the results.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import cells
import numpy as np
import runners

ROOT = runners.ROOT
# Relative to the largest number of an output: rounding of sums of n terms, and of weights to bf16.
TOLERANCE = {"f32": 1e-4, "bf16": 3e-2}


def lines(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def commit():
    """Of this checkout; unknown where there is no git, or no repository."""
    try:
        return lines("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


# One process for each peer and number of threads.


def timed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def pairs(ours, theirs, seconds, least):
    """[(seconds of redblue, seconds of the peer)]: one runs right after the other, each first in half of the pairs."""
    ours(), theirs()
    estimate = timed(ours) + timed(theirs)
    result = []
    for i in range(max(least, min(101, int(seconds / estimate)))):
        if i % 2 == 0:
            us = timed(ours)
            result.append((us, timed(theirs)))
        else:
            them = timed(theirs)
            result.append((timed(ours), them))
    return result


def outputs_of(run):
    return {name: cells.to_f32(x) for name, x in (run.finish() if hasattr(run, "finish") else run.outputs).items()}


def largest_error(ours, theirs):
    """The largest difference over all outputs, relative to the largest number of each; nan if an output has a nan."""
    errors = [np.max(np.abs(ours[name] - theirs[name])) / np.max(np.abs(theirs[name])) for name in theirs]
    return float(np.max(errors))


def race(cell, redblue, peer, options):
    """The entry of a cell, or None if the peer cannot do it."""
    arrays = cells.inputs(cell, peer.layout)
    if cell.op == "backward":
        o, lse = np.zeros_like(arrays["q"]), np.zeros((cell.heads, cell.n), np.float32)
        given = {name: arrays[name] for name in "qkv"} | {"o": o, "lse": lse}
        forward = cells.dataclasses.replace(cell, op="forward")
        redblue.run_on(forward, given, {"o": o, "lse": lse})()
        arrays |= {"o": o, "lse": lse}
    theirs = peer.prepare(cell, arrays)
    if theirs is None:
        return None
    ours = redblue.prepare(cell, arrays)
    times = pairs(ours, theirs, options["seconds"], options["pairs"])
    us, them = (statistics.median(t[i] for t in times) for i in (0, 1))
    ratios = sorted(t[1] / t[0] for t in times)
    error = largest_error(outputs_of(ours), outputs_of(theirs))
    return {
        "pairs": len(times),
        "redblue_ms": 1e3 * us,
        "peer_ms": 1e3 * them,
        "redblue_gflops": 1e-9 * cell.flops() / us,
        "peer_gflops": 1e-9 * cell.flops() / them,
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]],
        "error": error,
        "agrees": error <= TOLERANCE[cell.dtype],
        "plan": ours.notes,
        **theirs.notes,
    }


def worker(name, threads, options):
    peer = runners.PEERS[name](threads)
    redblue = runners.Redblue(threads, options["library"], options["words"], options["schedules"], peer.layout)
    print(json.dumps({"about": peer.about(), "redblue": redblue.about()}), flush=True)
    for fields in options["cells"]:
        cell = cells.Cell(**fields)
        try:
            result = race(cell, redblue, peer, options)
        except (RuntimeError, MemoryError) as error:
            result = {"failed": str(error)}
        if result is not None:
            print(json.dumps({**fields, "peer": name, "threads": threads, **result}), flush=True)


# The process that starts them.


def environment(threads):
    """Environment of a worker: one number of threads for every library; none spins while another library runs."""
    ours = {k: v for k, v in os.environ.items() if not re.match("OPENBLAS_|BLIS_|GOMP_|KMP_|OMP_|MKL_|DNNL_|LIBXSMM_", k)}
    return ours | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # its loops are threaded outside
        "OMP_WAIT_POLICY": "passive",
        "REDBLUE_THREADS": str(threads),
    }


def hardware(cli):
    """Measured now."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "hardware.json"
        subprocess.run([cli, "doctor", "--quiet", "--output", file], check=True)
        return json.loads(file.read_text())


def compiled_with(build):
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE))
    compiler, kind = cache["CMAKE_CXX_COMPILER"], cache["CMAKE_BUILD_TYPE"]
    return {
        "compiler": lines(compiler, "--version")[0],
        "flags": f"{cache['CMAKE_CXX_FLAGS']} {cache[f'CMAKE_CXX_FLAGS_{kind.upper()}']}".strip(),
    }


def context(options, build):
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1]
    flags = ROOT / "build/peers/lib/flags.txt"
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(["bench/peers/race.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": {"cpu": cpu, "cpus": os.cpu_count(), "system": platform.platform()},
        "redblue": {**compiled_with(build), "words": options["words"], "REDBLUE_ISA": os.environ.get("REDBLUE_ISA", "")},
        "peers": {"flags": flags.read_text().strip() if flags.exists() else None},
        "load_average": os.getloadavg(),
    }


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def report(entry):
    what = f"{entry['peer']:<12} {entry['threads']} {entry['op']:<8} {entry['dtype']:<4} n {entry['n']:<5} d {entry['d']:<4}"
    what += "causal " if entry["causal"] else "       "
    if "failed" in entry:
        return f"{what} FAILED: {entry['failed']}"
    rates = f"{entry['redblue_gflops']:7.1f} {entry['peer_gflops']:7.1f} GFLOP/s, ratio {entry['ratio']:.3f}"
    return f"{what} {rates}, error {entry['error']:.1e}{'' if entry['agrees'] else ' WRONG'} {entry.get('variant', '')}"


def assignments(text):
    return dict(item.split("=") for item in text.split(","))


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n 512, 2048; d 64, 128; fewer pairs")
    parser.add_argument("--n", type=numbers, help="512,2048,8192")
    parser.add_argument("--d", type=numbers, help="32,64,128,256,512")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="1,2")
    parser.add_argument("--peers", default=",".join(runners.PEERS), help=",".join(runners.PEERS))
    parser.add_argument("--ops", default="forward,backward", help="forward,backward")
    parser.add_argument("--dtypes", default="f32,bf16", help="f32,bf16")
    parser.add_argument("--words", type=int, default=0, help="plan for fewest words in such a fast memory; default: for least modelled time (redblue doctor)")
    parser.add_argument("--schedules", type=assignments, default={}, help="forward=NAME,backward=NAME; default: the planner's choice")
    parser.add_argument("--seconds", type=float, help="of each race; default 1, quick 0.3")
    parser.add_argument("--pairs", type=int, help="at least; default 5, quick 3")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="where redblue was built")
    parser.add_argument("--output", type=pathlib.Path, help="default bench/results/MACHINE-DATE-COMMIT.json")
    given = parser.parse_args()

    all_cells = cells.grid(
        given.n or ([512, 2048] if given.quick else [512, 2048, 8192]),
        given.d or ([64, 128] if given.quick else [32, 64, 128, 256, 512]),
    )
    all_cells = [c for c in all_cells if c.op in given.ops.split(",") and c.dtype in given.dtypes.split(",")]
    options = {
        "library": str(given.build / "libredblue_c.so"),
        "words": given.words,
        "schedules": given.schedules,
        "seconds": given.seconds or (0.3 if given.quick else 1),
        "pairs": given.pairs or (3 if given.quick else 5),
        "cells": [vars(c) for c in all_cells],
    }
    results = {"schema": "redblue.race/1", "context": context(options, given.build), "workers": [], "results": []}
    machine = results["context"]["machine"]
    name = f"{slug(machine['cpu'])}-{machine['cpus']}-cpus-{results['context']['date'][:10]}-{results['context']['commit']}.json"
    output = given.output or ROOT / "bench/results" / name
    print(json.dumps(results["context"], indent=2))

    ok = True
    for threads in given.threads:
        for peer in given.peers.split(","):
            measured = hardware(given.build / "redblue")
            command = [sys.executable, __file__, "--worker", peer, str(threads)]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(threads)
            ) as process:
                process.stdin.write(json.dumps(options))
                process.stdin.close()
                for line in process.stdout:
                    entry = json.loads(line)
                    if "about" in entry:
                        results["workers"].append({"peer": peer, "threads": threads, **entry, "hardware": measured})
                        print(f"\n{entry['about']} beside {entry['redblue']}, threads {threads}", flush=True)
                    else:
                        results["results"].append(entry)
                        print(report(entry), flush=True)
                        ok = ok and entry.get("agrees", False)
            if process.returncode != 0:
                ok = False
                print(f"{peer}, threads {threads}: ended with {process.returncode}", flush=True)
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nwritten to {output}")
    return 0 if ok else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], int(sys.argv[3]), json.load(sys.stdin))
    else:
        sys.exit(main())
