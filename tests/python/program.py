"""The program to test, REDBLUE_CLI, the seed that picks problems, REDBLUE_SEED (1 by default), and real data."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("REDBLUE_DATA", ROOT.parent / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there")
CLI = os.environ.get("REDBLUE_CLI")
SEED = int(os.environ.get("REDBLUE_SEED", "1"))
needs_program = pytest.mark.skipif(not CLI, reason="set REDBLUE_CLI to the redblue program to run these tests")


def redblue(*command, **options):
    """What it prints and says, and its exit code."""
    words = [CLI, *map(str, command)]
    return subprocess.run(words, **{"capture_output": True, "text": True, "timeout": 120, **options})


def did(*command, **options):
    done = redblue(*command, **options)
    assert done.returncode == 0, (done.args, done.stderr)
    return done.stdout


def answer(*command, **options):
    return json.loads(did(*command, "--json", **options))


def ran(*command, **options):
    """The report of a run that moved the words of its formula."""
    report = answer("run", *command, **options)
    assert report["moved"]["per_array"] == report["formula"]["per_array"], command
    return report


def solved(folder, tensors, *options):
    """Outputs and report of such a run on tensors in x.npz."""
    np.savez(folder / "x.npz", **tensors)
    report = ran("--input", folder / "x.npz", "--output", folder / "y.npz", *options)
    return dict(np.load(folder / "y.npz")), report


def refused(directory, *command, **options):
    """One clear sentence, exit code 2, and no new file."""
    before = set(os.listdir(directory))
    done = redblue(*command, **options)
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith("redblue: ") and done.stderr.count("\n") == 1, done.stderr
    assert set(os.listdir(directory)) == before
    return done.stderr


def schedules_of(operation):
    """Their names, as the planner ranks them for a small problem; none without a program."""
    if not CLI:
        return []
    plan = answer("plan", "--op", operation, "--n", 8, "--d", 4, "--M", 1000)
    names = sorted(row["schedule"] for row in plan["plans"])
    assert len(names) >= 6, names
    return names
