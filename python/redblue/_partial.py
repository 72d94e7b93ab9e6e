"""Attention to some of the keys at a time: each call goes on from what the calls before it gave."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NoReturn, Optional

from . import _core
from ._attention import Gradients, refuse_gradients, request
from ._call.arrays import require_shape
from ._call.calls import Call, call_for
from ._call.lse import require_small
from ._call.options import Options
from ._call.request import Request
from ._call.settings import asked_threads, outputs, tokens_first
from ._call.threads import default_threads
from ._errors import InvalidProblem

if TYPE_CHECKING:
    from typing_extensions import Unpack
elif sys.version_info >= (3, 11):  # for typing.get_type_hints
    from typing import Unpack

_NO_GRADIENTS = "has no gradients: call it under torch.no_grad() or give tensors.detach(); attention has them"


def attention_partial(
    q: Any, k: Any, v: Any, o: Any = None, lse: Any = None, **options: Unpack[Options]
) -> tuple[Any, Any]:
    """Attends to these keys into o and lse, which hold what attention to other keys gave.

    q, k, v and options are those of `attention`; k and v are a part of all keys and values. o [batch, heads, n_q, d_v] and
    lse [batch, heads, n_q], the natural logarithm of the sum of its weights, are those of the parts before, and are written
    in place; lse = -inf (with o = 0) where a query has seen no key yet. Their type is that of the arithmetic: float64 for
    float64, else float32. Without both a new state begins. The order of parts matters to roundings only. A query that
    sees none of these keys keeps its o and lse.

        o, lse = redblue.attention_partial(q, k[:, :, :n], v[:, :, :n])
        redblue.attention_partial(q, k[:, :, n:], v[:, :, n:], o, lse)

    With causal, window, alibi_slopes or dilation `alignment` is a number: query i sees the keys j <= i + alignment of this
    part. For the part that begins at key s that is the offset of all keys less s: n_k - n_q - s where the last query sees
    the last key. Sinks, dropout and approximations are refused. An option bias is of these keys. Tensors that require
    gradients are refused: attention_partial_backward has them.

    Returns (o, lse). Raises what `attention` raises.

    Source: Milakov & Gimelshein 2018, arXiv 1805.02867; docs/algorithms/accumulating.md.
    """
    refuse_gradients(f"attention_partial {_NO_GRADIENTS}", q, k, v, o, lse)
    if (o is None) != (lse is None):
        raise InvalidProblem("o and lse: give both, as an earlier part returned them, or neither")
    r = request(q, k, v, **options)
    _require_exact(r)
    begins = o is None
    call = call_for("forward", r.family, r.q, r.k, r.v, r.settings, (True, not begins))
    word = _word(call)
    if begins:
        o, lse = (r.family.empty(r.q, shape, word) for shape in (call.o_shape, call.lse_shape))
    into = r.family.written(o, call.o_shape, "o"), r.family.written(lse, call.lse_shape, "lse")
    for x, name in zip(into, ("o", "lse")):
        _require_word(r, x, name, word)
    if call.plan is not None:
        r.family.run(call.plan, r.arrays(*into), call.tokens_first, 0)
    elif begins:
        into[0][...], into[1][...] = 0, -math.inf
    return (r.family.finished(o), r.family.finished(lse)) if begins else (o, lse)


def attention_partial_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    **options: Unpack[Options],
) -> Gradients:
    """Adds the gradients of SUM do o with respect to q and to these keys and values to dq, dk and dv.

    do and o [batch, heads, n_q, d_v] and lse [batch, heads, n_q] are those of attention to all keys; k, v and options are
    those of attention_partial for this part. dq, dk and dv have the shapes of q, k and v and the type of the arithmetic, as
    o and lse of attention_partial, and are added to in place; those that are not given begin as zeros. After all parts dq is
    the gradient of q, and dk and dv those of their parts.

    Returns Gradients(dq, dk, dv). Raises what `attention` raises, and Unsupported where do is not 0 for a query whose bias
    holds nothing but huge numbers (docs/numerics.md).

    Source: Dao et al. 2022, arXiv 2205.14135, appendix B; docs/algorithms/accumulating.md.
    """
    refuse_gradients(f"attention_partial_backward {_NO_GRADIENTS}", q, k, v, do, o, lse)
    r = request(q, k, v, **options)
    _require_exact(r)
    family = r.family
    do, o, lse = (family.given(x, name) for x, name in ((do, "do"), (o, "o"), (lse, "lse")))
    call = call_for("backward", family, r.q, r.k, r.v, r.settings, (True, False, False, False, True), do)
    for name, x, shape in (("do", do, call.o_shape), ("o", o, call.o_shape), ("lse", lse, call.lse_shape)):
        require_shape(name, x, shape)
    require_small(r, call, do.reshape(call.o_shape), lse.reshape(call.lse_shape))
    if call.wanted.compute == "bf16":
        do = family.dense(do)
    word, gradients, results = _word(call), [], []
    for x, given, name in ((r.q, dq, "dq"), (r.k, dk, "dk"), (r.v, dv, "dv")):
        fresh = family.empty(x, tuple(x.shape), word) if given is None else given
        into = family.written(fresh, x.shape, name)
        _require_word(r, into, name, word)
        if given is None:
            into[...] = 0
        gradients.append(into)
        results.append(family.finished(fresh) if given is None else given)
    if call.plan is not None:
        family.run(call.plan, r.arrays(o, lse, do, *gradients), call.tokens_first, 0)
    return Gradients(*results)


def merge(
    o1: Any,
    lse1: Any,
    o2: Any,
    lse2: Any,
    *,
    out: Optional[tuple] = None,
    layout: str = "bhsd",
    threads: Optional[int] = None,
) -> tuple[Any, Any]:
    """Attention to two sets of keys that share none, as one: the o and lse of the softmax over both.

    o1 and o2 [batch, heads, n_q, d_v] (or without sizes in front; in `layout`) and lse1 and lse2 [batch, heads, n_q],
    natural logarithms, are those of attention to either set: float32 or float64, all of one type. `out`: the (o, lse) to
    write to, which may be (o1, lse1); without it they are new. Order matters to roundings only; lse = -inf is a side that
    has seen no key.

    Returns (o, lse). Raises InvalidProblem, or TypeError for arrays that it cannot read.

    Source: Dao et al. 2023 (Flash-decoding); docs/algorithms/accumulating.md.
    """
    refuse_gradients(f"merge {_NO_GRADIENTS}", o1, lse1, o2, lse2)
    first = tokens_first(layout)
    r = request(o1, o1, o1, layout=layout)
    family = r.family
    x, y = r.q, family.given(o2, "o2")
    rows = _rows_of(tuple(x.shape), first)
    ln, more = family.given(lse1, "lse1"), family.given(lse2, "lse2")
    require_shape("o2", y, tuple(x.shape))
    require_shape("lse1", ln, rows)
    require_shape("lse2", more, rows)
    word = family.type_of(x, "o1")
    if word not in ("f64", "f32"):
        _refuse_word("o1", word, "float32 or float64")
    for array, name in ((y, "o2"), (ln, "lse1"), (more, "lse2")):
        _require_word(r, array, name, word)
    results = (family.empty(x, tuple(x.shape), word), family.empty(x, rows, word)) if out is None else outputs("out", out, ("o", "lse"))
    into = family.written(results[0], tuple(x.shape), "out[0]"), family.written(results[1], rows, "out[1]")
    for given, array, name in ((x, into[0], "out[0]"), (ln, into[1], "out[1]")):
        _require_word(r, array, name, word)
        array[...] = given
    if 0 not in x.shape:
        n = family.native
        count = default_threads() if threads is None else asked_threads(threads)
        _core.merge(n(into[0]), n(into[1]), n(y), n(more), first, count)
    return (family.finished(results[0]), family.finished(results[1])) if out is None else (results[0], results[1])


def _rows_of(shape: tuple, first: bool) -> tuple:
    if first:
        return (*shape[:-3], shape[-2], shape[-3])
    return shape[:-1]


def _require_exact(r: Request) -> None:
    if r.tolerance is not None:
        raise InvalidProblem("tolerance: parts of the keys are attended to exactly; leave it out")


def _word(call: Call) -> str:
    return "f64" if call.wanted.compute == "f64" else "f32"


def _require_word(r: Request, x: Any, name: str, word: str) -> None:
    found = r.family.type_of(x, name)
    if found != word:
        _refuse_word(name, found, {"f32": "float32", "f64": "float64"}[word])


def _refuse_word(name: str, found: str, wanted: str) -> NoReturn:
    raise InvalidProblem(
        f"{name} has elements of type {found}: what parts are added in has the type of the arithmetic, here {wanted}; another "
        "type would round each part"
    )
