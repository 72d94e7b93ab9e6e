"""The C interface, through ctypes, against NumPy in fp64.

REDBLUE_C_LIBRARY is the shared library to test.
"""

import ctypes
import dataclasses
import pathlib
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import redblue_c as rb
from dense import Attention, causal

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not rb.LIBRARY, reason="set REDBLUE_C_LIBRARY to libredblue_c.so to run these tests")

EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bf16": 2.0**-8}
NUMPY = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bf16": np.uint16}
CODE = {"float64": rb.F64, "float32": rb.F32, "float16": rb.F16, "bf16": rb.BF16}


@dataclasses.dataclass
class Case:
    heads: int = 2
    kv_heads: int = 2
    n_q: int = 9
    n_k: int = 12
    d: int = 8
    d_v: int = 8
    causal: bool = False
    offset: int | None = None
    scale: float | None = None
    dtype: str = "float32"
    layout: str = "bhsd"
    batch: int = 2
    M: int = 300

    def problem(self, operation=rb.FORWARD, **more):
        given = {"has_causal_offset": 1, "causal_offset": self.offset} if self.offset is not None else {}
        given |= {"has_scale": 1, "scale": self.scale} if self.scale is not None else {}
        return rb.Problem(
            operation=operation, batch=self.batch, heads=self.heads, kv_heads=self.kv_heads, n_q=self.n_q,
            n_k=self.n_k, d=self.d, d_v=self.d_v, causal=int(self.causal), **given, **more,
        )  # fmt: skip

    def options(self, **more):
        compute = rb.F64 if self.dtype == "float64" else rb.F32
        return rb.PlanOptions(**{
            "fast_memory_words": self.M, "compute": compute, "dtype": CODE[self.dtype], "threads": 1, **more
        })  # fmt: skip

    def empty(self, heads, n, d):
        if self.layout == "bshd":
            return np.zeros((self.batch, n, heads, d), NUMPY[self.dtype]).transpose(0, 2, 1, 3)
        if self.layout == "strided":  # backwards, every second feature
            return np.zeros((self.batch, heads, n, 2 * d), NUMPY[self.dtype])[:, :, ::-1, ::2]
        return np.zeros((self.batch, heads, n, d), NUMPY[self.dtype])

    def random(self, seed, heads, n, d):
        x = np.random.default_rng(seed).standard_normal((self.batch, heads, n, d))
        array = self.empty(heads, n, d)
        array[...] = rb.to_bf16(x) if self.dtype == "bf16" else x
        return array


CASES = {
    "plain": Case(),
    "causal": Case(causal=True),
    "causal top-left": Case(causal=True, offset=0),
    "causal, rows that see nothing": Case(n_q=12, n_k=7, causal=True),
    "grouped": Case(heads=6, kv_heads=2),
    "grouped, heads inside": Case(heads=6, kv_heads=2, layout="bshd", causal=True),
    "heads inside": Case(layout="bshd"),
    "strided": Case(layout="strided"),
    "d_v smaller": Case(d=8, d_v=5),
    "d_v larger": Case(d=5, d_v=11, causal=True),
    "one query": Case(n_q=1, n_k=40),
    "scale": Case(scale=-0.7),
    "f64": Case(dtype="float64", causal=True),
    "f16": Case(dtype="float16"),
    "bf16": Case(dtype="bf16", causal=True),
    "bf16, grouped, heads inside": Case(dtype="bf16", heads=4, kv_heads=1, layout="bshd"),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def attention(case, q, k, v):
    """What the definition has for these arrays."""
    keep = causal(case.n_q, case.n_k, case.offset) if case.causal else True
    return Attention(rb.numbers(q), rb.numbers(k), rb.numbers(v), keep, scale=case.scale)


def assert_close(ours, truth, case, factor):
    ours, finite = rb.numbers(ours), np.isfinite(truth)
    assert np.array_equal(ours[~finite], truth[~finite])
    arithmetic = min(EPS[case.dtype], EPS["float32"])
    error, largest = np.abs(ours[finite] - truth[finite]).max(initial=0), np.abs(truth[finite]).max(initial=0)
    assert error <= (2 * EPS[case.dtype] + factor * arithmetic) * largest


class Forward:
    """A forward pass: arrays, their tensors, what they should hold."""

    def __init__(self, case, **options):
        self.case = case
        self.q = case.random(1, case.heads, case.n_q, case.d)
        self.k = case.random(2, case.kv_heads, case.n_k, case.d)
        self.v = case.random(3, case.kv_heads, case.n_k, case.d_v)
        self.o = case.empty(case.heads, case.n_q, case.d_v)
        lse_type = np.float64 if case.dtype == "float64" else np.float32
        self.lse = np.zeros((case.batch, case.heads, case.n_q, 1), lse_type)
        self.plan = rb.Plan(case.problem(lse_required=1), case.options(**options))
        names = ["q", "k", "v", "o", "lse"]
        self.tensors = rb.ForwardTensors(**{n: rb.tensor(getattr(self, n)) for n in names})

    def run(self, options=None):
        self.plan.run(self.tensors, options)
        return self.o.copy(), self.lse.copy()

    def check(self):
        true = attention(self.case, self.q, self.k, self.v)
        assert_close(self.o, true.o, self.case, 40)
        assert_close(self.lse[..., 0], true.lse, dataclasses.replace(self.case, dtype=self.lse.dtype.name), 40)


class Backward:
    def __init__(self, case, forward_missing=False, **options):
        forward = Forward(case)
        self.case, self.q, self.k, self.v = case, forward.q, forward.k, forward.v
        self.d_o = case.random(4, case.heads, case.n_q, case.d_v)
        self.true = attention(case, self.q, self.k, self.v)
        self.o, self.lse = forward.o, self.true.lse[..., None].astype(forward.lse.dtype)
        self.o[...] = rb.to_bf16(self.true.o) if case.dtype == "bf16" else self.true.o
        self.dq = case.empty(case.heads, case.n_q, case.d)
        self.dk = case.empty(case.kv_heads, case.n_k, case.d)
        self.dv = case.empty(case.kv_heads, case.n_k, case.d_v)
        problem = case.problem(rb.BACKWARD, forward_missing=int(forward_missing))
        self.plan = rb.Plan(problem, case.options(**options))
        names = ["q", "k", "v", "d_o", "dq", "dk", "dv"] + ([] if forward_missing else ["o", "lse"])
        self.tensors = rb.BackwardTensors(**{n: rb.tensor(getattr(self, n)) for n in names})

    def run(self, options=None):
        self.plan.run(self.tensors, options)
        return self.dq.copy(), self.dk.copy(), self.dv.copy()

    def check(self):
        truth = self.true.gradients(rb.numbers(self.d_o), rb.numbers(self.o))
        for name in ("dq", "dk", "dv"):
            assert_close(getattr(self, name), truth[name], self.case, 200)


class Scores:
    """The matrix of scores, or of weights with the lse of the definition."""

    def __init__(self, case, operation=rb.SCORES):
        forward = Forward(case)
        self.case, self.operation, self.q, self.k, self.v = case, operation, forward.q, forward.k, forward.v
        true = attention(case, self.q, self.k, self.v)
        self.p, self.lse = true.p, true.lse[..., None].astype(forward.lse.dtype)
        self.s = case.empty(case.heads, case.n_q, case.n_k)
        self.plan = rb.Plan(case.problem(operation), case.options())
        names = ["q", "k", "s"] + (["lse"] if operation == rb.WEIGHTS else [])
        self.tensors = rb.ScoresTensors(**{n: rb.tensor(getattr(self, n)) for n in names})

    def run(self, options=None):
        self.plan.run(self.tensors, options)
        return (self.s.copy(),)

    def check(self):
        truth = self.p
        if self.operation == rb.SCORES:
            k = np.repeat(rb.numbers(self.k), self.case.heads // self.case.kv_heads, 1)
            scale = self.case.scale if self.case.scale is not None else self.case.d**-0.5
            truth = np.where(self.p > 0, scale * rb.numbers(self.q) @ k.swapaxes(-1, -2), -np.inf)
        assert_close(self.s, truth, self.case, 40)


def Weights(case):
    return Scores(case, rb.WEIGHTS)


@pytest.mark.parametrize("kind", [Scores, Weights])
@every_case
def test_scores(case, kind):
    x = kind(case)
    x.run()
    x.check()
    info = x.plan.info()
    assert info.schedule == b"sddmm" and info.words_written == case.batch * case.heads * case.n_q * case.n_k


def test_scores_refuse_what_does_not_belong_to_them():
    scores, weights = Scores(CASES["plain"]), Weights(CASES["plain"])
    weights.tensors.lse.data = None
    with pytest.raises(rb.RedblueError, match="tensor lse has no data"):
        weights.run()
    with pytest.raises(rb.RedblueError, match="this plan is for weights: call redblue_scores with it"):
        rb.checked(rb.LIB.redblue_forward(weights.plan.handle, Forward(CASES["plain"]).tensors, None))
    with pytest.raises(rb.RedblueError, match="operation = 9: give REDBLUE_FORWARD, "):
        rb.Plan(CASES["plain"].problem(9), CASES["plain"].options())
    scores.run()


@every_case
def test_forward(case):
    x = Forward(case)
    x.run()
    x.check()


@every_case
def test_backward(case):
    x = Backward(case)
    x.run()
    x.check()


@pytest.mark.parametrize("case", [CASES["causal"], CASES["grouped"], CASES["f64"]], ids=["causal", "grouped", "f64"])
def test_backward_with_the_forward_pass_first(case):
    x = Backward(case, forward_missing=True)
    x.run()
    x.check()
    assert x.plan.info().forward_schedule


@pytest.mark.parametrize("kind", [Forward, Backward, Scores, Weights])
@every_case
def test_exact_workspace(case, kind):
    """The same bits in exactly the memory that was asked for, and not a byte of it missing."""
    x = kind(case)
    expected = x.run()
    size = x.plan.workspace(x.tensors)
    memory = np.full(size + 2, 0xA5, np.uint8)
    options = rb.RunOptions(workspace=memory.ctypes.data + 1, workspace_size=size)
    for ours, given in zip(expected, x.run(options)):
        assert np.array_equal(ours, given)
    assert memory[0] == memory[-1] == 0xA5
    options.workspace_size -= 1
    with pytest.raises(rb.RedblueError, match=f"takes {size} bytes.*the memory given is {size - 1}") as e:
        x.run(options)
    assert e.value.status == rb.NOT_ENOUGH_MEMORY


def test_workspace_without_tensors_is_that_of_contiguous_ones():
    for case in CASES.values():
        if case.layout == "bhsd":
            for x in [Forward(case), Backward(case), Scores(case), Weights(case)]:
                assert x.plan.workspace() == x.plan.workspace(x.tensors)


@pytest.mark.parametrize("name", ["flash", "key_outer", "small_cache", "score_tiles"])
def test_named_schedule(name):
    x = Forward(CASES["plain"], schedule=name.encode())
    assert x.plan.info().schedule.decode() == name
    x.run()
    x.check()


def test_plan_says_what_it_moves():
    plan = Forward(CASES["plain"]).plan
    info = plan.info()
    assert info.words_read + info.words_written == pytest.approx(info.ratio * info.bound_words)
    assert 0 < info.footprint_words <= CASES["plain"].M
    assert info.schedule.decode() in info.reason.decode()


def test_max_workspace_chooses_and_refuses():
    case = CASES["plain"]
    sizes = {}
    for name in ["flash", "key_outer", "small_cache", "naive"]:
        sizes[name] = Forward(case, schedule=name.encode()).plan.workspace()
    least = Forward(case, max_workspace=min(sizes.values()))
    assert least.plan.workspace() <= min(sizes.values())
    least.run()
    least.check()
    with pytest.raises(rb.RedblueError, match=f"takes {sizes['naive']} bytes.*the cap of {sizes['naive'] - 1}") as e:
        Forward(case, schedule=b"naive", max_workspace=sizes["naive"] - 1)
    assert e.value.status == rb.NOT_ENOUGH_MEMORY
    Forward(case, schedule=b"naive", max_workspace=sizes["naive"]).run()


class Pool:
    """A thread pool of Python's, as redblue sees it."""

    def __init__(self, size, run):
        self.asked = []

        def call(_context, n, task, arg):
            self.asked.append(n)
            run(n, lambda i: task(arg, i))

        self.struct = rb.ThreadPool(size=rb.POOL_SIZE(lambda _context: size), run=rb.POOL_RUN(call))

    def options(self, threads):
        return rb.RunOptions(threads=threads, pool=ctypes.pointer(self.struct))


def one_after_another(n, task):
    for i in range(n):
        task(i)


def backwards(n, task):
    for i in reversed(range(n)):
        task(i)


def on_threads(n, task):
    with ThreadPoolExecutor(n) as executor:
        list(executor.map(task, range(n)))


@pytest.mark.parametrize("run", [one_after_another, backwards, on_threads])
@pytest.mark.parametrize("kind", [Forward, Backward])
def test_pool_of_the_caller(kind, run):
    for case in [CASES["causal"], CASES["grouped"], CASES["bf16"]]:
        x = kind(case)
        expected = x.run()
        pool = Pool(3, run)
        options = pool.options(threads=3)
        one, three = x.plan.workspace(x.tensors), x.plan.workspace(x.tensors, options)
        assert three > one
        memory = np.zeros(three, np.uint8)
        options.workspace, options.workspace_size = memory.ctypes.data, memory.size
        for ours, given in zip(expected, x.run(options)):
            assert np.array_equal(ours, given)
        assert pool.asked and max(pool.asked) <= 3


def test_threads_are_at_most_those_of_the_pool():
    x, pool = Forward(CASES["plain"]), Pool(2, one_after_another)
    assert x.plan.workspace(x.tensors, pool.options(2)) == x.plan.workspace(x.tensors, pool.options(50))


def test_pools_that_do_not_do_their_work():
    x = Forward(CASES["plain"])
    lazy = Pool(3, lambda n, task: [task(i) for i in range(n - 1)])
    with pytest.raises(rb.RedblueError, match="the thread pool returned after 2 of 3 tasks") as e:
        x.run(lazy.options(3))
    assert e.value.status == rb.INTERNAL_ERROR
    with pytest.raises(rb.RedblueError, match="the thread pool has size 0") as e:
        x.run(Pool(0, one_after_another).options(1))
    assert e.value.status == rb.INVALID_ARGUMENT
    with pytest.raises(rb.RedblueError, match="needs both functions"):
        x.run(rb.RunOptions(pool=ctypes.pointer(rb.ThreadPool())))
    with pytest.raises(rb.RedblueError, match="threads = -1"):
        x.run(rb.RunOptions(threads=-1))


def test_one_plan_on_many_threads():
    x = Forward(CASES["causal"])
    expected, _ = x.run()

    def run(_):
        o, lse = np.zeros_like(x.o), np.zeros_like(x.lse)
        memory = np.zeros(x.plan.workspace(x.tensors), np.uint8)
        names = {"q": x.q, "k": x.k, "v": x.v, "o": o, "lse": lse}
        tensors = rb.ForwardTensors(**{n: rb.tensor(a) for n, a in names.items()})
        x.plan.run(tensors, rb.RunOptions(workspace=memory.ctypes.data, workspace_size=memory.size))
        return o

    with ThreadPoolExecutor(8) as pool:
        for o in pool.map(run, range(64)):
            assert np.array_equal(o, expected)


def test_errors_belong_to_their_thread():
    with pytest.raises(rb.RedblueError, match="n_q = 0"):
        rb.Plan(rb.Problem(n_k=1, d=1), rb.PlanOptions(fast_memory_words=10))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(rb.LIB.redblue_last_error()))
    thread.start()
    thread.join()
    assert seen == [b""]
    assert b"n_q = 0" in rb.LIB.redblue_last_error()


def test_library_shows_its_interface_and_nothing_else():
    headers = "".join((ROOT / "redblue/c_api" / name).read_text() for name in ("redblue.h", "redblue_second.h"))
    exported = re.sub(r"static inline [^}]*}|/\*.*?\*/", "", headers, flags=re.DOTALL)
    declared = set(re.findall(r"\b(redblue_\w+)\(", exported))
    listing = subprocess.run(["nm", "-D", "--defined-only", rb.LIBRARY], capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in listing.stdout.splitlines()} == declared
