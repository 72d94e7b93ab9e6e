"""Times one new query for each sequence of a batch: bytes of keys and values per second, beside what the doctor measures.

THP_MEM_ALLOC_ENABLE=1 python bench/decode.py           # tensors on large pages, as the doctor's buffers are; one thread
python bench/decode.py 2                                # two threads, by the clock on the wall; tensors on small pages

A cell has GB/s of keys and values, their share of what `redblue doctor` reads (run it first, on the same quiet machine),
and their share of what torch reads as it takes the maximum of the same words, in turn with the calls: programs that
take memory from one take it from the other. Each figure is the best of 9 runs; with one thread their time is processor
time. Caches larger than 1 GiB, and those that fit the last cache, are left out.
"""

import json
import os
import sys
import time

import torch

import redblue
from redblue import _core

ROUNDS, MOST = 9, 1 << 30
CASES = ((4096, 4), (4096, 16), (32768, 1), (32768, 4), (131072, 1))  # keys, batch
GROUPS, FEATURES = (1, 2, 4, 8), (64, 128)
KV_HEADS = 8


def seconds(call, clock):
    start = clock()
    call()
    return clock() - start


def rates(kind, d, group, n, batch, threads):
    """Bytes of keys and values per second, and those that torch reads."""
    q, k, v = (torch.randn(batch, heads, rows, d) for heads, rows in ((KV_HEADS * group, 1), (KV_HEADS, n), (KV_HEADS, n)))
    if kind is torch.int8:  # a scale for each head of keys, and q of bf16
        q, k, v = q.bfloat16(), *((x * 30).clamp(-127, 127).to(kind) for x in (k, v))
        scales = {"k_scale": torch.full((KV_HEADS,), 1 / 30), "v_scale": torch.full((KV_HEADS,), 1 / 30)}
    else:
        q, k, v = (x.to(kind) for x in (q, k, v))
        scales = {}
    clock = time.process_time if threads == 1 else time.perf_counter

    def read():
        for x in (k, v):
            x.view(torch.int32).max()

    calls = [lambda: redblue.attention(q, k, v, threads=threads, **scales), read]
    times = [[seconds(call, clock) for call in calls] for _ in range(ROUNDS)]
    return [2 * k.numel() * k.element_size() / min(column) for column in zip(*times, strict=True)]


threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
torch.set_num_threads(threads)
with open(_core.hardware_path()) as file:
    machine = json.load(file)
whole = machine["levels"][-1]["read_bandwidth"] if threads == 1 else machine["all_cores_bandwidth"]
print(f"{machine['cpu']}, {threads} thread(s), redblue {redblue.__version__}, torch {torch.__version__}; the doctor reads {whole / 1e9:.1f} GB/s")
print(f"THP_MEM_ALLOC_ENABLE={os.environ.get('THP_MEM_ALLOC_ENABLE', '')}; GB/s, shares of the doctor's and of torch's, {KV_HEADS} heads of keys")
print(" " * 28 + "".join(f"{f'{n} x {batch}':>20}" for n, batch in CASES))
for kind in (torch.float32, torch.bfloat16, torch.int8):
    for d in FEATURES:
        for group in GROUPS:
            cells = []
            for n, batch in CASES:
                size = 2 * batch * KV_HEADS * n * d * torch.empty(0, dtype=kind).element_size()
                if not 2 * machine["levels"][-2]["bytes"] <= size <= MOST:
                    cells.append("")
                    continue
                got, torch_reads = rates(kind, d, group, n, batch, threads)
                cells.append(f"{got / 1e9:.1f} {100 * got / whole:3.0f} % {100 * got / torch_reads:3.0f} %")
            print(f"{str(kind)[6:]:9} d = {d:3}, group {group}   " + "".join(f"{cell:>20}" for cell in cells), flush=True)
