"""Attention over MPI, in processes of their own: tests/python/ranks/over_mpi.py."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import redblue
from redblue.distributed import Layout, count, positions

OVER_MPI = Path(__file__).parent / "ranks" / "over_mpi.py"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]


@pytest.mark.parametrize("ranks", [1, 4])
def test_over_mpi(ranks):
    if shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpirun and mpi4py are not here")
    if subprocess.run([*MPIRUN, str(ranks), "true"], capture_output=True, timeout=60).returncode != 0:
        pytest.skip("mpirun starts no processes here")
    ran = subprocess.run([*MPIRUN, str(ranks), sys.executable, OVER_MPI], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert all(ran.stdout.count(f"rank {r} of {ranks}: right") == 1 for r in range(ranks)), ran.stdout


def test_positions_are_everyone_s_once():
    for layout in (Layout(2, 3, 1), Layout(grid_cols=5, ownership="zig-zag"), Layout(grid_rows=4, ownership="block-cyclic", block=3)):
        ranks = layout.head_groups * layout.grid_rows * layout.grid_cols
        rows, keys = zip(*(positions(layout, r, 17, 23) for r in range(ranks)))
        assert sorted(np.concatenate(rows)) == list(range(17)) and sorted(np.concatenate(keys)) == list(range(23))
    rows, _ = positions(Layout(grid_rows=2, ownership="documents"), 1, 10, cu_seqlens_q=(0, 6, 10))
    assert list(rows) == [6, 7, 8, 9]


def test_counts_are_those_of_the_ring():
    n, d, heads, kv_heads, ranks = 64, 8, 4, 2, 4
    found = count(Layout(grid_rows=ranks, transfer="ring"), 1, n_q=n, d=d, heads=heads, kv_heads=kv_heads)
    assert found["received"] == {"inputs": n * (ranks - 1) // ranks * kv_heads * 2 * d, "partials": 0, "messages": ranks - 1}


def test_plans_are_those_of_the_program():
    found = redblue.distributed.plan(64, n_q=1 << 20, d=128, heads=32, kv_heads=4, dtype="bf16", ownership="contiguous")
    assert found.layout.head_groups == 4 and found.rows[0]["words"] < min(row["words"] for row in found.rows[1:])
    assert all(row["ratio"] is None or row["ratio"] >= 1 for row in found.rows)
    assert found.reason in str(found) and "all-gather 1 x 64 x 1" in str(found)
    assert "local" not in found.rows[0]
    sizes = {"n_q": 4096, "d": 64, "heads": 8, "kv_heads": 2, "causal": True, "M": 16384}
    row = redblue.distributed.plan(4, **sizes).rows[0]
    local = row["local"]
    assert local["ratio"] == local["io"] / local["bound"] >= 1 and "Br" in local["tiling"]
    assert count(row["layout"], local["rank"], **sizes)["io"] == local["io"]
    blocks = redblue.distributed.plan(4, reproducible=256, **{**sizes, "M": None}).layout
    assert blocks.reproducible == 256 and blocks.grid_cols == 1
    with pytest.raises(redblue.InvalidProblem, match="M = 16384 with reproducible results"):
        redblue.distributed.plan(4, reproducible=256, **sizes)
    with pytest.raises(redblue.InvalidProblem, match="M = 0: fast memory needs at least one word"):
        redblue.distributed.plan(4, **{**sizes, "M": 0})
    with pytest.raises(redblue.InvalidProblem, match="dtype = 'int8'"):
        redblue.distributed.plan(4, n_q=16, d=4, dtype="int8")


class Alone:
    """A communicator of one rank."""

    rank, ranks = 0, 1

    def total(self, numbers):
        return numbers

    def send(self, to, channel, memory):
        raise AssertionError("one rank sends nothing")

    receive = give_up = send


def arrays():
    return (np.ones((1, 2, 5, 4), np.float32) for _ in range(3))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"dropout": 0.5}, redblue.InvalidProblem, "dropout = 0.5 and no seed"),
        ({"bias": np.zeros((3, 5), np.float32)}, redblue.InvalidProblem, "does not broadcast"),
        ({"pattern": redblue.patterns.mask(np.ones((5, 5), bool))}, redblue.Unsupported, "pattern: attention over ranks takes"),
        ({"compute": "bf16"}, redblue.Unsupported, "compute type bf16: q must be bf16"),
        ({"ranks": Layout(grid_rows=2)}, redblue.InvalidProblem, "ranks = 1 x 2 x 1: give a layout of the 1 ranks of comm"),
        ({"ranks": Layout(transfer="shift")}, redblue.InvalidProblem, "transfer = 'shift': give exchange, gather or ring"),
        ({"ranks": Layout(reproducible=4)}, redblue.InvalidProblem, "M = 500 with reproducible results"),
        ({"ranks": Layout(keeps_heads=True)}, redblue.InvalidProblem, "give kept, too"),
        ({"ranks": Layout(keeps_heads=1)}, TypeError, "keeps_heads is a int"),
        ({"ranks": 3}, TypeError, "ranks is a int"),
        ({"ranks": Layout(grid_rows=1.0)}, redblue.InvalidProblem, "grid_rows = 1.0: give a whole number, 1"),
        ({"patience": 0}, redblue.InvalidProblem, "patience = 0: give seconds above 0"),
        ({"comm": 3}, TypeError, "comm is a int"),
        ({"comm": None, "ranks": Layout()}, redblue.InvalidProblem, "ranks: give comm, too"),
        ({"out": np.zeros((1, 2, 5, 4), np.float32)}, redblue.Unsupported, "out: attention over ranks"),
        ({"widow": 3}, TypeError, "did you mean 'window'"),
    ],
)
def test_refusals(options, error, text):
    with pytest.raises(error, match=text):
        redblue.attention(*arrays(), **{"comm": Alone(), "M": 500, **options})


def test_gradients_of_modifiers_of_one_rank_are_those_without_ranks():
    random = np.random.default_rng(1)
    q, k, v, do = (random.standard_normal((1, 2, 5, 4)).astype(np.float32) for _ in range(4))
    options = {"M": 500, "bias": random.standard_normal((2, 5, 5)).astype(np.float32), "sinks": np.array([0.5, 1], np.float32)}
    o, lse = redblue.attention(q, k, v, return_lse=True, **options)
    both = {"bias_gradient": True, "sinks_gradient": True}
    wanted = redblue.attention_backward(do, q, k, v, o, lse, **both, **options)
    found = redblue.distributed.attention_backward(do, q, k, v, o, lse, comm=Alone(), **both, **options)
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    del options["sinks"]
    with pytest.raises(redblue.InvalidProblem, match="there is no such array"):
        redblue.distributed.attention_backward(do, q, k, v, o, lse, comm=Alone(), **both, **options)


def test_messages_go_on_while_a_rank_works():
    class Counted(Alone):
        calls = 0

        def progress(self):
            self.calls += 1

    comm = Counted()
    q, k, v = (np.ones((1, 2, 600, 16), np.float32) for _ in range(3))
    redblue.attention(q, k, v, comm=comm, M=2000)
    assert comm.calls > 0


def test_whole_blocks_lie_on_ranks():
    for ownership in ("contiguous", "zig-zag"):
        layout = Layout(grid_rows=3, transfer="gather", ownership=ownership, reproducible=4)
        rows = [positions(layout, r, 30)[0] for r in range(3)]
        assert sorted(np.concatenate(rows)) == list(range(30))
        assert all(len(set(block) & set(own)) in (0, len(block)) for own in rows for block in np.split(np.arange(30), range(4, 30, 4)))


def test_one_rank_alone():
    q, k, v = arrays()
    found, lse = redblue.attention(q, k, v, comm=Alone(), M=500, causal=True, return_lse=True, sinks=np.array([0.5, 1], np.float32))
    wanted, wanted_lse = redblue.attention(q, k, v, M=500, causal=True, return_lse=True, sinks=np.array([0.5, 1], np.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(lse, wanted_lse, rtol=1e-6)
    tokens_first = redblue.attention(
        *(x.swapaxes(1, 2) for x in (q, k, v)), comm=Alone(), M=500, causal=True, layout="bshd", sinks=np.array([0.5, 1], np.float32)
    )
    np.testing.assert_array_equal(tokens_first.swapaxes(1, 2), found)
