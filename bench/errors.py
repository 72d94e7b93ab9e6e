"""Errors of redblue in fp32, bf16 and fp16 beside PyTorch's, both against fp64 on the same numbers.

    python bench/errors.py [FAMILY ...]     # all: about 5 minutes on two cores that do other work, too

For each family of problems and each tensor it prints the worst ratio of largest errors and of errors in the root mean
square, over all problems, with one thread and two. PyTorch is its fused kernel for CPUs, which
scaled_dot_product_attention runs, and for softcap its own functions one after another."""

import math
import sys

import torch

import redblue

LONG = [(16, 100003), (48, 50021), (256, 16384), (1024, 2048), (2048, 2048)]
SHORT = [(1024, 1024), (256, 16384)]
FAMILIES = {  # sizes, and what differs from standard normal q, k, v, do of fp32
    "normal": ([(1, 100003), *LONG], {}),
    "causal": ([(2048, 2048)], {"causal": True}),
    "scores x 9": (LONG, {"times": 3.0}),
    "means of 1": (LONG, {"plus": 1.0}),
    "bias": (SHORT, {"bias": True}),
    "alibi": (SHORT, {"alibi": True}),
    "softcap 5": ([(1024, 1024)], {"cap": 5.0}),
    "softcap 30": ([(1024, 1024)], {"cap": 30.0}),
    "softcap 50": ([(1024, 1024)], {"cap": 50.0}),
    "softcap 5, 16 queries": ([(16, 100003)], {"cap": 5.0}),
    "softcap 5, scores x 9": ([(1024, 1024)], {"cap": 5.0, "times": 3.0}),
    "bf16": (SHORT, {"dtype": torch.bfloat16}),
    "fp16": (SHORT, {"dtype": torch.float16}),
}


def composed(q, k, v, bias, cap):
    s = q @ k.mT / math.sqrt(q.shape[-1])
    s = cap * torch.tanh(s / cap) if cap else s
    s = s if bias is None else s + bias
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def of_pytorch(q, k, v, bias, causal):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=bias)


def with_gradients(f, do, *qkv):
    qkv = [x.detach().requires_grad_() for x in qkv]
    o, lse = f(*qkv)
    return [x.detach() for x in (o, lse, *torch.autograd.grad(o, qkv, do))]


def ratios(n_q, n_k, d, causal=False, times=1.0, plus=0.0, bias=None, alibi=False, cap=0.0, dtype=torch.float32):
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(1, 2, n, d) for n in (n_q, n_k, n_k, n_q))
    tensors = [x.to(dtype) for x in (do, q * times + plus, k * times + plus, v + plus)]
    options, b = {}, None
    if bias:
        options["bias"] = b = torch.randn(1, 2, n_q, n_k)
    if alibi:
        options["alibi_slopes"] = slopes = torch.tensor([0.5, 0.25])
        b = -slopes[:, None, None] * (torch.arange(n_q)[:, None] + n_k - n_q - torch.arange(n_k)).abs()[None, None]
    if cap:
        options["softcap"] = cap
    shown = torch.full((n_q, n_k), -math.inf).triu(1).double() if causal else None if b is None else b.double()
    exact = with_gradients(lambda *x: composed(*x, shown, cap), *(x.double() for x in tensors))
    peer = with_gradients(lambda *x: composed(*x, b, cap) if cap else of_pytorch(*x, b, causal), *tensors)
    theirs = [x.double() - y for x, y in zip(peer, exact)]
    for threads in (1, 2):
        options.update(causal=causal, threads=threads)
        o, lse = redblue.attention(*tensors[1:], return_lse=True, **options)
        mine = [o, lse, *redblue.attention_backward(*tensors, o, lse, **options)[:3]]
        errors = [x.double() - y for x, y in zip(mine, exact)]
        yield [(e.abs().max() / t.abs().max(), e.norm() / t.norm()) for e, t in zip(errors, theirs)]


print(f"{'':24}" + "".join(f"{name:>14}" for name in ("o", "lse", "dq", "dk", "dv")))
for family in sys.argv[1:] or FAMILIES:
    sizes, options = FAMILIES[family]
    found = torch.tensor([r for n in sizes for d in (64, 128) for r in ratios(*n, d, **options)])
    print(f"{family:24}" + "".join(f"{most:8.2f} {rms:5.2f}" for most, rms in found.amax(0)), flush=True)
