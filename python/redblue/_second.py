"""How attention moves along with its arrays, and the gradients of its gradients."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ._attention import refuse_gradients, request, require_exact, seen
from ._call.arrays import require_shape
from ._call.calls import call_for
from ._call.lse import has_float_bias, require_keys, rescaled
from ._call.options import Options
from ._call.request import Request
from ._call.settings import flag, tokens_first
from ._errors import InvalidProblem

if TYPE_CHECKING:
    from typing_extensions import Unpack
elif sys.version_info >= (3, 11):  # for typing.get_type_hints
    from typing import Unpack

_NO_GRADIENTS = "has no gradients: call it under torch.no_grad() or give tensors.detach(); gradients of third order are not computed"


class Tangents(NamedTuple):
    """How o and lse move."""

    o: Any
    lse: Any


class SecondGradients(NamedTuple):
    """The gradients of SUM gq dq + SUM gk dk + SUM gv dv, and + SUM gbias dbias + SUM gsinks dsinks."""

    q: Any
    k: Any
    v: Any
    do: Any
    dlse: Any
    bias: Any
    sinks: Any


def attention_tangent(
    tq: Any, tk: Any, tv: Any, q: Any, k: Any, v: Any, o: Any = None, lse: Any = None, *, tbias: Any = None, tsinks: Any = None,
    **options: Unpack[Options],
) -> Tangents:  # fmt: skip
    """How o and lse move when q, k, v, bias and sinks move along tq, tk, tv, tbias and tsinks, which have their shapes; None: that
    array is at rest.

    o and lse are those that `attention(..., return_lse=True)` gave for the same arrays and options. Without both of them a
    forward pass runs first. Options are those of `attention` but `tolerance` and `approximate`; alibi_slopes are at
    rest, and a bias that moves is of floats. Arithmetic is in fp32, or fp64 for float64.

    Returns Tangents(o, lse). Raises what `attention` raises. Source: docs/algorithms/second-derivatives.md.
    """
    refuse_gradients(f"attention_tangent {_NO_GRADIENTS}", tq, tk, tv, q, k, v, o, lse, tbias, tsinks)
    r = _request("attention_tangent", q, k, v, o, lse, options)
    moves = tbias is not None, tsinks is not None
    _require_moving(r, moves, "tbias", "tsinks")
    o, lse = seen(r, q, k, v, o, lse, options)
    family, given = r.family, _directions(r, moves, tq=tq, tk=tk, tv=tv, tbias=tbias, tsinks=tsinks)
    call = call_for("tangent", family, r.q, r.k, r.v, r.settings, (o is not None, False, *moves))
    found = Tangents(family.empty(r.q, call.o_shape, call.type), family.empty(r.q, call.lse_shape, call.lse_type))
    _run(r, call, found, o, lse, to=found.o, tlse=found.lse, **given)
    if lse is not None and call.plan is not None and has_float_bias(r):  # tangents have the weights as a factor, as gradients do
        of_lse = family.given(lse, "lse").reshape(call.lse_shape)
        found.o[...], found.lse[...] = rescaled(r, call, found.o, found.lse, of_lse)
    return Tangents(*map(family.finished, found))


def attention_second(
    gq: Any, gk: Any, gv: Any, do: Any, q: Any, k: Any, v: Any, o: Any = None, lse: Any = None, *, dlse: Any = None,
    gbias: Any = None, bias_gradient: bool = False, gsinks: Any = None, sinks_gradient: bool = False, **options: Unpack[Options],
) -> SecondGradients:  # fmt: skip
    """The gradients of SUM gq dq + SUM gk dk + SUM gv dv in q, k, v, do and dlse, for the dq, dk and dv of
    `attention_backward`, whose do and dlse these are; with gbias of SUM gbias dbias, too, and in bias; with
    gsinks of SUM gsinks dsinks, and in sinks.

    gq, gk, gv, gbias and gsinks have the shapes of q, k, v, bias and sinks; None is 0. bias_gradient asks for the gradient in
    bias where no gbias is given, and sinks_gradient for that in sinks where no gsinks are. gbias and bias_gradient want a bias of
    floats. o and lse, options and arithmetic are those of
    `attention_tangent`. Memory is O(n d) beside the bias.

    Returns SecondGradients(q, k, v, do, dlse, bias, sinks), the last three None where dlse is not given, or nothing asks for bias,
    or for sinks. Raises what `attention` raises.

    Source: docs/algorithms/second-derivatives.md.
    """
    refuse_gradients(f"attention_second {_NO_GRADIENTS}", gq, gk, gv, do, q, k, v, o, lse, dlse, gbias, gsinks)
    r = _request("attention_second", q, k, v, o, lse, options)
    moves = flag("bias_gradient", bias_gradient) or gbias is not None, flag("sinks_gradient", sinks_gradient) or gsinks is not None
    _require_moving(r, moves, "gbias and bias_gradient", "gsinks and sinks_gradient")
    o, lse = seen(r, q, k, v, o, lse, options)
    family, given = r.family, _directions(r, moves, gq=gq, gk=gk, gv=gv, gbias=gbias, gsinks=gsinks)
    if dlse is not None:
        require_keys(r.k.shape[-3 if tokens_first(r.settings.layout) else -2], r.sinks)
        dlse = family.given(dlse, "dlse")
    do = family.given(do, "do")
    call = call_for("second", family, r.q, r.k, r.v, r.settings, (o is not None, dlse is not None, *moves))
    require_shape("do", do, call.o_shape)
    if dlse is not None:
        require_shape("dlse", dlse, call.lse_shape)
        dlse = dlse.reshape(call.lse_shape)
    if lse is not None:
        lse = family.given(lse, "lse")
        require_shape("lse", lse, call.lse_shape)
        do, dlse = rescaled(r, call, do.reshape(call.o_shape), dlse, lse.reshape(call.lse_shape))

    def like(x: Any) -> Any:
        return family.empty(x, tuple(x.shape), family.type_of(x, "an input"))

    of_do = family.empty(r.q, call.o_shape, call.type)
    of_dlse = None if dlse is None else family.empty(r.q, call.lse_shape, call.lse_type)
    of_bias, of_sinks = (like(x) if wanted else None for x, wanted in zip((r.bias, r.sinks), moves))
    found = SecondGradients(like(r.q), like(r.k), like(r.v), of_do, of_dlse, of_bias, of_sinks)
    names = ("lq", "lk", "lv", "ldo", "ldlse", "lbias", "lsinks")
    _run(r, call, found, o, lse, do=do, dlse=dlse, **dict(zip(names, found)), **given)
    return SecondGradients(*(None if x is None else family.finished(x) for x in found))


def moving_request(op: str, q: Any, k: Any, v: Any, bias_gradient: bool, sinks_gradient: bool, options: Options) -> Request:
    """What redblue.explain asks of "tangent" and "second", where bias and sinks move if it says so."""
    r = _request(f"attention_{op}", q, k, v, None, None, options)
    _require_moving(r, (bias_gradient, sinks_gradient), "bias_gradient", "sinks_gradient")
    return r


def _request(what: str, q: Any, k: Any, v: Any, o: Any, lse: Any, options: Options) -> Request:
    if (o is None) != (lse is None):
        raise InvalidProblem("o and lse: give both, as attention(..., return_lse=True) returns them, or neither")
    r = request(q, k, v, **options)
    require_exact(r.settings.approximate, r.tolerance, what)
    return r


def _require_moving(r: Request, moves: tuple[bool, bool], of_bias: str, of_sinks: str) -> None:
    """`moves` says whether bias and sinks move, by these arguments."""
    if moves[0] and r.bias is None:
        raise InvalidProblem(f"{of_bias}: there is no bias; give one, or leave {of_bias} out")
    if moves[0] and not has_float_bias(r):
        raise InvalidProblem(f"{of_bias}: bias is of bool and does not move; leave {of_bias} out, or give floats")
    if moves[1] and r.sinks is None:
        raise InvalidProblem(f"{of_sinks}: there are no sinks; give them, or leave {of_sinks} out")
    if moves[1]:
        require_keys(r.k.shape[-3 if tokens_first(r.settings.layout) else -2], r.sinks)


def _directions(r: Request, moves: tuple[bool, bool], **given: Any) -> dict[str, Any]:
    """The directions in which q, k and v, and bias and sinks if they do, move, zeros where none is given."""
    found = {}
    for (name, x), own, does in zip(given.items(), (r.q, r.k, r.v, r.bias, r.sinks), (True, True, True, *moves)):
        if not does:
            continue
        found[name] = r.family.zeros(own) if x is None else r.family.given(x, name)
        require_shape(name, found[name], tuple(own.shape))
    return found


def _run(r: Request, call: Any, found: Any, o: Any, lse: Any, do: Optional[Any] = None, **others: Any) -> None:
    family = r.family
    if call.plan is None:
        for x in found:
            if x is not None:
                x[...] = 0
        return
    o, lse = (None if x is None else family.given(x, name) for x, name in ((o, "o"), (lse, "lse")))
    family.run(call.plan, r.arrays(o, lse, do, **others), call.tokens_first, r.seed)
