#!/usr/bin/env python3
"""Reads of a file by redblue's engine of requests and by fio (Debian: fio), with the same request size and depth, in turn:
python bench/disk.py DIRECTORY [--gigabytes 4] [--rounds 7] [--seconds 1]. bench/disk.cpp says how to build what it runs.
The file is removed at the end."""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

KIB = 1024
KINDS = [(64 * KIB, 32), (256 * KIB, 8), (1024 * KIB, 1), (1024 * KIB, 8), (1024 * KIB, 32), (2048 * KIB, 16)]


def fio(path, request, depth, order, seconds):
    """Bytes per second."""
    command = [
        "fio",
        "--name=read",
        f"--filename={path}",
        f"--rw={'read' if order == 'order' else 'randread'}",
        f"--bs={request}",
        f"--iodepth={depth}",
        "--ioengine=io_uring",
        "--direct=1",
        "--readonly",
        "--time_based",
        f"--runtime={seconds}",
        "--output-format=json",
    ]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(report)["jobs"][0]["read"]["bw_bytes"]


def ours(program, path, request, depth, order, seconds):
    """Bytes per second."""
    command = [program, path, str(request), str(depth), order, str(seconds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--program", default="build/disk")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=o.directory) as directory:
        path = str(Path(directory) / "data")
        subprocess.run(
            ["dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={int(o.gigabytes * 1024)}", "conv=fsync"],
            check=True,
            capture_output=True,
        )
        print(f"{'request':>10} {'depth':>6} {'order':>7} {'redblue':>9} {'fio':>9} {'ratio':>7}   GB/s, medians of {o.rounds}")
        for request, depth in KINDS:
            for order in ("order", "blocks"):
                samples = [
                    (
                        ours(o.program, path, request, depth, order, o.seconds),
                        fio(path, request, depth, order, o.seconds),
                    )
                    for _ in range(o.rounds)
                ]
                us, them = (statistics.median(s) * 1e-9 for s in zip(*samples, strict=True))
                print(f"{request // KIB:>6} KiB {depth:>6} {order:>7} {us:9.2f} {them:9.2f} {us / them:7.3f}")


if __name__ == "__main__":
    main()
