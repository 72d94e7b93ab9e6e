"""The page of redblue.explore: its numbers are those of plans; in a browser, where there is one, it shows them."""

import itertools
import json
import re
import shutil
import subprocess
import sys

import pytest

redblue = pytest.importorskip("redblue")
AXES = {"op": ["forward", "backward"], "mask": ["none", "causal"], "n": [256, 1024], "d": [16, 64], "d_v/d": [1, 2], "M": [2, 4096, 65536]}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "page.html"
    redblue.explore(path, axes=AXES)
    return path


def test_every_cell_is_a_plan(page):
    text = page.read_text()
    data = json.loads(re.search(r"const DATA = (.*);\n", text).group(1).replace("<\\/", "</"))
    cells = iter(data["cells"])
    for op, mask, n, d, ratio, M in itertools.product(*AXES.values()):
        cell = next(cells)
        try:
            plan = redblue.plan(op, n=n, d=d, d_v=d * ratio, M=M, causal=mask == "causal")
        except redblue.CapacityError:
            assert cell is None
            continue
        io, bound, theorem, footprint, tiling, reason, rows = cell
        assert (io, bound, footprint) == (plan.io, plan.bound, plan.footprint)
        assert data["names"][rows[0][0]] == plan.schedule and rows[0][1] == io
        assert data["theorems"][theorem] == plan.theorem and data["reasons"][reason] == plan.reason
        assert sorted(row[1] for row in rows) == sorted(row["io"] for row in plan.rows)
        what, nest = data["nests"][f"{op} {mask} {plan.schedule}"]
        assert what.startswith("n = ") and plan.schedule in nest and "load" in nest
    assert next(cells, "end") == "end"
    assert not re.search(r"(src|href)=|https?://", text)  # needs no network


def shown(page, problem, width):
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--virtual-time-budget=9000"]
    done = subprocess.run([*browser, "--dump-dom", f"{page.as_uri()}#{problem}"], capture_output=True, text=True, timeout=120)
    return re.sub("<script>.*?</script>", "", done.stdout, flags=re.DOTALL)  # what stands there, not what could


def io_of(dom):
    return re.search(r'<b id="io">([\d,]+)</b>', dom).group(1)


in_a_browser = pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium here")


@in_a_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_plan_that_is_chosen(page, width):
    dom = shown(page, "op=backward&mask=causal&n=1024&d=64&dv=128&M=4096&heads=8", width)
    plan = redblue.plan("backward", n=1024, d=64, d_v=128, M=4096, heads=8, causal=True)
    assert io_of(dom) == f"{plan.io:,}"
    assert plan.schedule in dom and "<svg" in dom and dom.count("<tr") > 3
    assert f"redblue {redblue.__version__} computed these" in dom and "Not live" not in dom
    assert re.search(f'id="nest-title">Loop nest of {plan.schedule}, here with n = .*<pre id="nest">.*load', dom, re.DOTALL)


@in_a_browser
def test_an_address_that_names_another_problem_shows_the_nearest_of_the_table(page):
    dom = shown(page, "op=forward&mask=none&n=1000&d=60&dv=60&M=5000", 1280)
    assert io_of(dom) == f"{redblue.plan('forward', n=1024, d=64, M=4096).io:,}"


@in_a_browser
def test_a_browser_says_where_nothing_runs(page):
    problem = {"n": 1024, "d": 64, "d_v": 128, "M": 2}
    with pytest.raises(redblue.CapacityError):
        redblue.plan("backward", **problem)
    dom = shown(page, "op=backward&mask=none&n=1024&d=64&dv=128&M=2", 1280)
    assert "No schedule runs with so little fast memory" in re.search(r'id="answer"[^>]*>([^<]*)<', dom).group(1)


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(redblue.InvalidProblem, match="axes"):
        redblue.explore(tmp_path / "page.html", axes={"n": [4]})
    with pytest.raises(redblue.InvalidProblem, match="d_v/d = 0.5 with d = 3"):
        redblue.explore(tmp_path / "page.html", axes={**AXES, "d": [3], "d_v/d": [0.5]})
    with pytest.raises(redblue.FileError):
        redblue.explore(tmp_path / "no" / "page.html", axes={**AXES, "n": [256], "d": [16], "op": ["forward"]})
    bad = subprocess.run([sys.executable, "-m", "redblue", "explore", "--no"], capture_output=True, text=True)
    assert bad.returncode == 2 and "usage" in bad.stderr
