"""Times redblue.scaled_dot_product_attention against PyTorch's, in turn: 8 heads, full and causal.

python bench/torch_attention.py fp32|bf16 THREADS [--n 512,2048] [--d 64,128] [--passes forward,backward]

For each cell: the median milliseconds of both, and the median of PyTorch's time over redblue's, pair by pair. Above 1
redblue is faster.
"""

import argparse
import math
import os
import statistics
import time


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def calls(torch, attentions, forward, type, n, d, causal):
    """A call for each attention: of its forward pass, or of its gradients."""
    torch.manual_seed(0)
    q, k, v, g = torch.randn(4, 1, 8, n, d).to(type)
    if forward:
        return [lambda f=f: f(q, k, v, is_causal=causal) for f in attentions]
    inputs = [x.requires_grad_() for x in (q, k, v)]
    outputs = [f(*inputs, is_causal=causal) for f in attentions]
    return [lambda o=o: torch.autograd.grad(o, inputs, g, retain_graph=True) for o in outputs]


def race(ours, theirs, seconds=0.5):
    times = []
    ours(), theirs()
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        if len(times) % 2 == 0:
            times.append((timed(ours), timed(theirs)))
        else:
            times.append((timed(theirs), timed(ours))[::-1])
    return [statistics.median(x) for x in zip(*times)], statistics.median(b / a for a, b in times), len(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("type", choices=["fp32", "bf16"])
    parser.add_argument("threads", type=int)
    numbers = lambda text: [int(x) for x in text.split(",")]
    parser.add_argument("--n", type=numbers, default=[512, 2048])
    parser.add_argument("--d", type=numbers, default=[16, 32, 64, 128, 256])
    parser.add_argument("--passes", type=lambda text: text.split(","), default=["forward", "backward"])
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    import torch

    import redblue

    torch.set_num_threads(given.threads)
    type = {"fp32": torch.float32, "bf16": torch.bfloat16}[given.type]
    attentions = redblue.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
    for name in given.passes:
        ratios = []
        for n in given.n:
            for d in given.d:
                for causal in (False, True):
                    (a, b), ratio, pairs = race(*calls(torch, attentions, name == "forward", type, n, d, causal))
                    ratios.append(ratio)
                    cell = f"{name} {given.type} {given.threads} threads n {n} d {d} {'causal' if causal else 'full'}"
                    print(f"{cell}: {1e3 * a:.3f} and {1e3 * b:.3f} ms, ratio {ratio:.3f} of {pairs} pairs", flush=True)
        won = sum(r > 1 for r in ratios)
        mean = math.exp(statistics.mean(map(math.log, ratios)))
        print(f"{name} {given.type} {given.threads} threads: faster in {won} of {len(ratios)} cells, geometric mean {mean:.2f}")


if __name__ == "__main__":
    main()
