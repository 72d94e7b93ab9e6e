"""Attention over process groups of torch, with gradients, in processes of their own: tests/python/ranks/over_gloo.py."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

OVER_GLOO = Path(__file__).parents[1] / "ranks" / "over_gloo.py"
KILLED = OVER_GLOO.with_name("killed.py")


@pytest.mark.parametrize("ranks", [3])
def test_over_gloo(ranks):
    ran = subprocess.run([sys.executable, OVER_GLOO, str(ranks)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert all(ran.stdout.count(f"rank {r} of {ranks}: right") == 1 for r in range(ranks)), ran.stdout


def test_a_killed_rank_is_an_error_on_all_others():
    ran = subprocess.run([sys.executable, KILLED], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count(": right") == 3, ran.stdout
