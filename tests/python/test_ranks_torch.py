"""Attention over process groups of torch, with gradients, in processes of their own: tests/python/ranks/over_gloo.py."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

OVER_GLOO = Path(__file__).parent / "ranks" / "over_gloo.py"


@pytest.mark.parametrize("ranks", [3])
def test_over_gloo(ranks):
    ran = subprocess.run([sys.executable, OVER_GLOO, str(ranks)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert all(ran.stdout.count(f"rank {r} of {ranks}: right") == 1 for r in range(ranks)), ran.stdout
