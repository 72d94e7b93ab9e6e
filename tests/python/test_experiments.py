"""scripts/experiments.py: its numbers are those of plans and traces."""

import importlib.util
import json
import subprocess
import sys

import pytest

from program import ROOT, answer, needs_program

SCRIPT = ROOT / "scripts/experiments.py"
pytestmark = needs_program
pytest.importorskip("redblue")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("experiments", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["forward", "product"])
def test_words_are_those_of_plans(name):
    points = json.loads(run(name, "--n", "40", "--d", "4").stdout)["points"]
    assert points[0]["M"] < 16 < points[-1]["M"]
    for at in points:
        plan = answer("plan", "--n", 40, "--d", 4, "--M", at["M"])
        assert at["best" if name == "forward" else "attention"] == plan["plans"][plan["chosen"]]["io"]
        if name == "product":
            scores = answer("plan", "--op", "scores", "--n", 40, "--d", 4, "--M", at["M"])
            assert at["product"] == scores["plans"][scores["chosen"]]["io"] >= at["product_bound"]


def test_epochs_are_cut_from_the_trace(script):
    n, d = 12, 4
    for schedule in script.TRACED:
        for M in (48, 100):
            cut = script.epochs_of(n, d, M, schedule)
            assert sum(moved for moved, _ in cut) == answer("count", "--n", n, "--d", d, "--M", M, "--schedule", schedule)["counted"]["io"]
            assert sum(done for _, done in cut) == n * n
            assert all(moved >= M for moved, _ in cut[:-1])
            assert all(done <= script.most_scores(n, d, M + moved) for moved, done in cut)


def test_the_limit_counts_rows_and_unfinished_sums(script):
    assert script.most_scores(100, 8, 15) == 15  # a query and a key would take 16 words for one score
    assert script.most_scores(100, 8, 1024) == 64 * 64
    assert script.most_scores(10, 8, 1024) == 100


def test_fast_products_stand_beside_the_best_plan(script):
    if not script.FAST_PRODUCTS.exists():
        pytest.skip("the examples are not built")
    points = json.loads(run("strassen", "--n", "64", "--d", "32").stdout)["points"]
    assert 10 <= points[0]["M"] and points[-1]["M"] == 32**2
    for at in points:
        plan = answer("plan", "--n", 64, "--d", 32, "--M", at["M"])
        assert at["best"] == plan["plans"][plan["chosen"]]["io"] and at["bound_of_class_pa"] == plan["bound"]["words"]
        assert at["strassen_over_bound_of_class_pa"] == at["strassen"] / plan["bound"]["words"]
    # With a quarter of M, that of Strassen's products is 7/4 as large, not 8/4.
    growth = {at["M"]: at["growth"] for at in points}
    assert growth[256] == pytest.approx(growth[1024] * 7 / 4)


def test_without_the_example_it_says_how_to_build_it(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "FAST_PRODUCTS", tmp_path / "none")
    with pytest.raises(SystemExit, match="cmake --build"):
        script.strassen(64, 8, 32)


def test_what_it_cannot_do_is_said():
    for options, part in ((("forward", "--n", "0"), "--n 0"), (("nothing",), "invalid choice")):
        done = run(*options)
        assert done.returncode == 2 and part in done.stderr and not done.stdout
