"""examples/train_transformer.py, small steps of it: both losses fall and agree, and curves that part are an error."""

import re
import runpy
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("hardware")
EXAMPLE = Path(__file__).parents[3] / "examples/train_transformer.py"


def train(monkeypatch, capsys, *arguments):
    torch.set_num_threads(1)  # OpenMP's threads wait for each other for long where other programs run
    small = ["--steps", "60", "--context", "24", "--width", "32", "--layers", "1", *arguments]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *small])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    return ended.value.code, capsys.readouterr()


def test_both_train_alike(monkeypatch, capsys):
    code, text = train(monkeypatch, capsys)
    assert code == 0, text.err
    losses = [[float(x) for x in pair] for pair in re.findall(r"SDPA (\d\S+)  redblue (\d\S+)", text.out)]
    assert len(losses) >= 11
    assert all(abs(a - b) < 1e-3 for a, b in losses)
    assert min(b for _, b in losses) < losses[0][1] - 0.5  # each step sees other text, so that losses jump


def test_curves_that_part_are_an_error(monkeypatch, capsys):
    code, text = train(monkeypatch, capsys, "--apart", "-1")
    assert code == 1 and "part" in text.err
