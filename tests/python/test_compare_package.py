"""redblue.compare: the numbers of `redblue compare`, on arrays."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from program import answer
from process import interrupted_after

redblue = pytest.importorskip("redblue")
from redblue import _compare  # noqa: E402


@pytest.fixture
def qkv():
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((2, heads, 64, 8)).astype(np.float32) for heads in (4, 2, 2))
    return 0.3 * q, k, v


def same(head, other):
    return head.keys() == other.keys() and all(x == (y if y is None else pytest.approx(y, rel=1e-6)) for x, y in zip(head.values(), other.values()))


@pytest.mark.parametrize(("options", "flags"), [
    ({}, []), ({"causal": True}, ["--causal"]), ({"scale": 0.2}, ["--scale", "0.2"]),
    ({"methods": ["performer:16,seed=3", "2:4,centred"]}, ["--approximate", "performer:16,seed=3", "--approximate", "2:4,centred"]),
])  # fmt: skip
def test_numbers_are_those_of_the_program(qkv, tmp_path, options, flags):
    save_file(dict(zip("qkv", qkv)), tmp_path / "x.safetensors")
    printed = answer("compare", "--input", tmp_path / "x.safetensors", "--M", 20000, *flags)
    found = redblue.compare(*qkv, M=20000, **options)
    ours = found.to_dict()
    assert [(m["method"], m["setting"]) for m in ours["methods"]] == [(m["method"], m["setting"]) for m in printed["methods"]]
    for mine, theirs in zip(ours["methods"], printed["methods"]):
        for name in ("refused", "schedule", "footprint", "io", "io_over_exact"):
            assert mine.get(name) == theirs.get(name)
        for a, b in zip(mine.get("heads", []), theirs.get("heads", []), strict=True):
            assert same(a, b)
        if "certificate" in theirs:  # per_head of a file is heads here
            assert mine["certificate"]["coefficients"] == theirs["certificate"]["coefficients"] or "rows" in theirs["certificate"]
            assert mine["certificate"]["output_error"] == theirs["certificate"]["output_error"]
        certified = mine["method"] == "polynomial" and not any(word in mine["setting"] for word in ("gaussian", "cluster"))
        assert ("certificate" in mine) == ("certificate" in theirs) == (certified and "refused" not in mine)
    for a, b in zip(ours["mean_of_values"], printed["mean_of_values"], strict=True):
        assert same(a, b)
    assert ours["errors"] == printed["errors"] and ours["problem"].items() <= printed["problem"].items()
    ran = [m for m in printed["methods"] if "heads" in m]
    assert [(r.setting, r.batch, r.head) for r in found.rows] == [(m["setting"], b, h) for m in ran for b in (0, 1) for h in range(4)]
    assert found.refused == {m["setting"]: m["refused"] for m in printed["methods"] if "refused" in m}


def test_proved_is_the_certificate_over_the_largest_entry(qkv):
    q, k, v = qkv
    q = q / 3
    exact = redblue.attention(*(x.astype(np.float64) for x in (q, k, v)), M=20000)
    found = redblue.compare(q, k, v, M=20000, methods=["2:1.5", "4:1.5", "linear", "2:0.5,no-exact-rows"])
    certificate = redblue.certify(q, k, v, approximate="2:1.5", M=20000)
    rows = [r for r in found.rows if r.setting == "--approximate 2:1.5"]
    for row, head in zip(rows, certificate["heads"], strict=True):
        wanted = (head["output_error"] + head["rounding"]) / abs(exact[row.batch, row.head]).max()
        assert row.proved == pytest.approx(wanted, rel=1e-12)
        assert {**row.certificate, "decision": None} == certificate
    assert all(r.largest <= r.proved for r in found.rows if r.proved is not None)
    proved = {r.setting for r in found.rows if r.proved is not None}
    assert proved == {"--approximate 2:1.5", "--approximate 4:1.5"}  # without exact rows a range is no proof


def test_layouts_types_and_views(qkv):
    methods = ["2:1.5", "performer:8"]
    errors = lambda found: [(r.error, r.largest, r.words) for r in found.rows]
    wanted = errors(redblue.compare(*qkv, M=20000, methods=methods))
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in qkv]
    assert errors(redblue.compare(*turned, M=20000, methods=methods, layout="bshd")) == wanted
    assert errors(redblue.compare(*(x.swapaxes(1, 2) for x in turned), M=20000, methods=methods)) == wanted
    wide = redblue.compare(*(x.astype(np.float64) for x in qkv), M=20000, methods="2:1.5")
    assert max(r.error for r in wide.rows if r.method == "exact") < 1e-14
    narrow = redblue.compare(*(x.astype(np.float16) for x in qkv), M=20000, methods=[])
    assert {r.method for r in narrow.rows} == {"exact"} and min(r.error for r in narrow.rows) > 1e-5


def test_shows_one_line_for_each_method(qkv):
    found = redblue.compare(*qkv, M=20000)
    ran = {r.setting for r in found.rows}
    text, page = repr(found), found._repr_html_()
    assert page.count("<tr>") == len(ran) + 2  # head, and the mean of v
    assert found.refused and page.count("<li>") == len(found.refused)
    [line] = [line for line in text.splitlines() if line.startswith("not run (.refused says why): ")]
    assert line.count("polynomial") == 1 and f"({sum('refused' in m for m in found.to_dict()['methods'] if m['method'] == 'polynomial')})" in line
    for setting in ran:
        rows = [r for r in found.rows if r.setting == setting]
        line = next(x for x in text.splitlines() if f" {setting} " in x) if setting else text.splitlines()[1]
        for number in (np.median([r.error for r in rows]), np.median([r.largest for r in rows])):
            assert f"{number:.3g}" in line.split()
        assert f"{rows[0].words:,}" in line.split() and rows[0].schedule in line.split()
        assert (f"{max(r.proved for r in rows):.3g}" in line.split()) if rows[0].proved is not None else " - " in line


def test_numbers_that_are_none_are_the_largest():
    assert _compare._median([None, 1.0, 2.0]) == 2 and _compare._median([None, None, 1.0]) is None


def test_pictures_and_reports_take_it(qkv):
    plt = pytest.importorskip("matplotlib")
    plt.use("Agg")
    import redblue.plot

    found = redblue.compare(*qkv, M=20000, methods=["performer:16", "performer:64"])
    drawn = {line.get_label(): line for line in redblue.plot.errors(found).lines}
    assert list(drawn) == ["exact", "performer"]
    rows = [r for r in found.rows if r.method == "performer"]
    assert list(drawn["performer"].get_xdata()) == [rows[0].words, rows[8].words]
    assert drawn["performer"].get_ydata()[1] == pytest.approx(np.mean([r.error for r in rows[8:]]))
    assert "performer:64" in redblue.report(found.to_dict())


def test_a_picture_has_no_point_where_an_error_is_no_number():
    plot = pytest.importorskip("redblue.plot")
    heads = [{"frobenius": None}, {"frobenius": 0.5}]
    (line,) = plot.errors({"M": 9, "methods": [{"method": "linear", "io": 50, "heads": heads}]}).lines
    assert np.isnan(line.get_ydata()[0])


def test_nothing_is_proved_of_bf16_arithmetic():
    """Here roundings exceed what would be proved of fp32."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = (x * np.ones((1, 1, 128, 32)) for x in (1, -1, 1.25))
    k[0, 0, 0] = 1
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (q, k, v))
    options = {"M": 100000, "scale": (np.log(2) - np.log(1 + 0.9 / 256)) / 64, "methods": "2:0.1,centred,exact-keys=128"}
    in_f32 = redblue.compare(q, k, v, **options).rows[1]
    assert in_f32.largest <= in_f32.proved
    in_bf16 = redblue.compare(q, k, v, compute="bf16", **options).rows[1]
    assert in_bf16.largest > in_f32.proved and in_bf16.proved is None and in_bf16.certificate is None


@pytest.mark.parametrize(("options", "message"), [
    ({"methods": "performer:16,seed=9007199254740992", "seeds": 3}, "seed"),
    ({"M": None}, "M = None: give a whole number"),
    ({"M": 0}, "M = 0: fast memory needs at least one word"),
    ({"M": 2}, "M = 2 words is too small"),
    ({"methods": "performr:8"}, "approximation performr:8: give performer:FEATURES"),
    ({"methods": [3]}, r"methods = \[3\]: give texts"),
    ({"methods": "linformer:65"}, "linformer:65: method: rank = 65: give a number from 1 to 64"),
    ({"repetitions": 0}, "repetitions = 0: give a number from 1 to 1000"),
    ({"repetitions": 1.5}, "repetitions = 1.5: give a whole number"),
    ({"layout": "hbsd"}, "layout = 'hbsd': give"),
])  # fmt: skip
def test_bad_options_are_refused(qkv, options, message):
    with pytest.raises(redblue.Error, match=message):
        redblue.compare(*qkv, **{"M": 20000, **options})


def test_bad_arrays_are_refused(qkv):
    q, k, v = qkv
    with pytest.raises(redblue.InvalidProblem, match="nothing to compare"):
        redblue.compare(q[:, :, :0], k, v, M=500)
    k[0, 1, 3, 2] = np.nan
    for methods in (None, "2:1"):
        with pytest.raises(redblue.InvalidProblem, match="k has .*row 3"):
            redblue.compare(q, k, v, M=500, methods=methods)


def test_facts_are_json(qkv):
    """Scores up to some thousands: nothing is proved of polynomials."""
    q, k, v = qkv
    proof = redblue.certify(q * 100, k, v, approximate="2:1", M=20000)
    assert json.loads(json.dumps(proof, allow_nan=False)) == proof
    assert proof["output_error"] is None and all(h["output_error"] is None and h["rounding"] is None for h in proof["heads"])
    found = redblue.compare(q * 100, k, v, M=20000, methods=["2:1"])
    facts = found.to_dict()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["methods"][1]["certificate"]["output_error"] is None and found.rows[-1].proved is None
    facts["methods"].clear()
    assert found.to_dict()["methods"]


def test_can_be_interrupted():
    q = np.random.default_rng(0).standard_normal((1, 1, 12000, 64)).astype(np.float32)
    with interrupted_after(0.5):
        redblue.compare(q, q, q, M=600, repetitions=1000)


def test_seeds_and_padding_are_those_of_the_program(qkv, tmp_path):
    save_file(dict(zip("qkv", qkv)), tmp_path / "x.safetensors")
    options = ["--seeds", 3, "--seqused-k", "40,64", "--approximate", "performer:16", "--approximate", "linear"]
    printed = answer("compare", "--input", tmp_path / "x.safetensors", "--M", 20000, *options)
    found = redblue.compare(*qkv, M=20000, seeds=3, seqused_k=[40, 64], methods=["performer:16", "linear"])
    for mine, theirs in zip(found.to_dict()["methods"], printed["methods"], strict=True):
        assert mine["seeds"] == theirs["seeds"]
        assert all(same(a, b) for a, b in zip(mine["heads"], theirs["heads"], strict=True))
    assert {(r.method, r.seeds) for r in found.rows} == {("exact", 1), ("performer", 3), ("linear", 1)}
    for r in found.rows:
        assert (r.worst_error > r.error and r.worst_largest > r.largest) == (r.seeds > 1)
