"""Times calls so small that what surrounds the attention takes the time: n = 16, d = 64, fp32, one head, one thread. Then the
steps of such a call, as docs/calls.md has them.

python bench/small_calls.py       # microseconds: the least of 200 means of 100 calls, taken in turn. Tensors where torch is installed
"""

import functools
import time

import numpy as np

import redblue
from redblue import _attention, _core
from redblue._call import families

CALLS, ROUNDS = 100, 200
MORE_HEADS = 8


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


def runs_of(q):
    """Runs of the plan alone, of one head and of MORE_HEADS more, as a call begins them."""
    family = families.family_of(q, q, q)[0]
    runs = []
    for heads in (1, 1 + MORE_HEADS):
        x = q.repeat(heads, 1) if isinstance(q, np.ndarray) else q.repeat(1, heads, 1, 1)
        o = redblue.attention(x, x, x, threads=1)
        plan, seed = _core.last_plan()
        arrays = (*map(family.native, (x, x, x, o)), *(None,) * 32)
        runs.append(lambda plan=plan, arrays=arrays, seed=seed: family.run(plan, arrays, False, seed))
    return runs


def steps_of(q, *, tensors):
    """{step: a function that does it alone}, of a call of attention with these arrays that came before."""
    family = families.family_of(q, q, q)[0]
    one, more = runs_of(q)
    options = {} if tensors else {"threads": 1}
    steps = {
        "whole": lambda: redblue.attention(q, q, q, **options),
        "forward": lambda: _attention.forward(q, q, q, None, False, options),
        "memory for the output": family.maker(tuple(q.shape), "f32") or functools.partial(family.empty_like, q),
        "run, in the library": one,
        "more": more,
    }
    if tensors:
        from redblue._torch import attention as operators

        steps["what torch must know of the call"] = lambda: operators.way_of((q, q, q, None, None, None))
    return steps


def mean(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return 1e6 * (time.perf_counter() - start) / CALLS


def least_of(calls):
    for call in calls.values():
        mean(call)
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            least[name] = min(least[name], mean(call))
    return least


def column(q, *, tensors):
    """{step: microseconds}, in the order of a call. What a step takes with the loop around it, less the loop alone."""
    found = least_of({"loop": lambda: None, **steps_of(q, tensors=tensors)})
    loop = found.pop("loop")
    us = {name: t - loop for name, t in found.items()}
    whole, forward, more = us.pop("whole"), us.pop("forward"), us.pop("more")
    of_torch = us.pop("what torch must know of the call", 0.0)
    run = us.pop("run, in the library")
    head = (more - run) / MORE_HEADS
    return {
        "which function it is for, autocast and the like": max(0.0, whole - forward - of_torch),
        "what torch must know of the call": of_torch,
        "types, sizes and options read, and the plan of them found": forward - sum(us.values()) - run,
        **us,
        "run, in the library: around the heads": run - head,
        "run, in the library: the head": head,
        "all": whole,
    }


def main():
    calls = of_numpy()
    columns = {"NumPy": column(np.random.default_rng(0).standard_normal((1, 1, 16, 64), dtype=np.float32), tensors=False)}
    try:
        calls.update(of_torch())
    except ImportError:
        print("torch is not installed: no tensors")
    else:
        import torch

        columns["tensors"] = column(torch.randn(1, 1, 16, 64), tensors=True)
    for name, us in least_of(calls).items():
        print(f"{name:40} {us:6.1f} us")
    print(f"\n| step of redblue.attention, us | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for step in columns["NumPy"]:
        print(f"| {step} | {' | '.join(f'{us[step]:.1f}' for us in columns.values())} |")


if __name__ == "__main__":
    main()
