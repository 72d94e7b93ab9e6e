#!/usr/bin/env python3
"""Attention over ranks of a gloo group: redblue beside the ring of torch's context_parallel, in turn.

    python bench/ranks_torch.py [RANKS [ROWS]]

context_parallel itself refuses tensors of the CPU, so its ring is called with torch's own operators for the CPU. Each rank has
one thread. A figure is the CPU time of the rank that takes most, and is the median of all turns."""

import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention as torchs

import redblue
from redblue.distributed import Layout, attention_backward, positions

HEADS, D, TURNS = 8, 64, 7
FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def seconds(call):
    """Of CPU, on the rank that takes most; and of the clock."""
    dist.barrier()
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    both = torch.tensor([time.process_time() - cpu, time.perf_counter() - wall], dtype=torch.float64)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return result, both.tolist()


def contestants(group, layout, causal, q, k, v, do):
    torchs._cp_options.enable_load_balance = causal

    def torch_forward():
        return torchs._templated_ring_attention(group, 2, FORWARD, q, k, v, is_causal=causal)

    def torch_backward(o, lse):
        return torchs._templated_ring_attention_backward(
            group, 2, BACKWARD, do, "grad_out", q, k, v, o, lse, is_causal=causal, dropout_p=0.0
        )

    options = {"comm": group, "ranks": layout, "causal": causal, "threads": 1}

    def own_forward():
        return redblue.distributed.attention(q, k, v, return_lse=True, **options)

    def own_backward(o, lse):
        return attention_backward(do, q, k, v, o, lse, **options)

    return {"torch": (torch_forward, torch_backward), "redblue": (own_forward, own_backward)}


def race(rank, ranks, n, causal):
    layout = Layout(grid_rows=ranks, ownership="zig-zag" if causal else "contiguous")
    rows, _ = positions(layout, rank, n)
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(1, HEADS, n, D)[:, :, rows].contiguous() for _ in range(4))
    both = contestants(dist.group.WORLD, layout, causal, q, k, v, do)
    times = {(name, op): [] for name in both for op in ("forward", "backward")}
    for turn in range(TURNS + 1):  # the first one measures and plans
        results = {}
        for name, (forward, backward) in both.items():
            (o, lse), t = seconds(forward)
            gradients, u = seconds(lambda: backward(o, lse))  # noqa: B023
            results[name] = (o, *gradients)
            if turn > 0:
                times[name, "forward"].append(t)
                times[name, "backward"].append(u)
        for a, b in zip(results["torch"], results["redblue"]):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    if rank == 0:
        for (name, op), of in times.items():
            cpu, wall = (statistics.median(t[i] for t in of) for i in (0, 1))
            mask = "causal" if causal else "no mask"
            print(f"{ranks} ranks, n = {n}, {mask:<8} {op:<9} {name:<8} CPU {cpu:.3f} s, clock {wall:.3f} s", flush=True)


def of_rank(rank, ranks, n, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    with torch.no_grad():
        for causal in (False, True):
            race(rank, ranks, n, causal)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    given = [int(word) for word in sys.argv[1:]]
    ranks, n = given[0] if given else 2, given[1] if len(given) > 1 else 8192
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(of_rank, args=(ranks, n, folder), nprocs=ranks)
