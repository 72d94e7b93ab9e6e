"""Attention over a gloo group of torch.distributed, with gradients, against the whole: python over_gloo.py P."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import redblue
from redblue.distributed import Layout, positions


def close(name, found, wanted):
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=0, msg=lambda text: f"{name}: {text}")


def heads_stay(rank, size, options):
    """Each rank keeps its heads of q, k and v for the gradient; where there is none, it keeps nothing."""
    n = 6 * size + 1
    keeps = Layout(head_groups=size, keeps_heads=True)
    rows, keys = positions(keeps, rank, n)
    many = [torch.randn(2, heads, n, 8) for heads in (2 * size, size, size)]
    whole = [x.clone().requires_grad_() for x in many]
    mine = [x[:, :, of].clone().requires_grad_() for x, of in zip(many, (rows, keys, keys))]
    for all_, own in (([x.detach() for x in whole], [x.detach() for x in mine]), (whole, mine)):
        o_of_many = redblue.attention(*all_, **options)
        own_of_many = redblue.attention(*own, comm=dist.group.WORLD, ranks=keeps, **options)
        close("o", own_of_many, o_of_many[:, :, rows])
    random = torch.randn(o_of_many.shape)
    o_of_many.backward(random)
    own_of_many.backward(random[:, :, rows])
    for name, x, all_, of in (("dq", mine[0], whole[0], rows), ("dk", mine[1], whole[1], keys), ("dv", mine[2], whole[2], keys)):
        close(name, x.grad, all_.grad[:, :, of])


def of_rank(rank, size, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    torch.manual_seed(0)
    n = 6 * size + 1
    q, k, v = (torch.randn(2, heads, n, 8, dtype=torch.float32) for heads in (4, 2, 2))
    do = torch.randn(2, 4, n, 8)
    options = {"causal": True, "dropout": 0.25, "seed": 7, "M": 2000}
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    o = redblue.attention(*whole, **options)
    o.backward(do)
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("sequence",))
    for comm in (dist.group.WORLD, mesh["sequence"]):
        for layout in (None, Layout(grid_cols=size, ownership="zig-zag"), Layout(grid_rows=size, transfer="ring")):
            rows, keys = positions(layout or Layout(grid_rows=size), rank, n)
            mine = [x[:, :, of].clone().requires_grad_() for x, of in ((q, rows), (k, keys), (v, keys))]
            own = redblue.attention(*mine, comm=comm, ranks=layout, **options)
            own.backward(do[:, :, rows])
            close("o", own, o[:, :, rows])
            for name, x, all_, of in (("dq", mine[0], whole[0], rows), ("dk", mine[1], whole[1], keys), ("dv", mine[2], whole[2], keys)):
                close(name, x.grad, all_.grad[:, :, of])
    heads_stay(rank, size, options)
    rows, keys = positions(Layout(grid_rows=size, ownership="zig-zag"), rank, n)
    of_rows, of_keys, sinks = torch.randn(4, n, n), torch.randn(1, n), torch.randn(4)
    for bias in (of_rows, of_keys):
        all_ = [x.clone().requires_grad_() for x in (bias, sinks)]
        redblue.attention(q, k, v, bias=all_[0], sinks=all_[1], **options).backward(do)
        own = [x.clone().requires_grad_() for x in (bias if bias is of_keys else bias[:, rows], sinks)]
        mine = q[:, :, rows], k[:, :, keys], v[:, :, keys]
        layout = Layout(grid_rows=size, ownership="zig-zag")
        ours = redblue.attention(*mine, bias=own[0], sinks=own[1], comm=dist.group.WORLD, ranks=layout, **options)
        ours.backward(do[:, :, rows])
        close("dbias", own[0].grad, all_[0].grad if bias is of_keys else all_[0].grad[:, rows])
        close("dsinks", own[1].grad, all_[1].grad)
    with torch.no_grad():  # 16 bits: partial results are float32, rounded once
        rows, keys = positions(Layout(grid_rows=size), rank, n)
        half = [x.bfloat16() for x in (q, k, v)]
        own = redblue.attention(half[0][:, :, rows], half[1][:, :, keys], half[2][:, :, keys], comm=dist.group.WORLD, **options)
        assert own.dtype == torch.bfloat16
        torch.testing.assert_close(own, redblue.attention(*half, **options)[:, :, rows], atol=2**-6, rtol=0)
    if size > 1:  # one rank's arguments are refused: all of them hear of it
        own = [x[:, :, rows] for x in (q, k, v)]
        try:
            redblue.attention(own[0].int() if rank == 1 else own[0], *own[1:], comm=dist.group.WORLD)
        except (TypeError, redblue.Error) as e:
            assert ("q has elements of type torch.int32" if rank == 1 else "another rank are refused") in str(e), e
        else:
            raise AssertionError("ranks whose arguments are refused ran")
        try:  # one rank alone would call the backward pass
            redblue.attention(own[0].clone().requires_grad_(rank == 1), *own[1:], comm=dist.group.WORLD)
        except redblue.Error as e:
            assert f"requires a gradient on 1 of {size} ranks" in str(e), e
        else:
            raise AssertionError("one rank waits for the backward pass of others")

    def of_twice(q, k, v):
        return 2 * redblue.attention(q, k, v, comm=dist.group.WORLD, **options)

    mine = [x[:, :, of].clone().requires_grad_() for x, of in ((q, rows), (k, keys), (v, keys))]
    twice = (torch.compile(of_twice, backend="eager") if rank == 0 else of_twice)(*mine)  # the graph ends where ranks begin
    twice.backward(do[:, :, rows])
    close("o", twice, 2 * o[:, :, rows])
    close("dq", mine[0].grad, 2 * whole[0].grad[:, :, rows])
    print(f"rank {rank} of {size}: right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    size = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(of_rank, args=(size, folder), nprocs=size)
