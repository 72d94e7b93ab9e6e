"""What attention does to scores, as matrices with a word for each query and key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ._attention import refuse_gradients, request
from ._call.calls import call_for
from ._call.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack
elif sys.version_info >= (3, 11):  # for typing.get_type_hints
    from typing import Unpack


def scores(q: Any, k: Any, **options: Unpack[Options]) -> Any:
    """The scores of attention just before the softmax: scale q k^T with softcap, ALiBi, bias and mask.

    q [batch, heads, n_q, d], k [batch, kv_heads, n_k, d] and options are those of `attention`. Sinks and dropout change
    no score. What approximates attention is refused, and so are tensors that require gradients.

    Returns s [batch, heads, n_q, n_k] of the kind and type of q; -inf where the mask hides a key. Raises what
    `attention` raises. Source: docs/semantics.md.
    """
    return _of_pairs("scores", q, k, None, options)


def weights(q: Any, k: Any, lse: Any, **options: Unpack[Options]) -> Any:
    """The weights of attention, exp(scores - lse): the matrix that multiplies v.

    q, k and options are those of `scores`; lse [batch, heads, n_q] is what `attention(..., return_lse=True)` gave, with
    sinks if there were any.

    Returns p [batch, heads, n_q, n_k] of the kind and type of q; 0 where the mask hides a key. Rows add up to 1, less the
    share of the sinks. Raises what `attention` raises. Source: docs/semantics.md.
    """
    return _of_pairs("weights", q, k, lse, options)


def _of_pairs(op: str, q: Any, k: Any, lse: Any, options: Options) -> Any:
    why = f"{op} has no gradients: call it under torch.no_grad() or give tensors.detach(); attention has them"
    refuse_gradients(why, q, k, lse, *(options.get(name) for name in ("bias", "alibi_slopes", "sinks")))
    r = request(q, k, k, **options)
    family = r.family
    call = call_for(op, family, r.q, r.k, r.v, r.settings, ())
    lse = None if lse is None else family.given(lse, "lse")
    matrix = family.empty(r.q, call.pairs_shape, call.type)
    output = {"scores": {"s": matrix}, "weights": {"p": matrix}}[op]
    if call.plan is not None:  # without queries or keys the matrix has no entry
        family.run(call.plan, r._replace(v=None).arrays(lse=lse, **output), call.tokens_first, 0)
    return family.finished(matrix)
