"""Gradients of attention over ranks, for tensors of PyTorch."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import distributed
from ._errors import Unsupported


class _OverRanks(torch.autograd.Function):
    """The forward pass leaves o and lse on each rank; the backward pass moves the rest again."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: tuple) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        comm, ranks, patience, report, options = call
        o, lse = distributed.forward(q.detach(), k.detach(), v.detach(), comm, ranks, patience, report, options)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.call = call
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor, _dlse: Any) -> tuple:  # type: ignore[override]
        q, k, v, o, lse = ctx.saved_tensors
        comm, ranks, patience, _, options = ctx.call
        with torch.no_grad():
            found = distributed.attention_backward(do, q, k, v, o, lse, comm=comm, ranks=ranks, patience=patience, **options)
        return found.dq, found.dk, found.dv, None


def with_gradients(
    q: Tensor, k: Tensor, v: Tensor, comm: Any, ranks: Any, patience: float, report: Optional[dict], options: dict
) -> tuple[Tensor, Tensor]:
    """o, and lse, which has no gradient. Every rank calls the backward pass, too."""
    wanted = [name for name in ("bias", "alibi_slopes", "sinks") if getattr(options.get(name), "requires_grad", False)]
    if wanted:
        raise Unsupported(f"{', '.join(wanted)}: attention over ranks has gradients of q, k and v only; detach the others")
    return _OverRanks.apply(q, k, v, (comm, ranks, patience, report, options))  # type: ignore[no-any-return]
