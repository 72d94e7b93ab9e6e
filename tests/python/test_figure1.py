"""scripts/figure1.py: each number is what the program counts, and its two formats agree."""

import csv
import json
import subprocess
import sys

import pytest

from program import ROOT, answer, needs_program

SCRIPT = ROOT / "scripts/figure1.py"
pytestmark = needs_program
pytest.importorskip("redblue")
COLUMNS = ["printed_small", "printed_large", "repaired_small", "repaired_large", "best"]


def figure1(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)


def asked(command, M, *options):
    return answer(command, "--op", "gradient-x", "--n", 128, "--d", 8, "--M", M, *options)


@pytest.fixture(scope="module")
def figure():
    return json.loads(figure1("--n", "128", "--d", "8").stdout)


def test_points_are_counted(figure):
    assert [at["M"] for at in figure["points"]] == [16 * 2**k for k in range(7)]
    for at in figure["points"]:
        assert at["bound"] == asked("bound", at["M"])["bound"]
        assert at["best"]["schedule"] == asked("count", at["M"])["schedule"]
        for column, name in {"printed_small": "algorithm_6", "printed_large": "algorithm_9", "repaired_small": "6R"}.items():
            assert at[column]["schedule"] == name
        for column in COLUMNS:
            if at[column] is not None:
                counted = asked("count", at["M"], "--schedule", at[column]["schedule"])["counted"]
                assert (at[column]["io"], at[column]["peak"]) == (counted["io"], counted["peak"])
    large = [at["repaired_large"] for at in figure["points"]]
    assert None in large and large[-1]["schedule"].startswith("9R")  # they need more memory than the first M


def test_the_crossover_is_where_the_schedule_for_large_caches_begins_to_win(figure):
    crossover = figure["crossover"]
    assert crossover["theory"] == 8 * 8
    wins = [at["M"] for at in figure["points"] if at["repaired_large"] and at["repaired_large"]["io"] <= at["repaired_small"]["io"]]
    assert wins[0] == crossover["repaired"] > figure["points"][0]["M"]


def test_csv_has_the_numbers_of_json(figure):
    rows = list(csv.DictReader(figure1("--n", "128", "--d", "8", "--format", "csv").stdout.splitlines()))
    assert [int(row["M"]) for row in rows] == [at["M"] for at in figure["points"]]
    for row, at in zip(rows, figure["points"]):
        assert int(row["bound_io"]) == at["bound"]["words"] and row["bound"] == at["bound"]["theorem"]
        for column in COLUMNS:
            point = at[column] or {"schedule": "", "io": "", "peak": ""}
            assert [row[column], row[f"{column}_io"], row[f"{column}_peak"]] == [str(point[k]) for k in ("schedule", "io", "peak")]


@pytest.mark.parametrize(
    "options, why",
    [(["--from", "3"], "--from 3 --to"), (["--from", "64", "--to", "32"], "--from 64 --to 32"), (["--n", "0"], "--n 0")],
)
def test_what_makes_no_figure_is_refused(options, why):
    done = figure1("--d", "8", *options)
    assert done.returncode == 2 and why in done.stderr and done.stdout == ""
