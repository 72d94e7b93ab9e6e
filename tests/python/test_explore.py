"""The page of redblue.explore: its numbers are those of plans; in a browser, where there is one, it shows them."""

import itertools
import json
import re
import shutil
import subprocess
import sys

import pytest

redblue = pytest.importorskip("redblue")
AXES = {"op": ["forward", "backward"], "mask": ["none", "causal"], "n": [256, 1024], "d": [16, 64], "d_v/d": [1, 2], "M": [64, 4096, 65536]}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "page.html"
    redblue.explore(path, axes=AXES, planner=False)
    return path


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    from redblue._explore import MODULE

    if not MODULE.exists():
        pytest.skip("this package is without the planner of web pages (scripts/wasm.sh)")
    path = tmp_path_factory.mktemp("explore") / "live.html"
    redblue.explore(path, axes={**AXES, "n": [256], "d": [16]})
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
    assert "computed beforehand" in dom and "Not live: this page was made without the planner" in dom


@in_a_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_runs_the_planner_for_any_problem(live, width):
    dom = shown(live, "op=backward&mask=causal&n=1000&d=48&dv=100&M=5000&heads=6&more=--kv-heads+3", width)
    plan = redblue.plan("backward", n=1000, d=48, d_v=100, M=5000, heads=6, kv_heads=3, causal=True)
    assert io_of(dom) == f"{plan.io:,}" and plan.reason in dom
    assert "Computed by the real planner (WebAssembly)" in dom and "computed beforehand" not in dom
    assert "<svg" in dom and dom.count("<tr") == len(plan.rows) + 1
    assert re.search(f'id="nest-title">Loop nest of {plan.schedule}, here with n = 512, .*<pre id="nest">.*load', dom, re.DOTALL)


@in_a_browser
def test_a_refusal_is_shown(live):
    dom = shown(live, "op=forward&n=1000&d=48&dv=48&M=5000&more=--kv-heads+7", 1280)
    assert "kv_heads" in re.search(r'id="answer"[^>]*>([^<]*)<', dom).group(1)


@in_a_browser
def test_a_browser_without_webassembly_falls_back_and_says_so(live, tmp_path):
    broken = tmp_path / "broken.html"
    broken.write_text(live.read_text().replace("<script>", "<script>WebAssembly = undefined;</script><script>", 1))
    dom = shown(broken, "op=backward&mask=causal&n=256&d=16&dv=32&M=4096", 1280)
    plan = redblue.plan("backward", n=256, d=16, d_v=32, M=4096, causal=True)
    assert io_of(dom) == f"{plan.io:,}"
    assert "computed beforehand" in dom and "Not live: this browser does not run the planner" in dom


def test_a_page_with_the_planner_needs_no_network(live):
    assert not re.search(r"(src|href)=|https?://", live.read_text())


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(redblue.InvalidProblem, match="axes"):
        redblue.explore(tmp_path / "page.html", axes={"n": [4]})
    with pytest.raises(redblue.InvalidProblem, match="d_v/d = 0.5 with d = 3"):
        redblue.explore(tmp_path / "page.html", axes={**AXES, "d": [3], "d_v/d": [0.5]})
    with pytest.raises(redblue.FileError):
        redblue.explore(tmp_path / "no" / "page.html", axes={**AXES, "n": [256], "d": [16], "op": ["forward"]})
    bad = subprocess.run([sys.executable, "-m", "redblue", "explore", "--no"], capture_output=True, text=True)
    assert bad.returncode == 2 and "usage" in bad.stderr
