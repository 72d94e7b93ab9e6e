"""Dilated windows that are taken by residues: `dilation` of a problem, and --dilation where a pattern would be too large."""

import numpy as np
import pytest

import redblue
from program import SEED, answer, needs_program


def pairs(n_q, n_k, step, left, right, causal, offset):
    distance = np.arange(n_k) - np.arange(n_q)[:, None] - offset
    seen = distance % step == 0
    if left is not None:
        seen &= distance >= -left * step
    if right is not None:
        seen &= distance <= right * step
    return seen & (distance <= 0) if causal else seen


def drawn(rng):
    """Arguments of redblue.attention, and the bool mask that they stand for."""
    n_q, n_k = (int(n) for n in rng.integers(1, 40, 2))
    step = int(rng.integers(2, 6))
    left, right = (None if rng.random() < 0.4 else int(rng.integers(0, 6)) for _ in range(2))
    causal = bool(rng.random() < 0.4)
    offset = None if rng.random() < 0.6 else int(rng.integers(-4, 8))
    options = {"window": (left, right), "causal": causal, "dilation": step}
    if offset is not None:
        options["alignment"] = offset
    group, kv_heads = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    arrays = [rng.standard_normal(shape) for shape in ((2, group * kv_heads, n_q, 5), (2, kv_heads, n_k, 5), (2, kv_heads, n_k, 4))]
    if n_q == n_k and rng.random() < 0.5 and offset is None:
        cut = int(rng.integers(0, n_q + 1))
        options["cu_seqlens_q"] = options["cu_seqlens_k"] = [0, cut, n_q]
        mask = np.zeros((n_q, n_k), bool)
        for part in (slice(0, cut), slice(cut, n_q)):
            n = part.stop - part.start
            mask[part, part] = pairs(n, n, step, left, right, causal, 0)
    else:
        mask = pairs(n_q, n_k, step, left, right, causal, n_k - n_q if offset is None else offset)
    return arrays, options, mask


@pytest.mark.parametrize("index", range(60))
def test_results_are_those_of_the_mask(index):
    rng = np.random.default_rng([SEED, index])
    arrays, options, mask = drawn(rng)
    memory = {} if index % 2 else {"M": 200}
    o, lse = redblue.attention(*arrays, **options, **memory, return_lse=True)
    want, want_lse = redblue.attention(*arrays, bias=mask, return_lse=True)
    np.testing.assert_allclose(o, want, atol=1e-12)
    np.testing.assert_allclose(lse, want_lse, atol=1e-12)
    one, two = (redblue.attention(*arrays, **options, M=200, threads=threads) for threads in (1, 2))
    assert np.array_equal(one, two)
    do = rng.standard_normal(o.shape)
    got = redblue.attention_backward(do, *arrays, o, lse, **options, **memory)
    for g, w in zip(got, redblue.attention_backward(do, *arrays, want, want_lse, bias=mask)):
        if w is not None:
            np.testing.assert_allclose(g, w, atol=1e-11)


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("index", range(20))
def test_words_are_counted_and_those_of_a_plain_window_for_each_residue(index, op):
    rng = np.random.default_rng([SEED, index, 1])
    step, left, each = int(rng.integers(2, 5)), int(rng.integers(1, 8)), int(rng.integers(5, 20))
    sizes = {"op": op, "d": 4, "M": int(rng.integers(60, 400))}
    plan = redblue.plan(**sizes, n=step * each, window=(left, 0), dilation=step)
    assert plan.count()["io"] == plan.io
    assert f"each residue modulo {step}" in plan.reason
    assert plan.io == step * redblue.plan(**sizes, n=each, window=(left, 0)).io


@needs_program
@pytest.mark.slow
def test_the_program_takes_large_dilated_windows_by_residues():
    plan = answer("plan", "--n", 1 << 20, "--d", 64, "--M", 16384, "--window", "512,0", "--dilation", 4)
    assert plan["problem"]["dilation"] == 4 and "patterns" not in plan["problem"]
    # Each residue is a window of 513 keys over n / 4 queries and keys: four times that plan.
    window = answer("plan", "--n", 1 << 18, "--d", 64, "--M", 16384, "--window", "512,0")
    row, alone = plan["plans"][0], window["plans"][0]
    assert row["schedule"] == alone["schedule"]
    assert row["io"] == 4 * alone["io"]
    small = answer("plan", "--n", 64, "--d", 8, "--M", 300, "--window", "5,0", "--dilation", 4)
    assert small["problem"]["patterns"]
    large = ["plan", "--n", 4160, "--d", 8, "--M", 3000, "--window", "-1,0", "--dilation", 2]
    assert answer(*large, "--schedule", "sparse")["problem"]["patterns"]
    one = ["--schedule", "flash"]  # to plan every schedule on these pairs takes seven times as long
    for option in ["--order", "natural"], ["--alibi"], ["--dropout", 0.5], ["--max-workspace", 300000]:
        assert answer(*large, *one, *option)["problem"]["patterns"]
    assert answer(*large, *one)["problem"]["dilation"] == 2
    # Heads that share keys and values have one list: pairs of one of them count.
    group = ["plan", "--n", 1200, "--heads", 8, "--kv-heads", 1, "--d", 8, "--M", 3000, "--window", "-1,-1", "--dilation", 2]
    assert answer(*group, *one)["problem"]["patterns"]


@needs_program
def test_a_large_dilated_window_runs(tmp_path):
    rng = np.random.default_rng(SEED)
    n, step = 4160, 2
    x = {name: rng.standard_normal((1, 1, n, 4), dtype=np.float32) for name in "qkv"}
    np.savez(tmp_path / "x.npz", **x)
    files = ["--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", "--layout", "bhnd"]
    for schedule in ([], ["--M", 3000]):
        report = answer("run", *files, "--window", "-1,0", "--dilation", step, "--verify", *schedule)
        assert report["problem"]["dilation"] == step
        o = np.load(tmp_path / "y.npz")["o"][0, 0]
        for i in (0, 1, 2, 77, n - 1):
            seen = np.arange(i % step, i + 1, step)
            scores = x["k"][0, 0, seen].astype(float) @ x["q"][0, 0, i] / 2
            weights = np.exp(scores - scores.max())
            np.testing.assert_allclose(o[i], weights @ x["v"][0, 0, seen] / weights.sum(), atol=1e-5)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"dilation": 0}, "dilation = 0"),
        ({"dilation": 2, "window": (2, 0), "dropout": 0.1, "seed": 1}, "dropout"),
        ({"dilation": 2, "window": (2, 0), "alibi_slopes": np.ones(2, np.float32)}, "ALiBi"),
        ({"dilation": 2, "window": (2, 0), "approximate": "2:1"}, "approximations"),
        ({"dilation": 1.5}, "dilation"),
    ],
)
def test_what_cannot_be(options, words):
    q = np.zeros((1, 2, 4, 4), np.float32)
    with pytest.raises((redblue.InvalidProblem, TypeError), match=words):
        redblue.attention(q, q, q, **options)
