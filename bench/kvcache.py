"""Times flash_attn_with_kvcache at one new token for each sequence, its keys here and there: milliseconds of one thread.

python bench/kvcache.py           # the least of 15 calls, taken in turn; each call has 4 sequences and appends to them
"""

import time

import torch

import redblue

ROUNDS, BATCH = 15, 4
CASES = (  # keys, heads, kv_heads, features, type
    (4096, 32, 8, 128, torch.float32),
    (4096, 32, 8, 128, torch.bfloat16),
    (1024, 8, 2, 64, torch.float32),
)
LARGE, SMALL = 256, 16  # keys of a page


def calls_of(n, heads, kv_heads, d, kind):
    """The same attention, with keys and values that lie in different places."""
    q, k, v = (torch.randn(BATCH, 1, h, d).to(kind) for h in (heads, kv_heads, kv_heads))

    def call(rows, size, **options):
        caches = [torch.randn(rows, size, kv_heads, d).to(kind) for _ in range(2)]
        return lambda: redblue.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=n - 1, causal=True, **options)

    def table(size, order):
        return order[: BATCH * n // size].reshape(BATCH, n // size).int()

    return {
        "rows, as they are": call(BATCH, n),
        "rows named by cache_batch_idx": call(2 * BATCH, n, cache_batch_idx=[5, 0, 3, 6]),
        "pages side by side": call(BATCH * n // SMALL, SMALL, block_table=table(SMALL, torch.arange(BATCH * n // SMALL))),
        f"pages of {LARGE} keys anywhere": call(2 * BATCH * n // LARGE, LARGE, block_table=table(LARGE, torch.randperm(2 * BATCH * n // LARGE))),
        f"pages of {SMALL} keys anywhere": call(2 * BATCH * n // SMALL, SMALL, block_table=table(SMALL, torch.randperm(2 * BATCH * n // SMALL))),
    }


torch.manual_seed(0)
torch.set_num_threads(1)
for case in CASES:
    n, heads, kv_heads, d, kind = case
    calls = calls_of(*case)
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            least[name] = min(least[name], time.process_time() - start)
    size = torch.empty(0, dtype=kind).element_size()
    mib = 2 * BATCH * n * kv_heads * d * size / 2**20
    page = LARGE * kv_heads * d * size / 2**10
    print(f"{n} keys, {heads} heads of {d}, {kv_heads} of keys, {kind}: {mib:.0f} MiB of keys and values, large pages of {page:.0f} KiB")
    for name, seconds in least.items():
        print(f"    {name:32} {1e3 * seconds:7.2f} ms")
