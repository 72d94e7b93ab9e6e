"""Times calls so small that what surrounds the attention takes the time: n = 16, d = 64, fp32, one head, one thread.

python bench/small_calls.py       # microseconds: the least of 9 means of 2000 calls, taken in turn. Tensors where torch is installed
"""

import time

import numpy as np

import redblue

CALLS, ROUNDS = 2000, 9


def of_numpy():
    q = np.random.default_rng(0).standard_normal((1, 1, 16, 64), dtype=np.float32)
    return {"redblue.attention, NumPy": lambda: redblue.attention(q, q, q, threads=1)}


def of_torch():
    import torch

    torch.set_num_threads(1)
    x, tokens_first = torch.randn(1, 1, 16, 64), torch.randn(1, 16, 1, 64)
    theirs = torch.nn.functional.scaled_dot_product_attention
    return {
        "redblue.attention, tensors": lambda: redblue.attention(x, x, x),
        "redblue.scaled_dot_product_attention": lambda: redblue.scaled_dot_product_attention(x, x, x),
        "redblue.flash_attn_func": lambda: redblue.flash_attn_func(tokens_first, tokens_first, tokens_first),
        "torch's scaled_dot_product_attention": lambda: theirs(x, x, x),
    }


def mean(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return 1e6 * (time.perf_counter() - start) / CALLS


calls = of_numpy()
try:
    calls.update(of_torch())
except ImportError:
    print("torch is not installed: no tensors")
for call in calls.values():
    mean(call)
least = dict.fromkeys(calls, float("inf"))
for _ in range(ROUNDS):
    for name, call in calls.items():
        least[name] = min(least[name], mean(call))
for name, us in least.items():
    print(f"{name:40} {us:6.1f} us")
