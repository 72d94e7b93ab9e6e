"""The referee of attention over ranks: what is right passes, each slip is seen, and no failure of a rank is one of the caller."""

import importlib.util
import multiprocessing
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import redblue
from redblue._check.cases import FEATURES, Case, arrays_of, cases_of, dense, seen
from redblue._check.guess import Guess
from redblue.distributed import Layout, check, positions

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "python" / "ranks")]
import checked  # noqa: E402
import ring_attention  # noqa: E402

RING = {"causal", "gqa", "d_v", "lse", "backward", "strided", "deterministic", "subgroup"}


def row_of(fn, case, ranks=2, features=(), **options):
    report = check(fn, ranks=[ranks], features=features, only=[case], **options)
    (row,) = report.rows
    assert report.ok == row.ok and (row.ok or "WRONG" in str(report))
    return row


def test_the_ring_of_the_example_is_right():
    report = check(ring_attention.ring_attention, ranks=[3], features=RING)
    assert report.ok, str(report)
    assert {row.ranks for row in report.rows} == {2, 3}  # 2: the subgroup
    for row in report.rows:
        if row.needs and row.ranks == 3:  # K and V go P - 1 hops, and dK and dV come back
            assert row.received() == row.sent() == row.needs["forward"]["ring"]
            assert row.received("backward") * 2 == row.needs["backward"]["ring"]
            assert row.received() >= (row.needs["forward"]["bound"] or 0)
            assert row.received("forward", "backward") >= (row.needs["backward"]["bound"] or 0)
    (many,) = (row for row in report.rows if row.case == "many rows" and row.ranks == 3)
    assert many.needs["forward"]["bound"] == 4 * redblue.distributed.plan(3, n_q=192, d=8, ownership="contiguous").rows[0]["bound"] > 0
    assert "forward: a rank received 1.37 times the lower bound of forward, and one sent 1.37 times (many rows, P = 3)" in str(report)
    assert set(report.by_kind("plain", 3)) == {"receive"}
    assert set(report.not_tried) == set(FEATURES) - RING
    assert "Not claimed, so not tried: window, scale" in str(report)


def test_redblue_s_own_is_right():
    report = check(checked.own, ranks=[3], features=checked.OWN)
    assert report.ok, str(report)


@pytest.mark.parametrize("slip", list(checked.EDITS))
def test_a_slip_is_seen(slip, tmp_path, monkeypatch):
    old, new, case, words = checked.EDITS[slip]
    text = (ROOT / "tests/python/ranks/ring_by_hand.py").read_text()
    assert text.count(old) == 1
    name = "ring_with_" + "".join(c if c.isalnum() else "_" for c in slip)
    (tmp_path / f"{name}.py").write_text(text.replace(old, new))
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    row = row_of(module.ring_attention, case, 2, RING)
    assert not row.ok and words in row.note, row


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("never", "rank 1: RuntimeError: Timed out waiting 4000ms for recv operation to complete, in its last call: receive from rank 0"),
        ("sleeps", "rank 1 did not come back"),
        ("raises", "rank 1: ValueError: one rank will not (checked.py"),
        ("dies", "rank 1: its process ended with exit status 7"),
        ("in_place", "the function changed its input k"),
        ("short", "o has shape (2, 2, 7, 8); it should have (2, 2, 8, 8)"),
    ],
)
def test_what_a_rank_does_ends_its_case_alone(name, words):
    row = row_of(getattr(checked, name), "plain", patience=4)
    assert not row.ok and words in row.note, row
    assert row.hung == (name in ("never", "sleeps"))


def test_other_cases_follow_a_failure():
    report = check(checked.raises, ranks=[2], only=["plain", "v is k"])
    assert [(row.case, row.ok) for row in report.rows] == [("plain", False), ("v is k", False)]
    assert "right: 0 of 2, WRONG: 2" in str(report)


def test_functional_collectives_are_counted():
    row = row_of(checked.gathered, "plain", 2)
    assert row.ok and row.received() == row.needs["forward"]["ring"]
    assert [set(of["calls"]) for of in row.traffic["forward"]] == [{"all-gather"}] * 2


def test_keys_and_values_that_are_repeated_for_each_query_head_show_in_the_bytes():
    row = row_of(checked.repeated, "grouped 3 : 1", 2, {"gqa"})
    assert row.ok and row.received() == 3 * row.needs["forward"]["ring"]


def test_partial_results_in_bfloat16_are_seen():
    both = {fn: check(getattr(checked, fn), ranks=(1, 4), features=["bf16"], only=["bf16"]) for fn in ("rounding", "merging")}
    assert [row.ok for row in both["merging"].rows] == [True, True]
    assert [row.ok for row in both["rounding"].rows] == [True, False]
    assert "as if partial results were rounded to bfloat16" in str(both["rounding"])


def test_rows_of_any_order():
    report = check(checked.own_zigzag, ranks=[2], features=["causal"], ownership="zig-zag", only=["causal", "plain"])
    assert report.ok, str(report)
    row = row_of(checked.own, "causal", 2, ["causal"], ownership="zig-zag")  # it takes rows for contiguous
    assert not row.ok
    assert check(checked.own, ranks=[2], ownership=contiguous, only=["plain"]).ok
    with pytest.raises(redblue.InvalidProblem, match="ownership: the positions of 2 ranks are not 0 to 15, each once"):
        check(checked.own, ranks=[2], ownership=overlapping, only=["plain"])


def contiguous(rank, ranks, n):
    return positions(Layout(grid_rows=ranks), rank, n)[0]


def overlapping(rank, ranks, n):
    return range(rank, rank + n // ranks)


@pytest.mark.parametrize(
    ("fn", "options", "error", "text"),
    [
        (3, {}, TypeError, "fn is a int: give a function"),
        (lambda q, k, v, *, group: q, {}, TypeError, "fn cannot be sent to other processes"),
        (checked.own, {"features": ["widow"]}, redblue.InvalidProblem, "features: there is no 'widow'; give some of causal, window"),
        (checked.own, {"only": ["causal"]}, redblue.InvalidProblem, "only: there is no 'causal'; give some of plain"),
        (checked.own, {"ownership": "ragged"}, redblue.InvalidProblem, "ownership: there is no 'ragged'"),
        (checked.own, {"ranks": ()}, redblue.InvalidProblem, "ranks = .*: give whole numbers from 1"),
        (checked.own, {"ranks": (0, 1)}, redblue.InvalidProblem, "ranks = .*: give whole numbers from 1"),
        (checked.own, {"patience": 0}, redblue.InvalidProblem, "patience = 0: give seconds above 0"),
        (checked.own, {"alignment": "left"}, redblue.InvalidProblem, "alignment = 'left'"),
    ],
)
def test_refusals(fn, options, error, text):
    with pytest.raises(error, match=text):
        check(fn, **options)


def test_a_script_without_its_guard_is_told_so(monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)  # as where a process imports it
    with pytest.raises(redblue.Error, match="call it under `if __name__ == '__main__':`"):
        check(checked.own, ranks=[1])


def test_documents_of_an_earlier_call_are_seen():
    report = check(checked.remembers, ranks=[1], features=["documents"], only=["documents", "other documents"])
    assert [row.ok for row in report.rows] == [True, False]
    assert "as if the mask of the call before" in report.rows[1].note


def test_what_a_call_between_the_passes_leaves_is_seen():
    report = check(checked.keeps, ranks=[1], features=["backward"], only=["plain", "a call between its passes"])
    assert [row.ok for row in report.rows] == [True, False], str(report)
    assert "dq is wrong" in report.rows[1].note


def wrong(case, slip):
    """The guess at a result with a slip, and the name of its first wrong array. Three ranks with contiguous rows, or zig-zag."""
    case = case._replace(backward=True)
    layout = Layout(grid_rows=3, ownership=case.ownership or "contiguous")
    rows, keys = zip(*(positions(layout, rank, case.n_q, case.n_k) for rank in range(3)))
    arrays, mask = arrays_of(case, 3), seen(case, case.options)
    wanted = dense(case, arrays, mask)
    found = {name: wanted[name].copy() for name in ("o", "lse", "dq", "dk", "dv")}
    slip(found, case, arrays, mask, keys)
    name = next(n for n in found if not np.array_equal(found[n], wanted[n]))
    return Guess(case, found, wanted, arrays, list(rows), list(keys)).text(name, lambda _: 1e-5)


def other(**changes):
    """Dense attention with other arguments."""

    def slip(found, case, arrays, mask, _):
        given = {name: of(case, arrays, mask) for name, of in changes.items()}
        found.update({name: x for name, x in dense(case, **{"arrays": arrays, "mask": mask, **given}).items() if name in found})

    return slip


def times(name, factor):
    def slip(found, *_):
        found[name] *= factor

    return slip


def blind(name, value):
    def slip(found, case, arrays, mask, _):
        found[name][:, :, ~mask.any(1)] = value

    return slip


def keys_of_next_rank(found, case, arrays, mask, keys):
    found["dq"] = dense(case, arrays, mask)["ds"] @ arrays["k"][:, :, np.concatenate(keys[1:] + keys[:1])]


def last_keys_twice(found, case, arrays, mask, keys):
    """The keys of rank 0 are those of rank 1 on rank 2, forward."""
    p, own = dense(case, arrays, mask)["p"], keys[2]
    weights = p[:, :, own] * np.repeat([0, 2, 1], [len(of) for of in keys])
    found["o"][:, :, own] = weights @ arrays["v"] / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("name", "slip", "words"),
    [
        ("sinks", other(arrays=lambda _, a, __: a | {"sinks": np.full(2, -np.inf)}), "as if sinks are ignored"),
        ("sinks", other(arrays=lambda _, a, __: a | {"sinks": a["sinks"] + np.log(3)}), "as if each rank takes the sinks in"),
        ("window", other(mask=lambda c, _, __: seen(c, {"window": (6, 3)})), "as if window = (6, 3)"),
        ("causal", other(mask=lambda c, _, __: seen(c, {"window": (99, 1)})), "as if a query sees the key after its own, too"),
        ("rows that see nothing", other(mask=lambda c, _, __: seen(c._replace(bottom_right=False), c.options)), "is aligned top-left"),
        ("rows that see nothing", blind("lse", 0.0), ": only in rows that see no key"),
        ("d_v < d", other(scale=lambda c, _, __: c.d_v**-0.5), "as if scale is 1 / sqrt(d_v)"),
        ("zig-zag, causal", other(mask=lambda c, _, m: np.tril(m)[np.ix_(*[np.argsort(zigzag(c.n_q))] * 2)]), "are taken for contiguous"),
        ("plain", times("dk", 1 / 3), ": it is 0.3333 times what it should be"),
        ("plain", keys_of_next_rank, "as if the backward pass took the k of rank 1 for that of rank 0"),
        ("plain", last_keys_twice, "as if rank 2 took the keys of rank 0 not at all, of rank 1 twice"),
    ],
)  # fmt: skip
def test_a_slip_is_named(name, slip, words):
    (case,) = (case for case in cases_of(3, FEATURES, True) if case.name == name)
    text = wrong(case, slip)
    assert words in text, text


def zigzag(n):
    return np.concatenate([positions(Layout(grid_rows=3, ownership="zig-zag"), rank, n)[0] for rank in range(3)])


def test_the_dense_answers_are_those_of_redblue():
    for case in cases_of(2, set(FEATURES) - {"bf16"}, True):
        arrays = arrays_of(case, 2)
        wanted = dense(case, arrays, seen(case, case.options))
        options = {name: case.options[name] for name in ("causal", "window", "scale") if name in case.options}
        if "sinks" in case.options:
            options["sinks"] = arrays["sinks"]
        if "cu_seqlens" in case.options:
            options["cu_seqlens_q"] = options["cu_seqlens_k"] = case.options["cu_seqlens"]
        o, lse = redblue.attention(*(arrays[x] for x in "qkv"), return_lse=True, M=5000, **options)
        np.testing.assert_allclose(o, wanted["o"], atol=1e-11)
        np.testing.assert_allclose(lse, wanted["lse"], atol=1e-11)
        if case.backward and not case.lse_gradient and not case.tied:
            found = redblue.attention_backward(arrays["do"], *(arrays[x] for x in "qkv"), o, lse, M=5000, **options)
            for name in ("dq", "dk", "dv"):
                np.testing.assert_allclose(getattr(found, name), wanted[name], atol=1e-9)


def test_gradients_of_lse_are_derivatives():
    case = Case("a", n_q=5, n_k=6, batch=1, heads=2, kv_heads=1, d=3, d_v=4, backward=True, lse=True, lse_gradient=True)
    arrays, mask = arrays_of(case, 1), seen(case, {"causal": True})
    found = dense(case, arrays, mask)

    def loss(name, at, step):
        moved = {**arrays, name: arrays[name].copy()}
        moved[name].flat[at] += step
        got = dense(case, moved, mask)
        return (got["o"] * arrays["do"]).sum() + (got["lse"] * arrays["dlse"]).sum()

    for name in ("q", "k", "v"):
        for at in range(0, arrays[name].size, 5):
            slope = (loss(name, at, 1e-6) - loss(name, at, -1e-6)) / 2e-6
            assert abs(slope - found[f"d{name}"].flat[at]) < 1e-6
