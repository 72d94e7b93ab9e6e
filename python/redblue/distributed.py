"""Attention over ranks: each process has some rows of q, k and v, and gets these rows of the result.

    o = redblue.attention(q, k, v, causal=True, comm=MPI.COMM_WORLD)      # or a process group of torch.distributed

docs/ranks.md says which rows a rank has, and how many words cross the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from ._call.arrays import is_tensor
from ._ranks.calls import Call, attention_backward, forward
from ._ranks.layout import Kept, Layout
from ._ranks.plans import Planned, count, plan, positions

if TYPE_CHECKING:
    from ._check.check import check as check

__all__ = ["Kept", "Layout", "Planned", "attention", "attention_backward", "check", "count", "plan", "positions"]


def __getattr__(name: str) -> Any:
    if name == "check":  # the referee of others' functions, which few programs need
        from ._check.check import check

        globals()["check"] = check
        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def attention(
    q: Any, k: Any, v: Any, *, comm: Any, ranks: Optional[Layout] = None, return_lse: bool = False, patience: float = 600.0,
    report: Optional[dict] = None, kept: Optional[Kept] = None, **options: Any,
) -> Any:  # fmt: skip
    """Attention over the ranks of a communicator, softmax(scale q k^T) v; all ranks call it, with the same options.

    q [batch, heads, rows, d], k [batch, kv_heads, rows, d] and v [batch, kv_heads, rows, d_v] are the rows that this rank has at
    home, in the order of their positions: `positions` says which. Options are those of redblue.attention that concern all
    ranks: masks, scale, bias, ALiBi, softcap, sinks, dropout, packed sequences (cu_seqlens_q and cu_seqlens_k of the whole), layout of
    arrays, compute, M and threads; others are refused. A bias has a row for each query of this rank and a column for each key of
    all ranks, or 1 where all share it; where queries leave home (head_groups or grid_cols above 1) blocks of it travel, too.

    comm        a communicator of mpi4py, a process group of torch.distributed (gloo), or a DeviceMesh of one dimension
    ranks       a Layout; default: keys and values move, each rank gets those that it needs
    return_lse  return (o, lse)
    patience    seconds to wait for a message of another rank
    report      a dict, into which goes what was moved: words and bytes by kind, messages, seconds, seconds waited
    kept        a Kept, for ranks.keeps_heads: what the gradient needs of the heads of this rank is left there

    Returns o [batch, heads, rows, d_v] of this rank, of the type of q; tensors that require gradients, q, k, v, bias and sinks, give a
    differentiable result. Partial results are float32, or float64 for float64, and are taken in in a fixed order: the same bits whenever
    messages arrive. Raises on every rank, where one of them cannot: what redblue.attention raises, or Error.

    Source: Liu, Zaharia & Abbeel 2023, arXiv 2310.01889 (ring); Jacobs et al. 2023, arXiv 2309.14509 (heads); docs/ranks.md.
    """
    of = forward
    if type(q) is not np.ndarray and is_tensor(q):
        from ._ranks import tensors

        of = tensors.of_tensors
    o, lse = of(q, k, v, Call(comm, ranks, patience, report, options, kept=kept))
    return (o, lse) if return_lse else o
