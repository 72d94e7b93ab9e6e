"""The Python package, as `pip install .` leaves it, without PyTorch: numbers, kinds of arrays, errors, threads, cost."""

import array
import copy
import itertools
import json
import multiprocessing
import operator
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import typing
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import ml_dtypes
import numpy as np
import pytest

import redblue
from dense import attention as reference
from dense import causal
from process import interrupted_after, resident, run_python
from program import answer, did
from redblue._call import calls

pytestmark = pytest.mark.usefixtures("hardware")
BF16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}


def arrays(rng, *shapes, dtype=np.float32):
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def qkv(rng):
    return arrays(rng, (2, 4, 19, 8), (2, 2, 23, 8), (2, 2, 23, 6))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("strides", ["contiguous", "every second", "reversed", "features apart"])
def test_types_layouts_and_strides(rng, dtype, layout, strides):
    shapes = [(2, 4, 11, 8), (2, 2, 13, 8), (2, 2, 13, 6)]
    plain = [x.astype(BF16 if dtype == "bfloat16" else dtype) for x in arrays(rng, *shapes)]
    given = plain
    if layout == "bshd":
        given = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in given]
    if strides == "every second":
        given = [np.repeat(x, 2, axis=2)[:, :, ::2] for x in given]
    elif strides == "reversed":
        given = [np.ascontiguousarray(x[:, ::-1])[:, ::-1] for x in given]
    elif strides == "features apart":
        given = [np.ascontiguousarray(x.swapaxes(1, 3)).swapaxes(1, 3) for x in given]
    o, lse = redblue.attention(*given, layout=layout, return_lse=True)
    assert type(o) is np.ndarray and o.dtype == plain[0].dtype and o.flags.c_contiguous
    assert lse.dtype == (np.float64 if dtype == "float64" else np.float32)
    want, want_lse = reference(*plain)
    got = o.swapaxes(1, 2) if layout == "bshd" else o
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(lse, want_lse, rtol=0, atol=TOLERANCE[dtype])


def test_sizes_missing_in_front(rng):
    q, k, v = arrays(rng, (4, 9, 8), (2, 9, 8), (2, 9, 8))
    whole = redblue.attention(q[None], k[None], v[None])[0]
    assert np.array_equal(redblue.attention(q, k, v), whole)
    o, lse = redblue.attention(q[0], k[0], v[0], return_lse=True)
    assert o.shape == (9, 8) and lse.shape == (9,)
    np.testing.assert_allclose(o, whole[0], atol=1e-6)


@pytest.mark.parametrize("alignment, offset", [("top-left", 0), ("bottom-right", 4), (-3, -3), (2, 2)])
def test_causal_alignment(qkv, alignment, offset):
    o, lse = redblue.attention(*qkv, causal=True, alignment=alignment, return_lse=True)
    want, want_lse = reference(*qkv, keep=causal(19, 23, offset))
    np.testing.assert_allclose(o, want, atol=2e-6)
    np.testing.assert_allclose(lse, want_lse, atol=2e-6)
    if offset < 0:
        assert np.all(o[:, :, 0] == 0) and np.all(lse[:, :, 0] == -np.inf)


def test_windows_and_prefixes(qkv):
    j, i = np.arange(23), np.arange(19)[:, None] + 4
    o = redblue.attention(*qkv, window=(3, 2))
    np.testing.assert_allclose(o, reference(*qkv, keep=(j >= i - 3) & (j <= i + 2))[0], atol=2e-6)
    o = redblue.attention(*qkv, window=(-1, 0), prefix=9)
    np.testing.assert_allclose(o, reference(*qkv, keep=(j <= i) | (j < 9))[0], atol=2e-6)


def test_modifiers(rng, qkv):
    bias = rng.standard_normal((4, 19, 23)).astype(np.float32)
    o = redblue.attention(*qkv, bias=bias, softcap=1.5, scale=0.7)
    np.testing.assert_allclose(o, reference(*qkv, bias=bias, softcap=1.5, scale=0.7)[0], atol=2e-6)
    keep = rng.random((2, 1, 1, 23)) < 0.6
    np.testing.assert_allclose(redblue.attention(*qkv, bias=keep), reference(*qkv, keep=keep)[0], atol=2e-6)
    slopes = np.array([0.5, 0.25, 0.125, 0.1], np.float32)
    distance = np.abs(np.arange(19)[:, None] + 4 - np.arange(23))
    o = redblue.attention(*qkv, alibi_slopes=slopes)
    np.testing.assert_allclose(o, reference(*qkv, bias=-slopes[:, None, None] * distance)[0], atol=2e-6)
    sinks = np.array([0.3, -1.0, 0.0, 2.0], np.float32)
    o, lse = redblue.attention(*qkv, sinks=sinks, return_lse=True)
    plain, plain_lse = reference(*qkv)
    with_sink = np.logaddexp(plain_lse, sinks[:, None])
    np.testing.assert_allclose(lse, with_sink, atol=2e-6)
    np.testing.assert_allclose(o, plain * np.exp(plain_lse - with_sink)[..., None], atol=2e-6)


def test_dropout_depends_on_the_seed_alone_and_needs_no_new_plan(qkv):
    first = redblue.attention(*qkv, dropout=0.4, seed=1)
    plans = len(calls._calls)
    assert np.array_equal(first, redblue.attention(*qkv, dropout=0.4, seed=1, threads=None))
    assert not np.array_equal(first, redblue.attention(*qkv, dropout=0.4, seed=2))
    assert len(calls._calls) == plans
    many = np.mean([redblue.attention(*qkv, dropout=0.4, seed=s) for s in range(300)], axis=0)
    np.testing.assert_allclose(many, reference(*qkv)[0], atol=0.4)
    with pytest.raises(redblue.InvalidProblem, match="seed"):
        redblue.attention(*qkv, dropout=0.4)


def test_packed_and_padded_sequences(rng):
    q, k, v = arrays(rng, (30, 4, 8), (30, 2, 8), (30, 2, 8))
    o = redblue.flash_attn_varlen_func(q, k, v, [0, 7, 19, 30], np.array([0, 7, 19, 30], np.int32), 12, 12, causal=True)
    for a, b in ((0, 7), (7, 19), (19, 30)):
        want = redblue.flash_attn_func(q[None, a:b], k[None, a:b], v[None, a:b], causal=True)[0]
        np.testing.assert_allclose(o[a:b], want, atol=1e-6)
    q, k, v = arrays(rng, (2, 2, 5, 8), (2, 2, 9, 8), (2, 2, 9, 8))
    o = redblue.attention(q, k, v, seqused_k=[9, 4])
    np.testing.assert_allclose(o[1], reference(q[1], k[1, :, :4], v[1, :, :4])[0], atol=2e-6)


def test_packed_sequences_are_used_in_part(rng):
    """Keys and values stay where they are; causal and windows are aligned at the bottom right of the lengths in use."""
    q, k, v = arrays(rng, (30, 4, 8), (26, 2, 8), (26, 2, 8))
    at_q, at_k, used_q, used_k = [0, 7, 19, 30], [0, 9, 11, 26], [7, 5, 11], np.array([4, 0, 15], np.int32)
    begins = {"cu_seqlens_q": at_q, "cu_seqlens_k": at_k}
    for mask in ({}, {"causal": True}, {"window_size": (3, 1)}):
        o, lse, _ = redblue.flash_attn_varlen_func(q, k, v, at_q, at_k, **mask, seqused_q=used_q, seqused_k=used_k, return_attn_probs=True)
        for s in range(3):
            i, j = slice(at_q[s], at_q[s] + used_q[s]), slice(at_k[s], at_k[s] + used_k[s])
            want = redblue.flash_attn_func(q[None, i], k[None, j], v[None, j], **mask, return_attn_probs=True)
            np.testing.assert_allclose(o[i], want[0][0], atol=1e-6)
            np.testing.assert_allclose(lse[:, i], want[1][0], atol=1e-6)
        assert not o[12:19].any() and (lse[:, 7:19] == -np.inf).all()
    do = rng.standard_normal(o.shape, dtype=np.float32)
    options = {"layout": "bshd", "causal": True, **begins, "seqused_k": used_k}
    g = redblue.attention_backward(do, q, k, v, **options)
    assert not np.any([x[4:11] for x in (g.dk, g.dv)]) and g.dk[:4].any() and g.dk[11:].any()
    changed = np.where((np.arange(26) < 4) | (np.arange(26) >= 11), k.T, 1e3).T.astype(np.float32)
    np.testing.assert_array_equal(redblue.attention(q, changed, v, **options), redblue.attention(q, k, v, **options))
    plan = redblue.plan(n_q=30, n_k=26, d=8, M=500, **begins, seqused_k=used_k)
    assert plan.count()["io"] == plan.io < redblue.plan(n_q=30, n_k=26, d=8, M=500, **begins).io
    for wrong, text in (
        ({"seqused_k": [4, 0]}, "seqused_k has 2 lengths for 3 packed sequences"),
        ({"seqused_k": [4, 3, 15]}, r"seqused_k\[1\] = 3: give a length from 0 to 2"),
        ({"seqused_q": [8, 0, 0]}, r"seqused_q\[0\] = 8: give a length from 0 to 7"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=text):
            redblue.flash_attn_varlen_func(q, k, v, at_q, at_k, **wrong)


def test_patterns(rng):
    q, k, v = arrays(rng, (1, 2, 40, 8), (1, 2, 40, 8), (1, 2, 40, 8))
    keep = rng.random((40, 40)) < 0.3
    p = redblue.patterns
    np.testing.assert_allclose(redblue.attention(q, k, v, pattern=p.mask(keep)), reference(q, k, v, keep)[0], atol=2e-6)
    indptr = np.concatenate([[0], keep.sum(1).cumsum()])
    same = p.csr(40, 40, indptr, np.nonzero(keep)[1])
    assert same.pairs == keep.sum() and (same & p.mask(keep)).pairs == same.pairs
    both = p.window(40, 40, 2, 2) | p.mask(keep)
    near = np.abs(np.arange(40) - np.arange(40)[:, None]) <= 2
    per_head = redblue.attention(q, k, v, pattern=[both, p.blocks(40, 40, 20, 20, np.eye(2))])
    np.testing.assert_allclose(per_head[:, :1], reference(q[:, :1], k[:, :1], v[:, :1], keep | near)[0], atol=2e-6)
    halves = np.kron(np.eye(2), np.ones((20, 20))) > 0
    np.testing.assert_allclose(per_head[:, 1:], reference(q[:, 1:], k[:, 1:], v[:, 1:], halves)[0], atol=2e-6)
    for pattern in (p.longformer(40, 40, 2, 2, 1), p.big_bird(40, 40, block=4, randoms=1), p.strided(40, 40, 5), p.fixed(40, 40, 5, 1)):
        assert 0 < pattern.pairs < 1600 and "40 queries" in repr(pattern)
    with pytest.raises(redblue.InvalidProblem, match="indptr"):
        p.csr(40, 40, indptr[:-1], [])
    with pytest.raises(redblue.InvalidProblem, match="keys"):
        redblue.attention(q, k, v, pattern=p.mask(keep[:, :30]))


def test_patterns_can_be_copied_and_pickled():
    p = redblue.patterns
    keep = np.random.default_rng(3).random((40, 40)) < 0.3
    for pattern in (p.mask(keep), p.csr(40, 40, [0] * 20 + [2] * 21, [3, 9]), p.blocks(40, 40, 20, 10, np.ones((2, 4))), p.strided(40, 40, 5)):
        for same in (pickle.loads(pickle.dumps(pattern)), copy.deepcopy(pattern)):
            plans = [redblue.plan(n=40, d=8, M=300, pattern=x).to_dict() for x in (pattern, same)]
            assert repr(same) == repr(pattern) and plans[0] == plans[1] and same.__getstate__() == pattern.__getstate__()
            # the same pairs: neither has one that the other has not
            assert (same & pattern).pairs == same.pairs == (same | pattern).pairs
    with pytest.raises(redblue.InvalidProblem, match="cut off"):
        type(pattern).__setstate__(type(pattern).__new__(type(pattern)), pattern.__getstate__()[:-8])


def travelled_plans():
    """Of each kind that a plan can be: for words, bytes and time, with its forward pass, patterns, tilings of their own."""
    keep = np.random.default_rng(3).random((48, 48)) < 0.2
    cu = [0, 5, 40, 96, 100]
    arrays = [np.ones((1, 2, 64, 8), np.float32)] * 3
    yield redblue.plan(n=512, d=64, heads=8, M=16384)
    yield redblue.plan(n=512, d=64, heads=8, kv_heads=2, memory=65536, dtype="bf16", compute="bf16", causal=True)
    yield redblue.plan(n=300, d=64, heads=3, causal=True, threads=1)
    yield redblue.plan("backward", n=200, d=16, M=2000, window=(10, 0), bias=(1, 1, 200, 200), bias_gradient=True, dropout=0.1)
    yield redblue.plan("backward", n=200, d=16, M=200, forward_given=False)
    yield redblue.plan("backward", n=200, d=16, forward_given=False)
    yield redblue.plan("scores", n=64, d=8, M=300, softcap=2.0, alibi=True)
    yield redblue.plan(n=100, d=8, M=300, cu_seqlens_q=cu, cu_seqlens_k=cu, causal=True)
    yield redblue.plan(n=100, d=8, M=300, cu_seqlens_q=cu, cu_seqlens_k=cu, seqused_k=[b - a - 1 for a, b in zip(cu, cu[1:])])
    yield redblue.plan(batch=3, n=100, d=8, M=300, seqused_k=[5, 100, 7])
    yield redblue.plan(n=48, d=8, M=200, heads=2, pattern=[redblue.patterns.mask(keep), redblue.patterns.strided(48, 48, 7)])
    yield redblue.plan("backward", n=48, d=8, M=200, pattern=redblue.patterns.mask(keep), forward_given=False)
    yield redblue.explain(*arrays, causal=True, return_lse=True)
    yield redblue.explain(*(0.01 * x for x in arrays), tolerance=1e-3, M=2000)
    for text in (
        "2:0.8", "3:0.1,rows,centred,exact-keys=2", "linear", "performer:32,seed=7", "linformer:16,signs,seed=2", "linformer:16",
        "nystroem:16,iterations=4", "smyrf:rounds=2,cluster=32,seed=3", "hyper:block=32,samples=16,planes=5,seed=4",
        "reformer:rounds=2,chunk=32,buckets=8,seed=5", "coreset:block=32,rank=8,tau=balanced,carried,seed=6",
        "sample:16,seed=2", "2:1.5,gaussian", "2:1,gaussian,exact-keys=3", "2:2,cluster=16,seed=3,no-exact-rows",
    ):  # fmt: skip
        yield redblue.plan(n=128, d=8, M=4000, approximate=text)


def test_plans_can_be_copied_and_pickled():
    plans = list(travelled_plans())
    assert any(p.own_tilings for p in plans) and any("order" in p.reason for p in plans) and any(p.decision for p in plans)
    assert {p.method for p in plans} > {"exact", "polynomial", "Performer", "coreset"} and any(p.forward for p in plans)
    for p in plans:
        for same in (pickle.loads(pickle.dumps(p)), copy.deepcopy(p), copy.copy(p)):
            assert repr(same) == repr(p) and same.to_dict() == p.to_dict()
            assert same.count() == p.count() and same.count()["io"] == p.io + (p.forward["io"] if p.forward else 0)
            assert same.loop_nest == p.loop_nest
            assert pickle.dumps(pickle.loads(pickle.dumps(same))) == pickle.dumps(pickle.loads(pickle.dumps(p)))


@pytest.mark.parametrize("command, options", [
    ("--n 512 --d 64 --dtype bf16 --multiple q=32,k=32 --memory 100000 --double-buffer --no-workspace",
     {"n": 512, "d": 64, "dtype": "bf16", "multiple": {"q": 32, "k": 32}, "memory": 100000, "double_buffer": True, "no_workspace": True}),
    ("--n 512 --d 128 --dtype f16 --multiple f=16 --memory 30000 --width O=4,scores=2 --pad rows=64,after=4",
     {"n": 512, "d": 128, "dtype": "f16", "multiple": {"f": 16}, "memory": 30000, "width": {"O": 4, "scores": 2}, "pad": {"rows": 64, "after": 4}}),
    ("--n 300 --d 32 --M 2000 --dtype bf16 --reserve 300 --write-cost 40 --multiple q=7",
     {"n": 300, "d": 32, "M": 2000, "dtype": "bf16", "reserve": 300, "write_cost": 40, "multiple": {"q": 7}}),
    ("--op backward --with-forward --n 256 --d 32 --memory 9000 --dtype bf16 --width dQ=8,K=1",
     {"op": "backward", "forward_given": False, "n": 256, "d": 32, "memory": 9000, "dtype": "bf16", "width": {"dQ": 8, "K": 1}}),
])  # fmt: skip
def test_plans_keep_to_what_a_kernel_wants_as_on_the_command_line(command, options):
    line = [sys.executable, "-m", "redblue", "plan", *command.split(), "--json"]
    report = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    p = redblue.plan(**options)

    def require_same(row, shown):
        names = ("schedule", "tiling", "reads", "writes", "footprint", "prefetch", "bytes", "workspace")
        assert {name: row[name] for name in names} == {name: shown[name] for name in names}
        for name in ("footprint_bytes", "prefetch_bytes"):
            assert row[name] == shown.get(name)

    chosen = report["plans"][report["chosen"]]
    require_same(p.to_dict(), chosen)
    assert [r["schedule"] for r in p.rows] == [r["schedule"] for r in report["plans"]]
    assert p.count()["io"] == p.io + (p.forward["io"] if p.forward else 0)
    sizes = {name: x for name, x in options.items() if name in ("op", "n", "d", "M", "memory", "dtype", "forward_given")}
    plain = redblue.plan(**sizes)
    assert (plain.schedule, plain.tiling) != (p.schedule, p.tiling)  # so that the options are seen to act
    for same in (pickle.loads(pickle.dumps(p)), copy.deepcopy(p)):
        assert same.to_dict() == p.to_dict() and same.count() == p.count() and same.loop_nest == p.loop_nest
        assert pickle.dumps(same._core) == pickle.dumps(p._core)


def test_what_a_kernel_wants_is_judged():
    assert redblue.plan(n=64, d=16, multiple={"q": 16, "k": 16}).tiling["Br"] % 16 == 0  # of least time
    for options, text in (
        ({"M": 999, "multiple": {"n": 4}}, "multiple of 'n': give q, k, f"),
        ({"M": 999, "multiple": {"q": 0}}, "multiple of q = 0: give a number from 1"),
        ({"M": 999, "multiple": {"q": 1.5}}, "multiple of q = 1.5: give a whole number"),
        ({"M": 999, "multiple": 16}, r"multiple = 16: give a dict.*\{'q': 16, 'k': 16\}"),
        ({"M": 999, "width": {"scores": 4}}, "width of 'scores': give Q, K, V"),
        ({"memory": 9999, "width": {"dQ": 4}}, "width of 'dQ': give accumulators, scores, statistics, Q"),
        ({"memory": 9999, "width": {"Q": 65}}, "width of Q = 65: give a number from 1 to 64"),
        ({"memory": 9999, "pad": {"row": 64}}, "pad of 'row': give rows, after"),
        ({"M": 999, "pad": {"rows": 64}}, "pad says .* give memory, too"),
        ({"M": 999, "double_buffer": 2}, "double_buffer = 2: give True or False"),
        ({"M": 999, "reserve": -1}, "reserve = -1"),
        ({"write_cost": 2}, "write_cost = 2 is for plans of the fewest words: give M or memory"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=text):
            redblue.plan(n=64, d=16, **options)
    with pytest.raises(TypeError, match="did you mean 'multiple'"):
        redblue.plan(n=64, d=16, M=999, multiples={"q": 16})


def test_a_plan_travels_to_a_machine_that_nobody_measured(tmp_path):
    """As its choice: the other machine, which has other times, takes none of its own, and measures nothing."""
    p = redblue.plan(n=300, d=64, heads=3, causal=True, threads=1)
    (tmp_path / "plan").write_bytes(pickle.dumps(p))
    code = f"""import pickle, redblue
p = pickle.loads(open({str(tmp_path / "plan")!r}, "rb").read())
print(p.count()["io"], p.loop_nest.splitlines()[0])"""
    there = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "none")}
    out = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, text=True, check=True)
    assert out.stdout == f"{p.io} {p.loop_nest.splitlines()[0]}\n" and out.stderr == ""
    assert os.listdir(tmp_path) == ["plan"]


def test_a_plan_of_another_version_is_refused():
    core = redblue.plan(n=64, d=8, M=300)._core
    *state, choice = core.__getstate__()
    order, schedule, tiling, words, forward = choice
    for wrong, message in (
        ((order, "bluered", tiling, words, forward), "'bluered', which this version of redblue does not have: plan again"),
        ((order, schedule, tiling, str(int(words) - 1), forward), f"moved {int(words) - 1} words .* moves {words} with this version"),
        ((order, schedule, [("Cr", 4, [])], words, forward), "no tile size Cr"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=message):
            type(core).__setstate__(type(core).__new__(type(core)), (*state, wrong))


def test_slopes_of_each_packed_sequence(rng):
    q, k, v = arrays(rng, (11, 2, 4), (13, 2, 4), (13, 2, 4))
    slopes = rng.random((3, 2), dtype=np.float32)
    at_q, at_k = [0, 3, 3, 11], [0, 5, 7, 13]
    o, lse, _ = redblue.flash_attn_varlen_func(q, k, v, at_q, at_k, causal=True, alibi_slopes=slopes, return_attn_probs=True)
    for s in range(3):
        i, j = slice(*at_q[s : s + 2]), slice(*at_k[s : s + 2])
        for h in range(2):
            offset = (at_k[s + 1] - at_k[s]) - (at_q[s + 1] - at_q[s])
            row, column = np.arange(at_q[s + 1] - at_q[s])[:, None] + offset, np.arange(at_k[s + 1] - at_k[s])
            one = (q[None, i, h], k[None, j, h], v[None, j, h])
            want = reference(*one, keep=column <= row, bias=-slopes[s, h] * abs(row - column))
            np.testing.assert_allclose(o[i, h], want[0][0], atol=2e-6)
            np.testing.assert_allclose(lse[h, i], want[1][0], atol=2e-6)
    used_q, used_k = [2, 0, 8], [5, 1, 3]
    options = {"causal": True, "alibi_slopes": slopes, "return_attn_probs": True}
    o_used, lse_used, _ = redblue.flash_attn_varlen_func(q, k, v, at_q, at_k, seqused_q=used_q, seqused_k=used_k, **options)
    assert not o_used[2].any() and (lse_used[:, 2] == -np.inf).all()
    for s in (0, 2):
        i, j = slice(at_q[s], at_q[s] + used_q[s]), slice(at_k[s], at_k[s] + used_k[s])
        alone = redblue.flash_attn_func(q[None, i], k[None, j], v[None, j], **{**options, "alibi_slopes": slopes[s]})
        np.testing.assert_allclose(o_used[i], alone[0][0], atol=2e-6)
        np.testing.assert_allclose(lse_used[:, i], alone[1][0], atol=2e-6)
    for wrong, text in (([2], r"seqused_k = \[2\]: give a length for each of 3"), ([6, 1, 3], r"seqused_k\[0\] = 6")):
        with pytest.raises(redblue.InvalidProblem, match=text):
            redblue.flash_attn_varlen_func(q, k, v, at_q, at_k, seqused_k=wrong, **options)
    views = [memoryview(x) for x in (q, k, v)]
    np.testing.assert_array_equal(redblue.flash_attn_varlen_func(*views, at_q, at_k, causal=True, alibi_slopes=memoryview(slopes)), o)
    for wrong, text in (((at_q, [0, 5, 7, 12]), "cu_seqlens_k"), ((at_q[1:], at_k), "cu_seqlens_q"), (([0, 11], [0, 13]), "alibi_slopes")):
        with pytest.raises(redblue.InvalidProblem, match=text):
            redblue.flash_attn_varlen_func(q, k, v, *wrong, alibi_slopes=slopes)


def test_patterns_take_whole_numbers_and_bools():
    floats = np.where(np.tri(3) > 0, 0, -np.inf)
    for make, text in (
        (lambda: redblue.patterns.mask(floats), "float64.*bool"),
        (lambda: redblue.patterns.blocks(6, 6, 2, 2, floats), "float64.*bool"),
        (lambda: redblue.patterns.csr(2, 3, [0, 1, 2], [1.0, 2.5]), "indices.*float64"),
        (lambda: redblue.patterns.csr(2, 3, [0, 1.9, 2], [1, 2]), "indptr.*float64"),
        (lambda: redblue.patterns.csr(2, 3, [[0, 1, 2]], [1, 2]), r"indptr.*\[1, 3\]"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=text):
            make()
    assert redblue.patterns.mask(np.tri(3, dtype=int)).pairs == 6
    assert redblue.patterns.csr(2, 3, [0, 0, 0], []).pairs == 0


def test_all_names_are_there_without_torch():
    script = "from redblue import *; import redblue, sys; assert 'torch' not in sys.modules; assert {'use', 'explore', 'plot'} <= set(dir(redblue))"
    run_python(script)
    pytest.importorskip("matplotlib")
    run_python("import redblue; redblue.plot.io_against_memory")


def test_shims_align_as_their_models_do(qkv):
    q, k, v = qkv
    o = redblue.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    np.testing.assert_allclose(o, reference(*qkv, keep=causal(19, 23, 0))[0], atol=2e-6)
    tokens = [x.swapaxes(1, 2) for x in qkv]
    o, lse, _ = redblue.flash_attn_func(*tokens, causal=True, window_size=(5, 0), return_attn_probs=True)
    i, j = np.arange(19)[:, None] + 4, np.arange(23)
    np.testing.assert_allclose(o.swapaxes(1, 2), reference(*qkv, keep=(j <= i) & (j >= i - 5))[0], atol=2e-6)
    assert lse.shape == (2, 4, 19)
    o = redblue.scaled_dot_product_attention(q, k, v * np.inf, dropout_p=1.0, enable_gqa=True)
    assert (o == 0).all() and not np.signbit(o).any()
    with pytest.raises(redblue.InvalidProblem, match="enable_gqa"):
        redblue.scaled_dot_product_attention(q, k, v)
    with pytest.raises(redblue.InvalidProblem, match="attn_mask"):
        redblue.scaled_dot_product_attention(q, q, q, np.ones((19, 19), bool), is_causal=True)
    with pytest.raises(redblue.InvalidProblem, match="window_size = 3"):
        redblue.flash_attn_func(*tokens, window_size=3)
    with pytest.raises(redblue.InvalidProblem, match="block_table"):
        redblue.flash_attn_varlen_func(q[0], q[0], q[0], [0, 4], [0, 4], block_table=q)


@pytest.mark.parametrize("given", [True, False])
def test_gradients(rng, given):
    """Against central differences of attention itself, in fp64."""
    q, k, v = arrays(rng, (1, 4, 7, 5), (1, 2, 9, 5), (1, 2, 9, 3), dtype=np.float64)
    bias, sinks = arrays(rng, (4, 7, 9), (4,), dtype=np.float64)
    (do,) = arrays(rng, (1, 4, 7, 3), dtype=np.float64)
    options = {"causal": True, "softcap": 2.0, "dropout": 0.2, "seed": 3}
    o, lse = redblue.attention(q, k, v, bias=bias, sinks=sinks, return_lse=True, **options)
    kept = (o, lse) if given else ()
    g = redblue.attention_backward(
        do, q, k, v, *kept, bias=bias, sinks=sinks, bias_gradient=True, sinks_gradient=True, **options
    )
    inputs = [q, k, v, bias, sinks]
    for x, dx in zip(inputs, g):
        assert dx.shape == x.shape and dx.dtype == x.dtype
        direction = rng.standard_normal(x.shape)
        step = 1e-5
        moved = [[y + s * step * direction if y is x else y for y in inputs] for s in (1, -1)]
        up, down = (redblue.attention(*m[:3], bias=m[3], sinks=m[4], **options) for m in moved)
        assert np.sum(dx * direction) == pytest.approx(np.sum((up - down) * do) / (2 * step), rel=1e-6, abs=1e-7)


def test_out_and_threads(qkv):
    out = np.empty((2, 4, 19, 6), np.float32)
    assert redblue.attention(*qkv, out=out) is out
    for dtype in (BF16, np.float16, np.float64):
        other = np.empty(out.shape, dtype)  # rounded once
        redblue.attention(*qkv, out=other)
        np.testing.assert_array_equal(other, out.astype(dtype))
    (do,) = arrays(np.random.default_rng(1), out.shape)
    given = redblue.Gradients(*(np.empty_like(x) for x in qkv))
    assert redblue.attention_backward(do, *qkv, out=given) is given
    assert all(np.array_equal(g, w) for g, w in zip(given[:3], redblue.attention_backward(do, *qkv)))
    with pytest.raises(redblue.InvalidProblem, match="dk"):
        redblue.attention_backward(do, *qkv, out=given._replace(dk=given.dv))
    for threads in (1, 2, 3):
        assert np.array_equal(redblue.attention(*qkv, threads=threads, M=4096), redblue.attention(*qkv, M=4096))


class OnlyDLPack:
    """An array of a library that has its own, as redblue sees it."""

    def __init__(self, x, device=(1, 0)):
        self.x, self.shape, self.dtype, self.device = x, x.shape, x.dtype, device

    def __dlpack__(self, **kwargs):
        return self.x.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.device

    def __array_namespace__(self):
        return type("Namespace", (), {"asarray": staticmethod(OnlyDLPack)})


def test_other_kinds_of_arrays(qkv):
    want = redblue.attention(*qkv)
    o = redblue.attention(*(OnlyDLPack(x) for x in qkv))
    assert type(o) is OnlyDLPack and np.array_equal(o.x, want)
    views = [memoryview(array.array("f", x.ravel())).cast("B").cast("f", x.shape) for x in qkv]
    assert np.array_equal(redblue.attention(*views), want)
    for x in qkv:
        x.flags.writeable = False
    assert np.array_equal(redblue.attention(*qkv), want)
    with pytest.raises(TypeError, match="device"):
        redblue.attention(*(OnlyDLPack(x, device=(2, 0)) for x in qkv))
    with pytest.raises(TypeError, match="q is a KeepsItsElements that does not give its elements by DLPack .not now"):
        redblue.attention(*map(KeepsItsElements, qkv))


class KeepsItsElements(OnlyDLPack):
    def __dlpack__(self, **options):
        raise BufferError("not now")


def test_refusals(qkv):
    q, k, v = qkv
    for wrong, error, text in (
        ((q.astype(object), k, v), TypeError, "object"),
        ((q.astype(np.int32),) * 3, TypeError, "int32"),
        ((q.astype(">f4"),) * 3, TypeError, r">f4.*astype\('float32'\)"),
        ((q.astype(BF16).astype(BF16.newbyteorder(">")),) * 3, TypeError, r"bfloat16.*astype\(ml_dtypes.bfloat16\)"),
        ((q.astype(np.float64), k, v), TypeError, "one type"),
        ((q.tolist(), k, v), TypeError, "list"),
        ((q, None, v), TypeError, "NoneType"),
        ((q[..., :7], k, v), redblue.InvalidProblem, "features"),
        ((q[:1], k, v), redblue.InvalidProblem, "batch"),
        ((q[:, :3], k, v), redblue.InvalidProblem, "heads"),
        ((q, k, v[:, :, :9]), redblue.InvalidProblem, "sequence"),
        ((q[0], k, v), redblue.InvalidProblem, "dimensions"),
        ((q[..., :0], k[..., :0], v), redblue.InvalidProblem, "d = 0"),
        ((q[:0, ..., :0], k[:0, ..., :0], v[:0]), redblue.InvalidProblem, "d = 0"),
        ((q, k[:, :0], v[:, :0]), redblue.InvalidProblem, "kv_heads"),
        ((q.astype(bool),) * 3, TypeError, "bool"),
        ((q, np.ma.masked_less(k, 0), v), TypeError, "masked"),
        ((np.float32(1),) * 3, TypeError, "float32"),
        ((np.array(1, np.float32),) * 3, redblue.InvalidProblem, "dimensions"),
    ):
        with pytest.raises(error, match=text):
            redblue.attention(*wrong)
    unaligned = np.frombuffer(bytearray(q.nbytes + 1), np.uint8, offset=1).view(np.float32).reshape(q.shape)
    read_only = np.empty((2, 4, 19, 6), np.float32)
    read_only.flags.writeable = False
    for options, error, text in (
        ({"out": read_only}, redblue.InvalidProblem, "out is read-only"),
        ({"out": np.empty((2, 4, 19, 8), np.float32)}, redblue.InvalidProblem, "out is"),
        ({"out": np.broadcast_to(np.float32(0), (2, 4, 19, 6))}, redblue.InvalidProblem, "read-only"),
        ({"bias": np.zeros((18, 23), np.float32)}, redblue.InvalidProblem, "bias"),
        ({"bias": np.zeros((19, 23), int)}, TypeError, r"bias .* become a mask by \.astype\(bool\)"),
        ({"alignment": "left"}, redblue.InvalidProblem, "alignment"),
        ({"layout": "sbhd"}, redblue.InvalidProblem, "layout"),
        ({"window": 3}, redblue.InvalidProblem, "window"),
        ({"window": (-3, 1)}, redblue.InvalidProblem, r"window = \(-3, 1\)"),
        ({"tolerance": 0.0}, redblue.InvalidProblem, "tolerance"),
        ({"schedule": "flush"}, redblue.InvalidProblem, "flush"),
        ({"M": 2}, redblue.CapacityError, "needs"),
        ({"max_workspace": 1}, MemoryError, "bytes"),
        ({"M": 4096, "memory": 4096}, redblue.InvalidProblem, "give one"),
        ({"compute": "f16"}, redblue.Unsupported, "f16"),
        ({"threads": -1}, redblue.InvalidProblem, "threads"),
        ({"widow": 1}, TypeError, "widow.*mean 'window'"),
        ({"causal": "no"}, redblue.InvalidProblem, "causal = 'no'"),
        ({"window": (1.5, 2)}, redblue.InvalidProblem, "left edge = 1.5"),
        ({"prefix": 1.5}, redblue.InvalidProblem, "prefix = 1.5"),
        ({"alignment": 1 << 70}, redblue.InvalidProblem, "alignment"),
        ({"scale": "x"}, redblue.InvalidProblem, "scale = 'x'"),
        ({"scale": np.ones(())}, redblue.InvalidProblem, "scale"),
        ({"layout": []}, redblue.InvalidProblem, "layout"),
        ({"M": 1e6}, redblue.InvalidProblem, "M = 1000000.0"),
        ({"threads": "2"}, redblue.InvalidProblem, "threads = '2'"),
        ({"schedule": 3}, redblue.InvalidProblem, "schedule = 3"),
        ({"compute": np.float32}, redblue.InvalidProblem, "compute"),
        ({"approximate": 2}, redblue.InvalidProblem, "approximate = 2"),
        ({"tolerance": "0.1"}, redblue.InvalidProblem, "tolerance"),
        ({"pattern": np.eye(4)}, redblue.InvalidProblem, "redblue.patterns"),
        ({"pattern": redblue.patterns.window(19, 23, 1, 1), "order": "z"}, redblue.InvalidProblem, "jaccard"),
        ({"dropout": 0.5, "seed": -1}, redblue.InvalidProblem, "seed = -1"),
        ({"dropout": 0.5, "seed": 1.5}, redblue.InvalidProblem, "seed = 1.5"),
        ({"seqused_k": [2.5, 3]}, redblue.InvalidProblem, "seqused_k.*whole numbers"),
        ({"cu_seqlens_q": 3}, redblue.InvalidProblem, "cu_seqlens_q = 3"),
        ({"cu_seqlens_q": [0, 2**80]}, redblue.InvalidProblem, rf"cu_seqlens_q = \[0, {2**80}\].*63 bits"),
    ):
        with pytest.raises(error, match=text):
            redblue.attention(q, k, v, **options)
    with pytest.raises(redblue.InvalidProblem, match="bias is of bool and has no gradient"):
        redblue.attention_backward(q[..., :6], q, k, v, bias=np.ones((19, 23), bool), bias_gradient=True)
    with pytest.raises(TypeError, match="q is a list"):
        redblue.scaled_dot_product_attention(q.tolist(), k.tolist(), v.tolist())
    with pytest.raises(redblue.InvalidProblem, match="aligned"):
        redblue.attention(unaligned, unaligned, unaligned)
    with pytest.raises(redblue.InvalidProblem, match="both"):
        redblue.attention_backward(q, q, q, q, q)


@pytest.mark.parametrize("zero", ["batch", "heads", "n_q", "n_k", "d_v"])
def test_sizes_of_zero_are_computed(rng, zero):
    """No query: nothing; no key: o = 0, lse as where a mask hides all keys; and gradients of 0."""
    size = {"batch": 2, "heads": 4, "n_q": 5, "n_k": 6, "d_v": 3, zero: 0}
    b, h, n_q, n_k, d_v = (size[name] for name in ("batch", "heads", "n_q", "n_k", "d_v"))
    q, k, v = (rng.standard_normal(s, dtype=np.float32) for s in ((b, h, n_q, 8), (b, h // 2, n_k, 8), (b, h // 2, n_k, d_v)))
    sinks = rng.standard_normal(h, dtype=np.float32)
    for options in ({}, {"sinks": sinks}):
        o, lse = redblue.attention(q, k, v, causal=True, return_lse=True, **options)
        assert o.shape == (b, h, n_q, d_v) and lse.shape == (b, h, n_q) and not o.any()
        if zero == "n_k":
            key, value = np.ones((2, 2, 1, 8), np.float32), np.ones((2, 2, 1, 3), np.float32)
            hidden = redblue.attention(q, key, value, bias=np.zeros((1, 1), bool), return_lse=True, **options)
            np.testing.assert_array_equal(lse, hidden[1])
        gradients = redblue.attention_backward(o, q, k, v, o, lse, sinks_gradient="sinks" in options, **options)
        for g, x in zip(gradients, (q, k, v, None, sinks)):
            assert g is None or (g.shape == x.shape and not g.any())
    assert redblue.scores(q, k).shape == (b, h, n_q, n_k) or zero == "d_v"
    if zero != "d_v":
        with pytest.raises(redblue.InvalidProblem, match="a size is 0"):
            redblue.explain(q, k, v)
    with pytest.raises(redblue.InvalidProblem, match="out is"):
        redblue.attention(q, k, v, out=np.empty((1, 1, 1, 1), np.float32))


def test_what_does_not_fit_a_size_of_zero_is_refused():
    q, k = np.ones((1, 2, 3, 8), np.float32), np.ones((1, 2, 0, 8), np.float32)
    for fits in (
        {"bias": np.zeros((3, 0), bool)},
        {"bias": np.zeros((2, 1, 1), np.float32)},
        {"sinks": np.zeros((1, 2, 1, 1), np.float32)},
        {"seqused_k": [0], "seqused_q": [2]},
        {"cu_seqlens_q": [0, 1, 3], "cu_seqlens_k": [0, 0, 0]},
        {"cu_seqlens_q": [0, 1, 3], "cu_seqlens_k": [0, 0, 0], "seqused_q": [1, 0], "seqused_k": [0, 0]},
        {"causal": True, "prefix": 2},
    ):
        assert not redblue.attention(q, k, k, **fits).any()
    for options, text in (
        ({"bias": np.zeros((7, 9), np.float32)}, r"bias is \[7, 9\]: give what broadcasts to \[1, 2, 3, 0\]"),
        ({"alibi_slopes": np.zeros(9, np.float32)}, r"alibi_slopes is \[9\]: give \[heads\]"),
        ({"sinks": np.zeros((3, 2), np.float32)}, r"sinks is \[3, 2\]"),
        ({"seqused_k": [7]}, r"seqused_k = \[7\]: give a length from 0 to 0"),
        ({"seqused_q": [1, 1]}, r"seqused_q = \[1, 1\].* 1 batches"),
        ({"cu_seqlens_q": [0, 1], "cu_seqlens_k": [0, 0]}, "cu_seqlens_q"),
        (
            {"cu_seqlens_q": [0, 1, 3], "cu_seqlens_k": [0, 0, 0], "seqused_q": [1, 3]},
            r"seqused_q = \[1, 3\]: give a length for each packed sequence, at most \[1, 2\]",
        ),
        ({"softcap": -1.0}, "softcap = -1"),
        ({"prefix": 2}, "prefix = 2"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=text):
            redblue.attention(q, k, k, **options)
    with pytest.raises(redblue.InvalidProblem, match="heads = 3 is not a multiple"):
        redblue.attention(np.ones((1, 3, 3, 8), np.float32), k, k)
    for wrong, given in (("do", (q[0, 0], None, None)), ("o", (q, k, q[..., 0])), ("lse", (q, q, q[..., :2, 0]))):
        do, o, lse = given
        with pytest.raises(redblue.InvalidProblem, match=f"{wrong} is"):
            redblue.attention_backward(do, q, k, k, o, lse)
    with pytest.raises(redblue.InvalidProblem, match="out.dk is"):
        redblue.attention_backward(q, q, k, k, out=redblue.Gradients(q.copy(), q.copy(), k.copy()))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_lse_is_that_of_keys_without_values(qkv, layout):
    """d_v = 0: there is no output, and lse does not depend on it."""
    q, k, v = qkv if layout == "bhsd" else (x.swapaxes(1, 2) for x in qkv)
    for options in ({}, {"sinks": np.arange(4, dtype=np.float32)}, {"bias": np.eye(19, 23, dtype=np.float32), "seqused_k": [23, 0]}):
        o, lse = redblue.attention(q, k, v[..., :0], layout=layout, return_lse=True, **options)
        assert o.shape == (*q.shape[:-1], 0)
        np.testing.assert_allclose(lse, redblue.attention(q, k, v, layout=layout, return_lse=True, **options)[1], rtol=2e-6)


def test_sinks_of_all_shapes_are_the_lse_of_no_keys(rng):
    q, k = rng.standard_normal((2, 3, 5, 8), dtype=np.float32), np.ones((2, 3, 0, 8), np.float32)
    (sinks,) = arrays(rng, (3,))
    want = np.broadcast_to(sinks[:, None], (2, 3, 5))
    for shape in ((3,), (1, 3), (1, 3, 1, 1)):
        np.testing.assert_array_equal(redblue.attention(q, k, k, sinks=sinks.reshape(shape), return_lse=True)[1], want)
    one = redblue.attention(q[0, 0], k[0, 0], k[0, 0], sinks=sinks[:1], return_lse=True)[1]
    np.testing.assert_array_equal(one, np.full(5, sinks[0]))
    of_batches = rng.standard_normal((2, 3), dtype=np.float32)
    lse = redblue.attention(q, k, k, sinks=of_batches, return_lse=True)[1]
    np.testing.assert_array_equal(lse, np.broadcast_to(of_batches[..., None], lse.shape))


@pytest.mark.parametrize("name", ["bias", "alibi_slopes", "sinks"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_a_modifier_that_makes_rows_nan_is_refused_and_named(rng, name, bad, dtype):
    q, k, v = arrays(rng, *[(2, 3, 5, 4)] * 3, dtype=dtype)
    x = np.zeros({"bias": (3, 5, 5)}.get(name, (3,)), dtype)
    at = (1, 2, 3)[: x.ndim] if name == "bias" else (1,)
    x[at] = bad
    if bad == -np.inf and name != "alibi_slopes":  # hides a key, or is no sink
        assert np.isfinite(redblue.attention(q, k, v, **{name: x}).astype(np.float32)).all()
        return
    with pytest.raises(redblue.InvalidProblem, match=rf"{name} has {bad} at \[{', '.join(map(str, at))}\]"):
        redblue.attention(q, k, v, **{name: x})
    if name == "bias":  # one that nobody sees does not matter
        assert np.isfinite(redblue.attention(q, k, v, bias=x, causal=True).astype(np.float32)).all()
    v[0, 0, 0, 0] = np.nan  # of one of the arrays themselves it passes on
    x[at] = 0
    assert np.isnan(redblue.attention(q, k, v, **{name: x}).astype(np.float32)).any()


def test_sinks_and_slopes_may_have_four_dimensions(qkv):
    x, do = np.array([0.5, 1.0, -1.0, 2.0], np.float32), np.ones((2, 4, 19, 6), np.float32)
    for name in ("sinks", "alibi_slopes"):
        want = redblue.attention_backward(do, *qkv, sinks_gradient=name == "sinks", **{name: x})
        got = redblue.attention_backward(do, *qkv, sinks_gradient=name == "sinks", **{name: x.reshape(1, 4, 1, 1)})
        for g, w in zip(got, want):
            assert w is None or np.array_equal(g.reshape(w.shape), w)
        assert name != "sinks" or got.dsinks.shape == (1, 4, 1, 1)
    with pytest.raises(redblue.InvalidProblem, match="sinks has 3 dimensions"):
        redblue.attention(*qkv, sinks=x.reshape(4, 1, 1))


def test_a_bias_has_a_gradient_without_products(rng):
    """scale = 0: scores are those of the bias alone, and dq and dk are 0."""
    q, k, v, do, bias = arrays(rng, (2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 3), (2, 4, 5, 3), (4, 5, 6), dtype=np.float64)
    g = redblue.attention_backward(do, q, k, v, bias=bias, scale=0.0, bias_gradient=True)
    p = np.exp(bias - np.log(np.exp(bias).sum(-1, keepdims=True)))
    dp = do @ np.repeat(v, 2, 1).swapaxes(-1, -2)
    want = (p * (dp - (p * dp).sum(-1, keepdims=True))).sum(0)
    np.testing.assert_allclose(g.dbias, want, atol=1e-13)
    assert not g.dq.any() and not g.dk.any()
    o, lse = redblue.attention(q, k, v, bias=bias, scale=0.0, return_lse=True)
    given = redblue.attention_backward(do, q, k, v, o, lse, bias=bias, scale=0.0, bias_gradient=True)
    np.testing.assert_allclose(given.dbias, want, atol=1e-13)
    np.testing.assert_allclose(given.dv, redblue.attention_backward(do, 0 * q, k, v, bias=bias).dv, atol=1e-13)


def test_a_plan_says_which_of_its_sizes_is_wrong():
    for options, error, text in (
        ({"n": 3}, redblue.InvalidProblem, "and d"),
        ({"n": 3.5, "d": 4}, redblue.InvalidProblem, "n = 3.5"),
        ({"n": 3, "d": 4, "bias": 3}, redblue.InvalidProblem, "bias = 3"),
        ({"n": 3, "d": 4, "op": "bckward"}, redblue.InvalidProblem, "forward, backward"),
        ({"n": 3, "d": 4, "kvheads": 2}, TypeError, "kv_heads"),
    ):
        with pytest.raises(error, match=text):
            redblue.plan(**options)


def test_outputs_may_not_overlap_inputs(rng):
    (x,) = arrays(rng, (1, 2, 16, 8))
    with pytest.raises(redblue.InvalidProblem):
        redblue.attention(x, x, x, out=x)


def test_plan_bound_count_are_those_of_the_program():
    sizes = {"n": 512, "d": 64, "heads": 4, "M": 4096}
    theirs = answer("plan", *(f"--{name}={value}" for name, value in sizes.items()))
    ours = redblue.plan(**sizes)
    assert [(r["schedule"], r["tiling"], r["io"]) for r in ours.rows] == [
        (r["schedule"], r["tiling"], r["io"]) for r in theirs["plans"]
    ]
    assert ours.io == ours.count()["io"] == redblue.count(**sizes)["io"]
    proved = [b["words"] for b in redblue.bound(**sizes) if b["status"] == "proved" and b["holds"]]
    with pytest.raises(redblue.InvalidProblem, match="schedule, multiple: a bound holds for any schedule"):
        redblue.bound(**sizes, schedule="flash", multiple={"q": 16})
    assert ours.bound == max(proved) and ours.ratio == pytest.approx(ours.io / ours.bound)
    json.dumps(ours.to_dict())
    assert ours.schedule in repr(ours) and f"{ours.io:,}" in repr(ours)
    assert ours._repr_html_().count("<tr>") == len(ours.rows) + 1
    backward = redblue.plan("backward", forward_given=False, **sizes)
    assert backward.forward["operation"] == "forward" and "after a forward pass" in repr(backward)


@pytest.mark.parametrize("n, largest_score, tolerance", [(65536, 0.5, 1e-2), (64, 5, 1e-2), (4096, 60, 1e-3)])
def test_plan_answers_a_tolerance_as_the_program_does(n, largest_score, tolerance):
    sizes = {"n": n, "d": 16, "M": 16384, "tolerance": tolerance, "range": largest_score}
    theirs = answer("plan", *(f"--{name}={value}" for name, value in sizes.items()))
    ours = redblue.plan(**sizes)
    assert ours.decision == theirs["tolerance"]["reason"] and ours.decision in repr(ours)
    assert [(r["schedule"], r["tiling"], r["io"]) for r in ours.rows] == [
        (r["schedule"], r["tiling"], r["io"]) for r in theirs["plans"]
    ]
    assert ours.schedule.startswith("polynomial") == (largest_score == 0.5)
    assert redblue.plan(n=n, d=16, M=16384).decision is None
    if largest_score == 0.5:
        assert redblue.count(**sizes)["io"] == ours.io
        assert redblue.plan(n=n, d=16, tolerance=tolerance, range=largest_score).decision  # of least time


@pytest.mark.parametrize("options, error, text", [
    ({"tolerance": 0.1}, redblue.InvalidProblem, "tolerance and range: give both"),
    ({"range": 1.0}, redblue.InvalidProblem, "tolerance and range: give both"),
    ({"tolerance": 1, "range": 1}, redblue.InvalidProblem, "tolerance = 1: give a number above 0 and below 1"),
    ({"tolerance": 0.1, "range": 0}, redblue.InvalidProblem, "range = 0: give a number above 0"),
    ({"tolerance": 0.1, "range": float("nan")}, redblue.InvalidProblem, "range = nan: give a number above 0"),
    ({"tolerance": 0.1, "range": "1"}, redblue.InvalidProblem, "range = '1': give a plain number"),
    ({"tolerance": 0.1, "range": 1, "approximate": "2:1"}, redblue.InvalidProblem, "give one of them; tolerance finds the degree"),
    ({"tolerance": 0.1, "range": 1, "op": "backward"}, redblue.InvalidProblem, "nothing is proved of 'backward'"),
    ({"tolerance": 0.1, "range": 1, "dtype": "bf16", "compute": "bf16"}, redblue.Unsupported, "nothing is proved of products of bf16"),
])  # fmt: skip
def test_a_tolerance_without_arrays_is_judged(options, error, text):
    with pytest.raises(error, match=text):
        redblue.plan(n=64, d=4, M=1000, **options)


def test_explain_says_what_a_backward_pass_runs(qkv):
    """With the modifiers, the arithmetic and the recognised masks of that pass, from its o and lse."""
    q, k, v = qkv
    bias = np.random.default_rng(1).normal(size=(q.shape[2], k.shape[2])).astype(q.dtype)
    p = redblue.explain(q, k, v, op="backward", M=2000, bias=bias, bias_gradient=True)
    assert p.operation == "backward" and p.forward is None and p.written_by_array["dBias"] > 0
    bf16 = [x.astype(BF16) for x in qkv]
    assert redblue.explain(*bf16, op="backward", M=2000).compute == "bf16"
    x = np.ones((1, 4, 256, 8), np.float32)  # small masks are not looked at
    assert redblue.explain(x, x, x, op="backward", M=2000, bias=np.tri(256, dtype=bool)).decision.endswith("and runs as that")
    for wrong in ({"op": "scores"}, {"bias_gradient": True}, {"op": "backward", "return_lse": True}, {"op": "backward", "tolerance": 0.1}):
        with pytest.raises(redblue.InvalidProblem):
            redblue.explain(q, k, v, **wrong)


def test_plans_know_index_words_and_the_dense_way():
    seen = np.random.default_rng(2).random((96, 96)) < 0.1
    p = redblue.plan(n=96, d=8, M=1000, pattern=redblue.patterns.mask(seen), dropout=0.1, seed=3)
    assert p.index_words > 0 and p.index_footprint > 0 and p.dense["io"] > p.io
    assert redblue.plan(n=96, d=8, M=1000, window=(8, 0)).index_words == 0
    with pytest.raises(redblue.InvalidProblem, match="seed = -1"):
        redblue.plan(n=96, d=8, M=1000, dropout=0.1, seed=-1)


def test_a_tolerance_is_of_exact_arithmetic():
    """explain and certify say what is proved of the numbers that are written."""
    q, k, v = (np.random.default_rng(0).normal(size=(1, 2, 4096, 16)).astype(np.float32) for _ in "qkv")
    found = redblue.certify(q / 12, k, v, tolerance=1e-3, M=4000)
    written = float(re.search(r"of the numbers that are written (\S+) max", found["decision"])[1])
    assert written > found["output_error"] and written == pytest.approx(found["output_error"] + found["rounding"], rel=1e-2)
    assert redblue.explain(q / 12, k, v, tolerance=1e-3, M=4000).decision == found["decision"]


def test_explain_says_what_runs(qkv):
    p = redblue.explain(*qkv, M=600, schedule="flash")
    assert p.schedule == "flash" and p.M == 600 and p.footprint <= 600
    assert p.compute == "f32" and p.sizes["kv_heads"] == 2
    bf16 = [x.astype(BF16) for x in qkv]
    assert redblue.explain(*bf16, M=600).compute == "bf16" and redblue.explain(*bf16, compute="f32").compute == "f32"
    with pytest.raises(AttributeError, match="schedule"):
        p.shedule


def test_plans_of_least_time_compute_bf16_in_the_faster_type(tmp_path):
    file = tmp_path / "redblue" / "hardware.json"
    subprocess.run([sys.executable, "-m", "redblue", "doctor", "--output", str(tmp_path / "here.json"), "--quiet"], check=True)
    here = json.loads((tmp_path / "here.json").read_text())
    bf16 = [p for p in here["peaks"] if p["dtype"] == "bf16"]
    if not bf16:
        pytest.skip("this processor has no products of bf16")
    file.parent.mkdir()
    code = """import ml_dtypes, numpy as np, redblue
q = np.ones((1, 1, 16, 8), ml_dtypes.bfloat16)
print(redblue.explain(q, q, q).compute, redblue.explain(q, q, q, M=600).compute)"""
    fp32 = max(p["flops"] for p in here["peaks"] if p["dtype"] == "f32")
    for times, wanted in ((6, "bf16"), (0.5, "f32")):  # products reach a third of the peak of matrix tiles
        for p in bf16:
            p["flops"] = times * fp32
        file.write_text(json.dumps(here))
        assert run_python(code, XDG_CONFIG_HOME=str(tmp_path)).split() == [wanted, "bf16"]


@pytest.mark.parametrize(
    "name, good, bad",
    [("M", 300, 300.0), ("memory", 4000, 4000.0), ("max_workspace", 10**6, 1e6), ("prefix", 2, 2.0), ("dilation", 1, 1.0),
     ("threads", 1, 1.0), ("window", (2, 0), (2.0, 0.0)), ("causal", True, 1.0), ("alignment", 1, True), ("scale", 0.5, Decimal("0.5")),
     ("softcap", 3.0, Decimal(3)), ("return_lse", True, 1.0)],
)  # fmt: skip
def test_what_is_refused_is_refused_after_a_call_with_an_equal_value(qkv, name, good, bad):
    options = {} if name in ("window", "dilation") else {"causal": True}
    for _ in range(2):
        with pytest.raises(redblue.InvalidProblem, match=name):
            redblue.attention(*qkv, **{**options, name: bad})
        redblue.attention(*qkv, **{**options, name: good})


def test_a_call_that_is_found_again_is_that_of_its_arrays_and_options(qkv):
    """Options that are plain values find their call without a look at each: other shapes, types, options and numbers of threads
    find another, and arrays among the options none."""
    q, k, v = qkv
    calls = [{}, {"causal": True}, {"causal": True, "alignment": "top-left"}, {"scale": 0.5}, {"softcap": 2.0}, {"dropout": 0.5, "seed": 3},
             {"dropout": 0.5, "seed": 4}, {"threads": 1}, {"return_lse": True}, {"approximate": "linear"}, {"tolerance": 0.5}]  # fmt: skip
    arrays = [(q, k, v), (q[:, :, :3], k, v), (q, k[:, :, :3], v[:, :, :3]), tuple(x.astype("f2") for x in qkv), tuple(x.astype("f8") for x in qkv)]

    def results():
        return [redblue.attention(*a, **options) for a in arrays for options in calls]

    redblue._call.calls._as_given.clear()
    first = results()
    assert len(redblue._call.calls._as_given) == len(arrays) * (len(calls) - 3)  # no seeds, no tolerance
    for x, y in zip(first, results()):
        for a, b in zip(*((z if isinstance(z, tuple) else (z,)) for z in (x, y))):
            assert a.dtype == b.dtype and np.array_equal(a, b)
    known = len(redblue._call.calls._as_given)
    redblue.attention(*qkv, bias=np.zeros((1, 1), "f4"))
    assert len(redblue._call.calls._as_given) == known


@pytest.mark.parametrize("wrong", [[], {}, np.array(True)])
def test_what_has_no_hash_is_refused_by_name(qkv, wrong):
    with pytest.raises(redblue.InvalidProblem, match="return_lse"):
        redblue.attention(*qkv, return_lse=wrong)


def test_a_bias_beyond_the_arithmetic_is_no_number_of_it(qkv):
    bias = np.zeros((19, 23))
    bias[3, 4] = 1e300
    with pytest.raises(redblue.InvalidProblem, match=r"bias has 1e\+300 at \[3, 4\]"):
        redblue.attention(*qkv, bias=bias)
    q, k, v = (x.astype("f8") for x in qkv)
    o = redblue.attention(q, k, v, bias=bias)
    assert np.allclose(o[:, :, 3], np.repeat(v[:, :, 4], 2, axis=1))


def test_memory_of_the_last_run_is_no_measure_of_the_next(qkv):
    """Runs of one plan take the memory of the run before, unless their arrays lie in another way: these take more, or less."""
    from redblue._attention import request
    from redblue._call.calls import call_for

    wide = [np.repeat(x, 2, axis=-1)[..., ::2] for x in qkv]
    assert all(np.array_equal(x, y) for x, y in zip(wide, qkv))
    want, taken = redblue.attention(*qkv, causal=True, threads=1), []
    for arrays in (qkv, wide, qkv, [*qkv[:2], wide[2]], qkv):
        r = request(*arrays, causal=True, threads=1)
        call = call_for("forward", r.family, r.q, r.k, r.v, r.settings, (False,))
        o = np.full_like(want, np.nan)
        taken.append(call.plan.run(r.arrays(o), call.tokens_first, 0, True)["bytes"])
        assert np.array_equal(o, want)
    assert taken[0] == taken[2] == taken[4] < taken[3] < taken[1]


def test_gradients_of_bf16_multiply_in_bf16_where_they_can(qkv, monkeypatch):
    """On a machine that multiplies it fast, by default as with compute="bf16"; with modifiers and without o in fp32. The strides of dO change nothing."""
    q, k, v = (x.astype(BF16) for x in qkv)
    o, lse = redblue.attention(q, k, v, causal=True, return_lse=True)
    do = np.random.default_rng(5).normal(size=o.shape).astype(BF16)
    same = lambda a, b: all(np.array_equal(x, y) for x, y in zip(a[:3], b[:3]))
    run = lambda do=do, o=o, lse=lse, **options: redblue.attention_backward(do, q, k, v, o, lse, causal=True, **options)
    monkeypatch.setattr(redblue._call.calls._core, "bf16_is_faster", lambda: True)
    monkeypatch.setattr(redblue._call.calls, "_calls", {})
    assert same(run(), run(compute="bf16"))
    exact = redblue.attention_backward(*(x.astype("f8") for x in (do, q, k, v)), causal=True)
    for gradient, right in zip(run()[:3], exact[:3]):
        assert gradient.dtype == BF16 and np.abs(gradient.astype("f8") - right).max() < 0.02 * np.abs(right).max()
    sinks = np.zeros(q.shape[-3], BF16)
    for options in ({"alibi_slopes": np.full(q.shape[-3], 0.1, "f4")}, {"softcap": 9.0}, {"sinks": sinks}, {"dropout": 0.1, "seed": 3}):
        assert same(run(**options), run(compute="f32", **options)), options
    strided = np.repeat(do, 2, -1)[..., ::2]
    assert same(run(strided), run()) and same(run(strided, compute="bf16"), run())
    assert same(run(o=None, lse=None), run(o=None, lse=None, compute="f32"))


def test_a_plan_has_the_loop_nest_that_the_program_prints():
    p = redblue.plan(n=40, d=8, M=600)
    text = did(*"explain --n 40 --d 8 --M 600".split())
    assert p.loop_nest == text and "load q = Q" in text
    assert "<pre>" + p.loop_nest.replace("<", "&lt;")[:20] in p._repr_html_()

    # The printed algorithm of Saha and Ye is listed, and not stable, so that it is not chosen.
    plans = answer(*"plan --n 40 --d 8 --M 600".split())["plans"]
    chosen = {row["schedule"]: row["may_be_chosen"] for row in p.rows}
    assert chosen[p.schedule] and not chosen["saha_ye"]
    assert {row["schedule"]: row["may_be_chosen"] for row in plans} == chosen


def test_a_notebook_does_not_walk_through_long_schedules():
    assert "plan.loop_nest" in redblue.plan(n=100_000, d=8, M=600, causal=True)._repr_html_()


@pytest.mark.parametrize("options", [{"approximate": "2:0.8"}, {"tolerance": 0.1}], ids=str)
def test_approximations_give_no_lse(qkv, options):
    with pytest.raises(redblue.InvalidProblem, match="no lse"):
        redblue.attention(*qkv, return_lse=True, **options)


def test_a_tolerance_is_kept(rng):
    q, k, v = arrays(rng, (1, 1, 2048, 4), (1, 1, 2048, 4), (1, 1, 2048, 4))
    q *= 0.2
    options = {"tolerance": 1e-2, "M": 1024}
    c = redblue.certify(q, k, v, **options)
    assert c["method"] == "polynomial" and c["degree"] > 0 and c["output_error"] <= 1e-2, c["decision"]
    assert redblue.explain(q, k, v, **options).method == "polynomial"
    o = redblue.attention(q, k, v, **options)
    allowed = (c["output_error"] + c["rounding"]) * np.abs(v).max()
    assert np.abs(o - reference(q, k, v)[0]).max() <= allowed
    assert not np.array_equal(o, redblue.attention(q, k, v, M=1024))
    exact = redblue.certify(100 * q, k, v, **options)
    assert exact["method"] == "exact" and "exact attention" in exact["decision"]
    assert np.array_equal(redblue.attention(100 * q, k, v, **options), redblue.attention(100 * q, k, v, M=1024))


@pytest.mark.parametrize("options", [{}, {"approximate": "2:1.0"}, {"tolerance": 0.1}])
def test_nothing_is_proved_of_products_of_bf16(qkv, options):
    bf16 = [(0.1 * x).astype(BF16) for x in qkv]
    redblue.certify(*bf16, compute="f32", **options)
    with pytest.raises(redblue.Unsupported, match="bf16.*certificates are for"):
        redblue.certify(*bf16, compute="bf16", **options)
    if "tolerance" in options:
        with pytest.raises(redblue.Unsupported, match="bf16.*certificates are for"):
            redblue.attention(*bf16, compute="bf16", **options)


def _same(x, want):
    return np.array_equal(redblue.attention(*x, threads=2), want)


def test_fork(rng):
    """The threads of the pool are gone in a child, which makes its own."""
    x = arrays(rng, (2, 4, 256, 32), (2, 4, 256, 32), (2, 4, 256, 32))
    want = redblue.attention(*x, threads=2)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert all(pool.starmap_async(_same, [(x, want)] * 4).get(timeout=60))


def test_a_long_run_can_be_interrupted(rng):
    (q,) = arrays(rng, (1, 1, 12000, 64))
    redblue.attention(q[:, :, :100], q, q, schedule="naive", M=600)  # what it is made of is loaded
    out = np.full_like(q, np.nan)
    with interrupted_after(0.5):
        redblue.attention(q, q, q, schedule="naive", M=600, out=out)
    assert np.isnan(out).any()  # Python heeds the signal after a run that ends, too
    assert np.isfinite(redblue.attention(q[:, :, :100], q, q)).all()


def test_python_threads_at_once(rng):
    x = arrays(rng, (1, 4, 128, 32), (1, 4, 128, 32), (1, 4, 128, 32))
    wanted = {n: redblue.attention(*(a[:, :, :n] for a in x)) for n in (64, 96, 128)}

    def work(_):
        for _ in range(30):
            for n, o in wanted.items():
                assert np.array_equal(o, redblue.attention(*(a[:, :, :n] for a in x)))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


def test_the_lock_of_the_interpreter_is_free_during_a_run(rng):
    x = arrays(rng, (1, 8, 1024, 64), (1, 8, 1024, 64), (1, 8, 1024, 64))
    redblue.attention(*x)
    running, seen = [True], 0
    run = threading.Thread(target=lambda: (redblue.attention(*x), running.clear()))
    run.start()
    while running:
        seen += 1
        time.sleep(0)
    run.join()
    assert seen > 20


def test_many_small_calls_are_cheap_and_leave_nothing(rng):
    """20,000 calls; the fastest hundred in a row take less than 20 us of CPU each on an idle machine, twice that in CI."""
    (x,) = arrays(rng, (1, 1, 16, 64))
    best = float("inf")

    def calls(hundreds):
        nonlocal best
        for _ in range(hundreds):
            start = time.process_time()
            for _ in range(100):
                redblue.attention(x, x, x)
            best = min(best, (time.process_time() - start) / 100)

    calls(20)
    before = resident()
    calls(200)
    assert resident() - before < 512 << 10
    assert best < 40e-6


def test_a_machine_without_a_home_is_measured_once(monkeypatch, caplog):
    measured = []
    monkeypatch.setattr(calls._core, "has_hardware_file", lambda: False)
    monkeypatch.setattr(calls._core, "hardware_path", lambda: "")
    monkeypatch.setattr(calls._core, "measure_machine", measured.append)
    monkeypatch.setattr(calls, "_measured", False, raising=False)
    for _ in range(3):
        calls.measure_once()
    assert measured == [""] and caplog.text.count("a few seconds") == 1


def test_plans_that_are_kept_are_limited(rng):
    x = arrays(rng, (1, 1, 8, 4), (1, 1, 8, 4), (1, 1, 8, 4))
    for i in range(calls.MOST_PLANS + 5):
        redblue.attention(*x, M=256, scale=1 + i / 1000)
    assert len(calls._calls) == calls.MOST_PLANS


def test_a_plan_does_not_change():
    plan = redblue.plan(n=64, d=8, M=500)
    io, tiling = plan.io, plan.to_dict()["tiling"]
    plan.to_dict()["tiling"]["x"] = plan.tiling["x"] = plan.rows[0]["x"] = 9
    for name in ("io", "tiling", "loop_nest", "new"):
        with pytest.raises(AttributeError, match=f"{name} of a plan cannot be set"):
            setattr(plan, name, 3)
    assert plan.io == io and plan.tiling == tiling and "x" not in plan.rows[0] and plan.loop_nest


def test_certify_can_be_interrupted():
    q = np.full((1, 1, 1 << 20, 64), 0.01, np.float32)  # takes some seconds
    for f, options in ((redblue.certify, {"approximate": "2:1"}), (redblue.attention, {"tolerance": 1e-2})):
        small = q[:, :, :1024]
        f(small, small, small, M=16384, **options)  # what it is made of is loaded
        start = time.monotonic()
        with interrupted_after(0.3):
            f(q, q, q, M=16384, **options)
        assert time.monotonic() - start < 1.5


@pytest.mark.parametrize("options, says", [
    ({"seed": "x", "dropout": 0.0}, "seed = 'x': give a whole number"), ({"seed": -1}, "seed = -1"), ({"seed": 1.5, "dropout": 0.1}, "seed = 1.5"),
    ({"seqused_q": []}, "seqused_q is empty: give a length for each"), ({"seqused_k": np.zeros(0, int)}, "seqused_k is empty"),
    ({"cu_seqlens_q": [], "cu_seqlens_k": []}, "cu_seqlens_q is empty: give where each"),
    ({"pattern": []}, "pattern is an empty list: give one pattern"),
])  # fmt: skip
def test_options_that_would_be_ignored_are_refused(qkv, options, says):
    with pytest.raises(redblue.InvalidProblem, match=says):
        redblue.attention(*qkv, **options)
    if "seed" not in options:
        with pytest.raises(redblue.InvalidProblem, match=says):
            redblue.plan(n=19, d=8, **options)


@pytest.mark.parametrize("other", [np.ones((4, 4), bool), 3], ids=["ndarray", "int"])
def test_a_pattern_joins_patterns_alone(other):
    pattern = redblue.patterns.window(4, 4, 1, 1)
    for join in (operator.and_, operator.or_):
        with pytest.raises(TypeError, match=f"a {type(other).__name__}: give two patterns; redblue.patterns.mask"):
            join(pattern, other)
    assert (pattern & redblue.patterns.mask(np.ones((4, 4), bool))).pairs == pattern.pairs


def test_no_batch_has_no_lengths(qkv):
    q, k, v = (x[:0] for x in qkv)
    assert redblue.attention(q, k, v, seqused_k=[]).shape == (0, 4, 19, 6)


def test_docstrings_name_errors_and_sources():
    for name in redblue.__all__:
        of = getattr(redblue, name)
        if callable(of) and not isinstance(of, type):
            assert "Raises" in of.__doc__ and ("Source" in of.__doc__ or name in ("explore", "report")), name


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing has no Unpack")
def test_annotations_can_be_read():
    for name in redblue.__all__:
        of = getattr(redblue, name)
        if callable(of) and not isinstance(of, type):
            assert "return" in typing.get_type_hints(of), name


def test_threads_may_make_plans_at_once_where_the_oldest_go(rng, monkeypatch):
    """Each call wants a plan that the cache does not have, and gets one that is there: threads meet in the cache alone."""
    (x,) = arrays(rng, (1, 1, 8, 4))
    redblue.attention(x, x, x, M=300)
    call = next(reversed(calls._calls.values()))
    monkeypatch.setattr(calls, "_calls", {})
    monkeypatch.setattr(calls, "plan_of", lambda *_: call)
    scales, interval = itertools.count(1), sys.getswitchinterval()

    def work(_):
        for _ in range(20000):
            redblue.attention(x, x, x, M=300, scale=float(next(scales)))

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert len(calls._calls) <= calls.MOST_PLANS + 8


def test_threads_follow_the_environment():
    code = "import redblue._call.threads as t; print(t.default_threads())"
    assert run_python(code, OMP_NUM_THREADS="3,2", REDBLUE_THREADS="") == "3"
    assert run_python(code, OMP_NUM_THREADS="3", REDBLUE_THREADS="1") == "0"
    assert run_python("import redblue._core as c; print(c.pool_size())", REDBLUE_THREADS="5") == "5"


def test_import_is_quick_and_needs_numpy_alone():
    code = (
        "import numpy, time, sys; s = time.process_time(); import redblue; t = time.process_time() - s;"
        "assert not {'torch', 'ml_dtypes', 'jax'} & set(sys.modules); print(t)"
    )
    assert min(float(run_python(code)) for _ in range(3)) < 0.3


def test_the_program_and_the_types_are_in_the_package():
    done = subprocess.run([sys.executable, "-m", "redblue", "--version"], capture_output=True, text=True, check=True)
    assert redblue.__version__ in done.stdout
    folder = os.path.dirname(redblue.__file__)
    assert {"py.typed", "_core.pyi", "_keywords.pyi"} <= set(os.listdir(folder))


def test_the_example_in_the_docstring_runs():
    import doctest

    assert doctest.testmod(redblue) == doctest.TestResults(failed=0, attempted=3)


def test_the_first_python_of_the_page_runs_as_written():
    with open(os.path.join(os.path.dirname(__file__), "../../docs/python.md"), encoding="utf-8") as f:
        code = f.read().split("```python\n")[1].split("```")[0]
    assert "forward by" in run_python(code)


def test_scores_and_weights_are_the_matrices_inside_attention():
    rng = np.random.default_rng(5)
    q = rng.standard_normal((2, 6, 4, 8))  # [batch, tokens, heads, features]
    k, v = rng.standard_normal((2, 7, 2, 8)), rng.standard_normal((2, 7, 2, 3))
    bias, sinks = rng.standard_normal((4, 6, 7)), rng.standard_normal(4)
    options = {"layout": "bshd", "window": (3, 0), "softcap": 2.0, "bias": bias}
    s = redblue.scores(q, k, **options)
    o, lse = redblue.attention(q, k, v, return_lse=True, sinks=sinks, **options)
    p = redblue.weights(q, k, lse, sinks=sinks, **options)
    raw = np.einsum("bihd,bjhd->bhij", q, np.repeat(k, 2, 2)) / np.sqrt(8)
    distance = np.arange(6)[:, None] + 1 - np.arange(7)
    seen = (distance >= 0) & (distance <= 3)
    np.testing.assert_allclose(s, np.where(seen, 2 * np.tanh(raw / 2) + bias, -np.inf), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(p, np.exp(s - lse[..., None]), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(np.einsum("bhij,bjhd->bihd", p, np.repeat(v, 2, 2)), o, rtol=1e-12, atol=1e-12)
    assert redblue.scores(q.astype(np.float16)[0], k.astype(np.float16)[0], layout="bshd").dtype == np.float16
    with pytest.raises(redblue.InvalidProblem, match="operation scores"):
        redblue.scores(q, k, layout="bshd", approximate="linear")
    with pytest.raises(redblue.InvalidProblem, match="lse"):
        redblue.weights(q, k, lse[:, :2], layout="bshd")


@pytest.mark.parametrize("d, d_v", [(1, 4), (4, 1), (1, 1)])
def test_one_feature_may_have_any_stride(d, d_v):
    """Views of [batch, tokens, heads] arrays of bfloat16: nothing lies beside the only feature of a row."""
    rng = np.random.default_rng(0)
    q, k, v, do = (rng.standard_normal((1, 5, 2, n)).astype(BF16).swapaxes(1, 2) for n in (d, d, d_v, d_v))
    dense = [np.ascontiguousarray(x) for x in (q, k, v, do)]
    o, lse = redblue.attention(q, k, v, return_lse=True)
    assert np.array_equal(o, redblue.attention(*dense[:3]))
    got, wanted = redblue.attention_backward(do, q, k, v, o, lse), redblue.attention_backward(dense[3], *dense[:3], o, lse)
    assert all(np.array_equal(g, w) for g, w in zip(got[:3], wanted[:3]))


@pytest.mark.parametrize("memory", [{"M": 1000}, {"memory": 4000}])
def test_a_count_can_be_interrupted(memory):
    plan = redblue.plan(n=200_000, d=64, **memory)  # minutes
    start = time.perf_counter()
    with interrupted_after(0.3):
        plan.count()
    assert time.perf_counter() - start < 30
