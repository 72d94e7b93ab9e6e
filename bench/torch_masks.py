"""Times redblue.scaled_dot_product_attention with masks of bool that are causal, a window, padding or sequences: as they are
recognised, as a bias (what all masks were before), and PyTorch's with the same mask, in turn. 8 heads, d = 64, two threads.

python bench/torch_masks.py fp32|bf16 [--n 512,1024,2048] [--passes forward,backward] [--kinds causal,...]
python bench/torch_masks.py fp32|bf16 --changing [--batch 4]

Medians in milliseconds. --changing: padding of keys with other lengths at each call, causal or not, by redblue as it
recognises masks, and as a bias, means of 20 calls.
"""

import argparse
import os
import random
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")

import torch  # noqa: E402

import redblue  # noqa: E402
from redblue._call import masks  # noqa: E402

WARM_UP, CALLS = 4, 20  # of masks that change
NOTHING = 1 << 62  # pairs that no mask has
LEAST_PAIRS = masks.LEAST_PAIRS


def masks(n):
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    return {
        "causal": j <= i,
        "window 256": (j <= i) & (j > i - 256),
        "padding, half": (j < n // 2).expand(n, n).contiguous(),
        "8 sequences": i // (n // 8) == j // (n // 8),
        "random": torch.rand(n, n) < 0.5,
    }


def way(least, attention):
    """The attention, that recognises masks from `least` pairs on."""

    def call(*arguments, **options):
        masks.LEAST_PAIRS = least
        return attention(*arguments, **options)

    return call


RECOGNISED = way(LEAST_PAIRS, redblue.scaled_dot_product_attention)
BIAS = way(NOTHING, redblue.scaled_dot_product_attention)
TORCH = torch.nn.functional.scaled_dot_product_attention


def timed(call):
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def calls(type, n, mask, forward):
    torch.manual_seed(0)
    q, k, v, g = torch.randn(4, 1, 8, n, 64).to(type)
    if forward:
        return [lambda f=f: f(q, k, v, attn_mask=mask) for f in (RECOGNISED, BIAS, TORCH)]
    inputs = [x.requires_grad_() for x in (q, k, v)]
    outputs = [f(*inputs, attn_mask=mask) for f in (RECOGNISED, BIAS, TORCH)]

    def gradients(o, least):
        masks.LEAST_PAIRS = least
        return torch.autograd.grad(o, inputs, g, retain_graph=True)

    return [lambda o=o, least=least: gradients(o, least) for o, least in zip(outputs, (LEAST_PAIRS, NOTHING, NOTHING))]


def table(given, type):
    print("| pass, n | mask | recognised | as a bias | PyTorch |\n|---|---|---|---|---|")
    for name in given.passes:
        for n in given.n:
            for kind, mask in masks(n).items():
                if given.kinds and kind not in given.kinds:
                    continue
                ways = calls(type, n, mask, name == "forward")
                for call in ways:  # until a plan has paid
                    for _ in range(60 if n < 1024 else 16):
                        call()
                rounds = 30 if n < 2048 else 10
                times = [[], [], []]
                for round in range(rounds):
                    for w in (1, 0, 2) if round % 2 else (0, 1, 2):
                        times[w].append(timed(ways[w]))
                cells = " | ".join(f"{statistics.median(t):.2f}" for t in times)
                print(f"| {name}, {n} | {kind} | {cells} |", flush=True)


def changing(given, type):
    print("| n | mask | recognised | as a bias |\n|---|---|---|---|")
    draw = random.Random(0)
    for n in given.n:
        q, k, v = torch.randn(3, given.batch, 8, n, 64).to(type)
        for causal in (False, True):

            def mask():
                lengths = torch.tensor([draw.randint(n // 4, n) for _ in range(given.batch)])
                keep = torch.arange(n) < lengths[:, None, None, None]
                return keep & torch.ones(n, n, dtype=torch.bool).tril() if causal else keep

            total = [0.0, 0.0]
            for round in range(WARM_UP + CALLS):
                keep = mask()
                for w in (0, 1) if round % 2 else (1, 0):
                    time_of = timed(lambda: (RECOGNISED, BIAS)[w](q, k, v, attn_mask=keep))
                    total[w] += time_of if round >= WARM_UP else 0
            kind = "causal and padding" if causal else "padding"
            print(f"| {n} | {kind} | {total[0] / CALLS:.2f} | {total[1] / CALLS:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("type", choices=["fp32", "bf16"])
    parser.add_argument("--n", type=lambda text: [int(x) for x in text.split(",")], default=[512, 1024, 2048])
    parser.add_argument("--passes", type=lambda text: text.split(","), default=["forward", "backward"])
    parser.add_argument("--kinds", type=lambda text: text.split(";"))
    parser.add_argument("--changing", action="store_true")
    parser.add_argument("--batch", type=int, default=4)
    given = parser.parse_args()
    (changing if given.changing else table)(given, {"fp32": torch.float32, "bf16": torch.bfloat16}[given.type])


if __name__ == "__main__":
    main()
