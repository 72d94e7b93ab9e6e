"""Attention over MPI from Python, against the whole: mpirun -n P python over_mpi.py. Its exit status is 1 where something is wrong."""

import sys

import numpy as np
from mpi4py import MPI

import redblue
from redblue.distributed import Kept, Layout, count, positions

comm = MPI.COMM_WORLD
P, rank = comm.Get_size(), comm.Get_rank()


def layouts():
    yield Layout(grid_rows=P)
    yield Layout(grid_cols=P, transfer="gather", ownership="zig-zag")
    yield Layout(grid_rows=P, transfer="ring", ownership="block-cyclic", block=3)
    if P % 2 == 0:
        yield Layout(2, P // 2, 1)
        yield Layout(1, 2, P // 2)


def main():
    random = np.random.default_rng(0)
    n = 8 * P + 3
    q, k, v, do = (random.standard_normal((1, heads, n, 8)).astype(np.float32) for heads in (4, 2, 2, 4))
    options = {"causal": True, "window": (n // 2, 0), "alibi_slopes": np.array([0.1, 0.2, 0.3, 0.4], np.float32), "M": 2000}
    options |= {"dropout": 0.25, "seed": 7}
    whole, lse = redblue.attention(q, k, v, return_lse=True, **options)
    gradients = redblue.attention_backward(do, q, k, v, whole, lse, **options)
    keeps = [Layout(2, 1, P // 2, keeps_heads=True)] if P % 2 == 0 else []
    for layout in (*layouts(), *keeps):
        rows, keys = positions(layout, rank, n)
        report, of_gradient = {}, {}
        heads = {"kept": Kept()} if layout.keeps_heads else {}
        mine = q[:, :, rows], k[:, :, keys], v[:, :, keys]
        o, own_lse = redblue.attention(*mine, comm=comm, ranks=layout, return_lse=True, **options) if rank % 2 and not heads else (
            redblue.distributed.attention(*mine, comm=comm, ranks=layout, return_lse=True, report=report, **heads, **options)
        )  # fmt: skip
        np.testing.assert_allclose(o, whole[:, :, rows], atol=2e-6)
        np.testing.assert_allclose(own_lse, lse[:, :, rows], atol=2e-6)
        found = redblue.distributed.attention_backward(
            do[:, :, rows], *mine, o, own_lse, comm=comm, ranks=layout, report=of_gradient, **heads, **options
        )
        for name, of in (("dq", rows), ("dk", keys), ("dv", keys)):
            np.testing.assert_allclose(getattr(found, name), getattr(gradients, name)[:, :, of], atol=2e-5)
        for op, moved in (("forward", report), ("backward", of_gradient)):
            counted = count(layout, rank, n_q=n, d=8, heads=4, kv_heads=2, causal=True, window=(n // 2, 0), op=op)
            if moved:
                assert moved["received"] == counted["received"] and moved["sent"] == counted["sent"], (moved, counted)
    with_rows = {"bias": random.standard_normal((1, 4, n, n)).astype(np.float32), "sinks": np.array([0.1, 0.2, -1, 2], np.float32), "M": 2000}
    whole, lse = redblue.attention(q, k, v, return_lse=True, **with_rows)
    both = {"bias_gradient": True, "sinks_gradient": True}
    gradients = redblue.attention_backward(do, q, k, v, whole, lse, **both, **with_rows)
    for layout in (*layouts(), Layout(grid_rows=P, ownership="zig-zag"), Layout(grid_rows=P, transfer="gather")):
        rows, keys = positions(layout, rank, n)
        mine = q[:, :, rows], k[:, :, keys], v[:, :, keys]
        own = {**with_rows, "bias": with_rows["bias"][:, :, rows]}
        o, own_lse = redblue.attention(*mine, comm=comm, ranks=layout, return_lse=True, **own)
        np.testing.assert_allclose(o, whole[:, :, rows], atol=2e-6)
        found = redblue.distributed.attention_backward(do[:, :, rows], *mine, o, own_lse, comm=comm, ranks=layout, **both, **own)
        for name, of in (("dq", rows), ("dk", keys), ("dv", keys), ("dbias", rows)):
            np.testing.assert_allclose(getattr(found, name), getattr(gradients, name)[:, :, of], atol=3e-5)
        np.testing.assert_allclose(found.dsinks, gradients.dsinks, atol=3e-5)
    blocks = Layout(grid_rows=P, transfer="gather", ownership="zig-zag", reproducible=4)
    rows, keys = positions(blocks, rank, n)
    in_blocks = q[:, :, rows], k[:, :, keys], v[:, :, keys]
    one, one_lse = redblue.attention(q, k, v, comm=MPI.COMM_SELF, ranks=Layout(reproducible=4), return_lse=True, causal=True)
    o, own_lse = redblue.attention(*in_blocks, comm=comm, ranks=blocks, return_lse=True, causal=True)
    np.testing.assert_array_equal(o, one[:, :, rows])
    np.testing.assert_array_equal(own_lse, one_lse[:, :, rows])
    alone = redblue.distributed.attention_backward(
        do, q, k, v, one, one_lse, comm=MPI.COMM_SELF, ranks=Layout(reproducible=4), causal=True
    )
    found = redblue.distributed.attention_backward(do[:, :, rows], *in_blocks, o, own_lse, comm=comm, ranks=blocks, causal=True)
    for name, of in (("dq", rows), ("dk", keys), ("dv", keys)):
        np.testing.assert_array_equal(getattr(found, name), getattr(alone, name)[:, :, of])
    if P > 1:
        try:  # the last rank asks for another scale: all of them say so
            redblue.attention(*mine, comm=comm, ranks=layout, scale=0.5 if rank == P - 1 else 0.25)
        except redblue.Error as e:
            assert "was not asked for what rank 0 was" in str(e), e
        else:
            raise AssertionError("ranks with different scales ran")
        refusals(mine, layout)
        for layout in layouts():  # the last rank fails half-way, and no message of that call is taken for one of the next
            rows, keys = positions(layout, rank, n)
            mine = q[:, :, rows], k[:, :, keys], v[:, :, keys]
            other = -q[:, :, rows], -k[:, :, keys], -v[:, :, keys]
            try:
                redblue.attention(*other, comm=comm, ranks=layout, M=2 if rank == P - 1 else 2000, patience=30)
            except redblue.Error as e:
                assert rank == P - 1 or f"rank {P - 1}: M = 2" in str(e), e
            else:
                raise AssertionError("ranks ran without the last one")
            o = redblue.attention(*mine, comm=comm, ranks=layout, M=2000, patience=30)
            np.testing.assert_allclose(o, redblue.attention(q, k, v, M=2000)[:, :, rows], atol=2e-6)
    print(f"rank {rank} of {P}: right")


def refusals(mine, layout):
    """What one rank alone gets wrong is an error on all of them, at once, and the next call runs."""
    last, patience = rank == P - 1, 20

    def error(comm=comm, M=2000, layout=layout, **options):
        try:
            redblue.attention(*mine, comm=comm, ranks=layout, M=M, patience=options.pop("patience", patience), **options)
        except (redblue.Error, TypeError) as e:
            return str(e)
        raise AssertionError("a call that is wrong ran")

    def ours(said, of_others="another rank are refused"):
        return said if last else of_others

    began = MPI.Wtime()
    sinks = np.array([0.1, 0.2, -1, 2 if last else 3], np.float32)
    assert "was not asked for what rank 0 was" in error(sinks=sinks)
    assert "was not asked for what rank 0 was" in error(alibi_slopes=np.abs(sinks))
    assert ours("report is a list: give a dict") in error(report=[] if last else None)
    assert ours("patience = 'long': give seconds above 0") in error(patience="long" if last else patience)
    assert ours("ranks is a int") in error(layout=3 if last else layout)
    columns = 3 if last else 1
    said = error(bias=np.zeros((1, 1, 1, columns), np.float32))
    assert said.startswith("" if last else f"rank {P - 1}: ") and "does not broadcast" in said, said
    said = error(M=2 if last else 2000)  # half-way
    assert ours("M = 2 words is too small", f"rank {P - 1}: M = 2 words is too small") in said, said
    redblue.attention(*mine, comm=comm, ranks=layout, M=2000)
    assert "COMM_NULL, which has no ranks" in error(comm=MPI.COMM_NULL)
    own = comm.Split(rank % 2)
    assert "intercommunicator, of two groups" in error(comm=own.Create_intercomm(0, comm, 1 - rank % 2))
    assert MPI.Wtime() - began < patience
    redblue.attention(*mine, comm=comm, ranks=layout, M=2000, patience=1e9)


try:
    main()
except BaseException as e:
    print(f"rank {rank}: {type(e).__name__}: {e}", file=sys.stderr)
    comm.Abort(1)
