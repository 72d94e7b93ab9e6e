"""Gradients of attention over ranks, for tensors of PyTorch."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._errors import Unsupported
from .._torch.graphs import end_graphs
from .._torch.lse import with_gradient_of_lse
from .calls import Call, attention_backward, forward
from .comm import communicator
from .layout import Kept, Layout


class _OverRanks(torch.autograd.Function):
    """The forward pass leaves o and lse on each rank; the backward pass moves the rest again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor], call: Call
    ) -> tuple[Tensor, Tensor]:
        o, lse = forward(q.detach(), k.detach(), v.detach(), call._replace(options=_with(call.options, bias, sinks)))
        ctx.save_for_backward(q, k, v, bias, sinks, o, lse)
        ctx.call = call  # holds what is kept
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Optional[Tensor], dlse: Optional[Tensor]) -> tuple:  # type: ignore[override]
        q, k, v, bias, sinks, o, lse = ctx.saved_tensors
        comm, ranks, patience = ctx.call[:3]
        kept = ctx.call.kept
        options = _with(ctx.call.options, bias, sinks)
        with torch.no_grad():
            of_lse = communicator(comm, patience).total([int(dlse is not None)])[0] > 0  # on any rank: all of them move the same rows
            own_v = v
            if of_lse:
                if kept is not None:
                    raise Unsupported("ranks.keeps_heads: the gradient of lse has other values than were kept; leave one of them out")
                if options.get("bias") is not None:
                    raise Unsupported("bias: attention over ranks has no gradient of lse under one; leave lse out of the loss")
                dlse = torch.zeros_like(lse) if dlse is None else dlse
                do, o, v = with_gradient_of_lse(do, dlse, o, v, options.get("layout", "bhsd"), None)
                if options.get("compute") is None and q.element_size() == 2:  # do is float32 now
                    options = {**options, "compute": "f32"}
            do = torch.zeros_like(o) if do is None else do
            found = attention_backward(
                do, q, k, v, o, lse, comm=comm, ranks=ranks, bias_gradient=bias is not None, sinks_gradient=sinks is not None,
                patience=patience, kept=kept, **options,
            )  # fmt: skip
        return found.dq, found.dk, found.dv[..., : own_v.shape[-1]], found.dbias, found.dsinks, None


def _with(options: dict, bias: Optional[Tensor], sinks: Optional[Tensor]) -> dict:
    return {**options, **{name: x.detach() for name, x in (("bias", bias), ("sinks", sinks)) if x is not None}}


def of_tensors(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """o and lse, with gradients where an input requires one."""
    if any(getattr(x, "requires_grad", False) for x in (q, k, v, *(call.options.get(name) for name in MODIFIERS))):
        return with_gradients(q, k, v, call)
    if _keeps(call):
        call = call._replace(ranks=call.ranks._replace(keeps_heads=False))  # type: ignore[union-attr]  # there is no gradient to keep for
    return forward(q, k, v, call)


def _keeps(call: Call) -> bool:
    """Are heads to be kept, and the caller has not said where?"""
    return isinstance(call.ranks, Layout) and call.ranks.keeps_heads is True and call.kept is None


#: Inputs that modify scores.
MODIFIERS = "bias", "alibi_slopes", "sinks"


def with_gradients(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """o and lse. Every rank calls the backward pass, too; the same of bias and sinks require gradients on all of them."""
    wanted = {name: x for name in MODIFIERS if getattr(x := call.options.get(name), "requires_grad", False)}
    if "alibi_slopes" in wanted:
        raise Unsupported("alibi_slopes: attention over ranks has no gradient of them; detach them")
    others = {name: x for name, x in call.options.items() if name not in wanted}
    call = call._replace(options=others, differentiable=torch.is_grad_enabled())
    if _keeps(call):
        call = call._replace(kept=Kept())
    return _OverRanks.apply(q, k, v, wanted.get("bias"), wanted.get("sinks"), call)  # type: ignore[no-any-return]


end_graphs(globals(), {"of_tensors": "comm: ranks send messages while they work, so that fullgraph=True is not for it"})
