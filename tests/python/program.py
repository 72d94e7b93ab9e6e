"""The program to test, REDBLUE_CLI, and the seed that picks problems, REDBLUE_SEED (1 by default)."""

import json
import os
import subprocess

import pytest

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


def asked(command, operation, p, M, *more):
    """A command on a problem of the reference, as it answers, or does not."""
    options = {"op": operation, "nq": p.n_q, "nk": p.n_k, "d": p.d, "dv": p.d_v, "M": M}
    if (p.heads, p.kv_heads, p.batch) != (1, 1, 1):
        options |= {"heads": p.heads, "kv-heads": p.kv_heads, "batch": p.batch}
    return redblue(command, *(word for name, size in options.items() for word in (f"--{name}", size)), *more, "--json")


def answered(command, *problem):
    done = asked(command, *problem)
    assert done.returncode == 0, f"{done.args} failed: {done.stderr}"
    reply = json.loads(done.stdout)
    assert reply["schema"] == f"redblue.{command}/1"
    return reply
