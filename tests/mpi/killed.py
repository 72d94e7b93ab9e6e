#!/usr/bin/env python3
"""killed.py REDBLUE MPIRUN: a rank that is killed from outside ends the program on all ranks, and no file is left of its output."""

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REDBLUE, MPIRUN = sys.argv[1], [sys.argv[2], "--allow-run-as-root", "--oversubscribe", "-n", "3"]
ROWS, FEATURES = 60_000, 64  # a run of many seconds
PATIENCE = 20.0  # seconds for what takes less than one


def write_zeros(path):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, {ROWS}, {FEATURES}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(ROWS * FEATURES * 4))


def ranks_of(mpirun):
    """The processes that mpirun has started as ranks, by their number."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"\nPPid:\t{mpirun.pid}\n" in (folder / "status").read_text():
                variables = dict(line.partition("=")[::2] for line in (folder / "environ").read_text().split("\0"))
                found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(folder.name)
        except (OSError, KeyError):  # it has ended, or is not yet a rank
            pass
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(holds, what):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} s"
        time.sleep(0.02)


def kill_one(killed, folder):
    command = [*MPIRUN, REDBLUE, "run", "--ranks", "3", "--o", "o.npy", "--lse", "lse.npy", "--M", "30000"]
    command += [word for name in "qkv" for word in (f"--{name}", f"{name}.npy")]
    with open(folder / "output", "wb") as output:
        mpirun = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        wait_until(lambda: len(ranks_of(mpirun)) == 3, "three ranks")
        ranks = ranks_of(mpirun)
        wait_until(lambda: cpu_seconds(ranks[killed]) > 0.3, "work")
        os.kill(ranks[killed], signal.SIGKILL)
        assert mpirun.wait(PATIENCE) != 0, f"the program says that it ran without rank {killed}"
        wait_until(lambda: not any(is_alive(pid) for pid in ranks.values()), "the end of all ranks")
    finally:
        mpirun.kill()
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["k.npy", "output", "q.npy", "v.npy"], left
    print(f"rank {killed} of 3 was killed: all ended, and no output is there")


def main():
    if subprocess.run([*MPIRUN, "true"], timeout=60).returncode != 0 or b"open-mpi.org" not in subprocess.check_output([MPIRUN[0], "--version"]):
        print(f"{MPIRUN[0]} starts no processes here, or is not Open MPI")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for array in "qkv":
            write_zeros(folder / f"{array}.npy")
        for killed in (0, 2):
            kill_one(killed, folder)
    return 0


sys.exit(main())
