"""Functions that redblue.distributed.check tries, and edits of ring_by_hand.py that make it wrong."""

import time

import torch
import torch.distributed as dist

import redblue
from redblue.distributed import Layout

OWN = {
    "causal", "window", "scale", "documents", "gqa", "d_v", "cross", "uneven", "empty", "strided", "bf16", "backward", "lse",
    "sinks", "deterministic", "subgroup", "lse_gradient",
}  # fmt: skip


def own(q, k, v, *, group, ownership="contiguous", **options):
    """redblue's own."""
    cu_seqlens = options.pop("cu_seqlens", None)
    if cu_seqlens is not None:
        options["cu_seqlens_q"] = options["cu_seqlens_k"] = cu_seqlens
    layout = Layout(grid_rows=dist.get_world_size(group), ownership=ownership)
    return redblue.distributed.attention(q, k, v, comm=group, ranks=layout, return_lse=True, M=2000, **options)


def gathered(q, k, v, *, group):
    """All keys on every rank, by a functional collective: right."""
    P, own = dist.get_world_size(group), torch.stack([k, v]).contiguous()
    functional = torch.ops._c10d_functional
    both = functional.wait_tensor(functional.all_gather_into_tensor(own, P, group.group_name))
    return torch.nn.functional.scaled_dot_product_attention(q, *torch.cat(both.chunk(P), 3))


def own_zigzag(q, k, v, *, group, **options):
    o, _ = own(q, k, v, group=group, ownership="zig-zag", **options)
    return o


def repeated(q, k, v, *, group):
    """Keys and values are sent once for each query head: right, and wasteful."""
    return gathered(q, *(x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v)), group=group)


def never(q, k, v, *, group):
    """The last rank waits for a message that no rank sends."""
    if dist.get_rank(group) == dist.get_world_size(group) - 1 > 0:
        dist.recv(torch.empty(3), group=group, group_src=0)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def sleeps(q, k, v, *, group):
    if dist.get_rank(group) == 1:
        time.sleep(600)
    return gathered(q, k, v, group=group)


def raises(q, k, v, *, group):
    if dist.get_rank(group) == 1:
        raise ValueError("one rank will not")
    return gathered(q, k, v, group=group)


def dies(q, k, v, *, group):
    if dist.get_rank(group) == 1:
        import os

        os._exit(7)
    return gathered(q, k, v, group=group)


def in_place(q, k, v, *, group):
    o = gathered(q, k, v, group=group)
    k.zero_()
    return o


def short(q, k, v, *, group):
    return gathered(q, k, v, group=group)[:, :, 1:]


KEPT = {}


class Keeps(torch.autograd.Function):
    """The forward pass leaves what the backward pass needs in one place for all calls."""

    @staticmethod
    def forward(ctx, q, k, v):
        KEPT["last"] = [x.detach().requires_grad_() for x in (q, k, v)]
        with torch.enable_grad():
            KEPT["o"] = torch.nn.functional.scaled_dot_product_attention(*KEPT["last"])
        return KEPT["o"].detach()

    @staticmethod
    def backward(ctx, do):
        return torch.autograd.grad(KEPT["o"], KEPT["last"], do, retain_graph=True)


def keeps(q, k, v, *, group):
    """Right on one rank, unless another call comes before its backward pass."""
    return Keeps.apply(q, k, v)


DOCUMENTS = {}


def remembers(q, k, v, *, group, cu_seqlens=None):
    """The documents of the first call of a size are those of all."""
    ends = DOCUMENTS.setdefault(q.shape, cu_seqlens)
    mask = None
    if ends is not None:
        of = torch.searchsorted(ends[1:], torch.arange(q.shape[2], dtype=torch.int32), right=True)
        mask = of[:, None] == of
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def rounding(q, k, v, *, group):
    """Partial results of a ring are rounded to the type of q at each step."""
    P, me = dist.get_world_size(group), dist.get_rank(group)
    parts = [torch.empty_like(torch.stack([k, v])) for _ in range(P)]
    dist.all_gather(parts, torch.stack([k, v]), group=group)
    o, lse = torch.zeros_like(q), torch.full(q.shape[:-1], -torch.inf)[..., None]
    for step in range(P):
        k_j, v_j = parts[(me - step) % P]
        s = q.float() @ k_j.float().mT / q.shape[-1] ** 0.5
        of_block = s.logsumexp(-1, keepdim=True)
        both = torch.logaddexp(lse, of_block)
        o = (o * torch.exp(lse - both) + torch.exp(s - both) @ v_j.float()).to(q.dtype)
        lse = both
    return o


def merging(q, k, v, *, group):
    """As `rounding`, but rounded once."""
    return rounding(q.float(), k.float(), v.float(), group=group).to(q.dtype)


#: Name: what stands in ring_by_hand.py, what takes its place, a case that sees it, and words of the report.
EDITS = {
    "stale keys in the last step": (
        "            if step < P - 1:\n                k_j, v_j = turn(group, k_j, v_j)\n        ctx",
        "            if step < P - 2:\n                k_j, v_j = turn(group, k_j, v_j)\n        ctx",
        "plain",
        "o is wrong",
    ),
    "stale keys in the backward pass": (
        "            if step < P - 1:\n                k_j, v_j = turn(group, k_j, v_j)\n            dk",
        "            if step < P - 2:\n                k_j, v_j = turn(group, k_j, v_j)\n            dk",
        "plain",
        "dq is wrong",
    ),
    "gradients one rank from home": ("            dk, dv = turn", "            if step < P - 1: dk, dv = turn", "plain", "dk is wrong"),
    "lse of base 2 merged with base e": ("both = torch.logaddexp(lse, of_block)", "both = torch.logaddexp2(lse, of_block)", "plain", "is wrong"),
    "lse of base 2 returned": ("lse.flatten(1, 2).squeeze(-1)", "lse.flatten(1, 2).squeeze(-1) * 1.442695", "plain", "logarithms of base 2"),
    "causal is ignored": ("Ring.apply(q, k, v, group, causal)", "Ring.apply(q, k, v, group, False)", "causal", "as if causal is ignored"),
    "positions within the rank": ("if causal and step == 0:", "if causal:", "causal", "is wrong"),
    "no exchange": ("P, me = q.unflatten(1, (k.shape[1], -1)), dist.get_world_size(group)", "P, me = q.unflatten(1, (k.shape[1], -1)), 1",
                    "plain", "each rank sees its own keys alone"),
    "kv heads dealt in turn": ("q.unflatten(1, (k.shape[1], -1))", "q.unflatten(1, (-1, k.shape[1])).transpose(1, 2)", "grouped 2 : 1", "is wrong"),
}  # fmt: skip
