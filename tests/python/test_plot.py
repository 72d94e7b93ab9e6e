"""redblue.plot: what is drawn are the plans, bounds and traces themselves."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
redblue = pytest.importorskip("redblue")
import redblue.plot  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    matplotlib.pyplot.close("all")


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def test_io_against_memory_draws_plans_and_bounds():
    sizes = [64, 512, 4096, 32768, 262144]
    drawn = lines(redblue.plot.io_against_memory("backward", n=512, d=64, M=sizes))
    plans = [redblue.plan("backward", n=512, d=64, M=M) for M in sizes]
    bound = next(line for label, line in drawn.items() if label.startswith("lower bound"))
    assert bound.get_xdata().tolist() == sizes and bound.get_ydata().tolist() == [p.bound for p in plans]
    best = np.nanmin([drawn[name].get_ydata() for name in {p.schedule for p in plans}], axis=0)
    assert best.tolist() == [p.io for p in plans]


def test_the_bounds_are_all_named_and_switches_are_where_another_schedule_becomes_the_best():
    drawn = lines(redblue.plot.io_against_memory(n=128, d=16, M=[64, 1024, 4096]))
    assert next(label for label in drawn if label.startswith("lower bound")) == "lower bound (F', trivial)"
    switch = next(x[0] for x in (line.get_xdata() for line in drawn.values()) if x[0] == x[1] != 256)
    below, above = (redblue.plan(n=128, d=16, M=M).schedule for M in (switch - 1, switch))
    assert below == redblue.plan(n=128, d=16, M=64).schedule != above


def test_figure_1_draws_what_is_counted():
    at = [16, 64, 1024]
    moved, held = redblue.plot.figure1(128, 8, M=at)
    assert moved.get_title() == held.get_title() == "dL/dX, n = 128, d = 8" and moved.figure is held.figure
    of_five = {"best", *(f"{kind}, {size} cache" for kind in ("printed", "repaired") for size in ("small", "large"))}
    forms = {"(n²d + nd²) / √M": (128**2 * 8 + 128 * 64) / 4, "(n²d² + nd³) / M": (128**2 * 64 + 128 * 512) / 16}
    named = {panel: {label for label in lines(panel) if not label.startswith("_")} for panel in (moved, held)}
    assert named[moved] == of_five | {"lower bound", *forms} and named[held] == of_five
    for form, at_16 in forms.items():
        assert lines(moved)[form].get_ydata()[0] == at_16
    assert (moved.get_ylabel(), held.get_ylabel()) == ("words moved", "words held / M")
    bound = lines(moved)["lower bound"].get_ydata()
    for i, M in enumerate(at):
        words = [sys.executable, "-m", "redblue", "count", "--op", "gradient-x", "--n", "128", "--d", "8", "--M", str(M), "--json"]
        for label, schedule in (("printed, small cache", "algorithm_6"), ("printed, large cache", "algorithm_9"), ("best", None)):
            more = ["--schedule", schedule] if schedule else []
            counted = json.loads(subprocess.run([*words, *more], capture_output=True, check=True).stdout)["counted"]
            assert lines(moved)[label].get_ydata()[i] == counted["io"] >= bound[i]
            assert lines(held)[label].get_ydata()[i] == counted["peak"] / M
    assert (lines(held)["best"].get_ydata() <= 1).all() and (lines(held)["printed, large cache"].get_ydata() > 1).any()
    with pytest.raises(redblue.InvalidProblem, match="n = 0"):
        redblue.plot.figure1(0)


def test_schedules_may_be_named_and_memory_that_is_too_small_is_a_gap():
    drawn = lines(redblue.plot.io_against_memory(n=64, d=64, M=[1, 4096, 8192], schedules=["flash"]))
    io = drawn["flash"].get_ydata()
    assert drawn["flash"].get_xdata().tolist() == [4096, 8192] and (io > 0).all()
    with pytest.raises(redblue.InvalidProblem, match="larger"):
        redblue.plot.io_against_memory(n=64, d=64, M=[1, 2])


def test_bad_sizes_and_names_are_refused():
    draw, map_ = redblue.plot.io_against_memory, redblue.plot.regimes
    for picture, options, text in (
        (draw, {"d": 8, "M": 1000}, "M = 1000: give a list"),
        (draw, {"d": 8, "M": [1000.0]}, "whole numbers"),
        (draw, {"M": [1000]}, "d = None"),
        (draw, {"d": 8, "M": [1000], "schedules": ["flash", "flush"]}, "called 'flush': did you mean flash?"),
        (map_, {"d": 8, "M": [1000]}, "d = 8: give a list"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=text):
            picture(n=64, **options)


def test_maps_have_a_cell_for_each_plan():
    d, M = [16, 64, 256], [2048, 16384]
    ratios = redblue.plot.ratios(n=256, d=d, M=M).collections[0].get_array()
    assert ratios.tolist() == [[redblue.plan(n=256, d=w, M=size).ratio for w in d] for size in M]
    ax = redblue.plot.regimes(n=256, d=d, M=M)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    chosen = ax.collections[0].get_array()
    assert [[names[int(i)] for i in row] for row in chosen] == [
        [redblue.plan(n=256, d=w, M=size).schedule for w in d] for size in M
    ]


@pytest.mark.parametrize("options", [[], ["--causal"], ["--op", "backward"], ["--schedule", "small_cache"]])
def test_timeline_peaks_at_the_footprint(options):
    sizes = ["--n", 12, "--d", 4, "--M", 64, *options]
    ax = redblue.plot.timeline(sizes)
    top = max(path.vertices[:, 1].max() for c in ax.collections for path in c.get_paths())
    count = [sys.executable, "-m", "redblue", "count", *map(str, sizes), "--json"]
    assert top == json.loads(subprocess.run(count, capture_output=True, check=True).stdout)["counted"]["peak"]
    assert {"Q", "streamed"} <= {text.get_text() for text in ax.get_legend().get_texts()}


def test_a_trace_that_cannot_be_made_says_why():
    with pytest.raises(redblue.InvalidProblem, match="M"):
        redblue.plot.timeline(["--n", 12, "--d", 4, "--M", 1])


def test_what_is_no_trace_is_refused(tmp_path):
    trace = tmp_path / "t"
    for text, says in (("x", "no trace"), ("# redblue.trace/2\nopen t0\n", "no whole trace"), ("# redblue.trace/2\nclose t0\n", "no whole")):
        trace.write_text(text)
        with pytest.raises(redblue.InvalidProblem, match=says):
            redblue.plot.timeline(trace)
    with pytest.raises(redblue.FileError, match="cannot be read"):
        redblue.plot.timeline(tmp_path / "missing")


def test_what_is_no_comparison_is_refused(tmp_path):
    (tmp_path / "x").write_text("x")
    for table in ({}, {"schema": "redblue.run/1"}, 3, tmp_path / "x", redblue.plan(n=8, d=4, M=100)):
        with pytest.raises(redblue.InvalidProblem, match="give what redblue.compare returned"):
            redblue.plot.errors(table)
    with pytest.raises(redblue.FileError, match="cannot be read"):
        redblue.plot.errors(tmp_path / "missing")


@pytest.mark.parametrize("rate", ["x", 0, -1, float("nan"), float("inf")])
def test_rates_that_are_none_are_refused(rate):
    plan = redblue.plan(n=64, d=8, M=500)
    with pytest.raises(redblue.InvalidProblem, match="the rate of 'a'.*give"):
        redblue.plot.roofline({"a": (plan, rate)})
    with pytest.raises(redblue.InvalidProblem, match=r"points\['a'\]"):
        redblue.plot.roofline({"a": rate})


def test_a_point_of_the_roofline_is_at_its_flops_per_byte(tmp_path):
    plan = redblue.plan(n=1024, d=64, M=8192)
    level = {"name": "DRAM", "bytes": 1, "cores": 1, "read_bandwidth": 2e10}
    machine = {"cpu": "a machine", "levels": [level], "peaks": [{"dtype": "f32", "flops": 1e11}]}
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    drawn = lines(redblue.plot.roofline({"a run": (plan, 90.0)}, machine=tmp_path / "machine.json"))
    x, y = drawn["DRAM, one core"].get_data()
    np.testing.assert_allclose(y, np.minimum(100, 20 * x))
    point = next(line for line in drawn.values() if len(line.get_xdata()) == 1)
    assert (point.get_xdata()[0], point.get_ydata()[0]) == (plan.flops / (4 * plan.io), 90)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(redblue.InvalidProblem, match="doctor"):
        redblue.plot.roofline({}, machine=tmp_path / "other.json")


def test_errors_are_those_of_the_table():
    head = lambda x: {"batch": 0, "head": 0, "frobenius": x, "max": x}
    table = {
        "M": 4096,
        "methods": [
            {"method": "exact", "io": 100, "heads": [head(1e-7), head(3e-7)]},
            {"method": "linear", "io": 50, "heads": [head(0.5), head(0.7)]},
            {"method": "polynomial", "refused": "no"},
        ],
    }
    drawn = lines(redblue.plot.errors(table))
    assert set(drawn) == {"exact", "linear"}
    assert drawn["exact"].get_xdata()[0] == 100 and drawn["exact"].get_ydata()[0] == pytest.approx(2e-7)
    assert drawn["linear"].get_ydata()[0] == pytest.approx(0.6)


def test_the_pictures_of_the_readme_are_drawn_by_the_program(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts/pictures.py", tmp_path], check=True)
    for name in ("io", "ratios"):
        drawn, kept = ((folder / f"{name}.svg").read_text() for folder in (tmp_path, ROOT / "docs/pictures"))
        assert drawn.startswith("<?xml") and len(drawn) > 5000
        texts = lambda svg: [line.split(">")[1].split("<")[0] for line in svg.splitlines() if "<text" in line]
        assert texts(drawn) == texts(kept)
