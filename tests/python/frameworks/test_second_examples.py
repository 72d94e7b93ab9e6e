"""examples/second_derivatives.py, small: the numbers of both ways agree, and numbers that part are an error."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("hardware")
EXAMPLE = Path(__file__).parents[3] / "examples/second_derivatives.py"


def run(*arguments):
    return subprocess.run([sys.executable, EXAMPLE, "--n", "48", "--repeats", "1", *arguments], capture_output=True, text=True)


def test_both_ways_give_the_same_numbers(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = run()
    assert done.returncode == 0, done.stderr
    apart = re.findall(r"math \S+ s, \S+ MB  redblue \S+ s, \S+ MB  apart (\S+)", done.stdout)
    assert len(apart) == 3 and all(float(x) < 1e-4 for x in apart)


def test_numbers_that_part_are_an_error(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    example = runpy.run_path(str(EXAMPLE))
    few = {"residual": example["residual"]}
    monkeypatch.setitem(example["main"].__globals__, "TASKS", few)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--n", "16", "--repeats", "1", "--apart", "-1"])
    assert example["main"]() == 1
