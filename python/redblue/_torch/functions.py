"""Attention, its gradients, tangents and second gradients as functions that torch can transform: torch.func.grad, vjp, jvp and
vmap, in any order up to second derivatives, torch.autograd with create_graph, and forward_ad.

Each one's derivatives are the others. F is attention, x = (q, k, v, bias, sinks), ' a derivative, and t a direction of x:

    attention   F(x)                  along t: tangent(t)             backward from u: gradients(u)
    gradients   F'(x)^T u             along t: second(t, u)           backward from g: second(g, u)
                                      along w of u: gradients(w)
    tangent     F'(x) t               along w of t: tangent(w)        backward from u: second(t, u), and gradients(u) for t
    second      of <F'(x) g, u>       third derivatives: refused

For F'' is symmetric: how F'(x)^T u moves along t is the gradient of <F'(x) t, u> in x. o and lse are functions of x, and what
depends on x through them is part of the above: they have no derivatives of their own here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from torch import Tensor
from torch.autograd import Function

from .._errors import Unsupported
from . import vmap

_BACKWARD = ("do", "o", "lse", "dlse", "bias_gradient", "sinks_gradient")
_MOVING = ("q", "k", "v", "bias", "sinks")
_SECOND = ("gq", "gk", "gv", "gbias", "gsinks", "bias_gradient", "sinks_gradient", "do", "o", "lse", "dlse")
_TANGENT = ("tq", "tk", "tv", "tbias", "tsinks", "o", "lse")


def third_derivatives() -> Unsupported:
    return Unsupported(
        "third derivatives of redblue's attention are not computed: outside of redblue.use() torch's math path computes them, "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH). Gradients of what moves in a dual_level of torch.autograd.forward_ad are "
        "second derivatives only after that level has ended"
    )


def require_still_slopes(what: str, moved: Any) -> None:
    if moved is not None and moved is not False:
        raise Unsupported(f"{what} alibi_slopes are not computed: give these at rest, without tangents and gradients")


def require_no_slopes(needs: bool) -> None:
    if needs:
        raise Unsupported("the gradient of alibi_slopes is not computed: give slopes that require none, by .detach()")


def require_exact_tangents(approximate: Optional[str]) -> None:
    if approximate is not None:
        raise Unsupported("tangents of approximations are not computed: give approximate = None")


def require_exact_gradients(approximate: Optional[str]) -> None:
    if approximate is not None:
        raise Unsupported("gradients of gradients of approximations are not computed: give approximate = None")


def keep(ctx: Any, names: Sequence[str], inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> None:
    """All inputs and outputs by name, for the derivatives."""
    ctx.set_materialize_grads(False)
    given = dict(zip(names, (*inputs, *outputs)))
    ctx.tensors = [name for name, x in given.items() if isinstance(x, Tensor)]
    ctx.save_for_backward(*(given[name] for name in ctx.tensors))
    ctx.save_for_forward(*(given[name] for name in ctx.tensors))
    ctx.others = {name: x for name, x in given.items() if not isinstance(x, Tensor)}


def kept(ctx: Any) -> dict[str, Any]:
    return {**ctx.others, **dict(zip(ctx.tensors, ctx.saved_tensors))}


def _sum(a: Optional[Tensor], b: Optional[Tensor]) -> Optional[Tensor]:
    return b if a is None else a if b is None else a + b


class Functions(NamedTuple):
    """Each takes the arguments of its operator, and last the patterns that the call has, which it holds."""

    attention: Any
    gradients: Any
    tangent: Any
    second: Any


def functions_of(forward: Callable, backward: Callable, tangent: Callable, second: Callable, of_operator: Sequence[str]) -> Functions:
    names = (*of_operator, "patterns")

    def arguments(given: dict[str, Any]) -> tuple:
        return tuple(given[name] for name in names)

    class Attention(Function):
        @staticmethod
        def forward(*inputs: Any) -> tuple:
            o, lse = forward(*inputs[:-1])
            return o, None if dict(zip(names, inputs))["approximate"] is not None else lse

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            keep(ctx, (*names, "o", "lse"), inputs, output)

        @staticmethod
        def vmap(info: Any, dims: Any, *inputs: Any) -> Any:
            return vmap.forward(Attention.apply, names, info, dims, *inputs)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> tuple:
            given, moved = kept(ctx), dict(zip(names, tangents))
            require_still_slopes("tangents of", moved["alibi_slopes"])
            require_exact_tangents(given["approximate"])
            return Tangent.apply(*(moved[name] for name in _MOVING), given["o"], given["lse"], *arguments(given))

        @staticmethod
        def backward(ctx: Any, do: Optional[Tensor], dlse: Optional[Tensor]) -> tuple:
            given, needs = kept(ctx), dict(zip(names, ctx.needs_input_grad))
            require_no_slopes(needs["alibi_slopes"])
            if do is None and dlse is None:
                return (None,) * len(names)
            found = gradients_in(given, do, dlse, needs["bias"], needs["sinks"])
            by_name = dict(zip(_MOVING, found))
            return tuple(by_name.get(name) for name in names)

    def gradients_in(given: dict[str, Any], do: Optional[Tensor], dlse: Optional[Tensor], bias: bool, sinks: bool) -> tuple:
        do = given["o"].new_zeros(given["o"].shape) if do is None else do
        return Gradients.apply(do, given["o"], given["lse"], dlse, bias, sinks, *arguments(given))

    def second_in(
        given: dict[str, Any], g: Sequence[Any], do: Optional[Tensor], dlse: Optional[Tensor], bias: bool, sinks: bool
    ) -> dict[str, Any]:
        """g are directions of what _MOVING names; with `bias` and `sinks` the gradients in these are formed, too."""
        do = given["o"].new_zeros(given["o"].shape) if do is None else do
        found = Second.apply(*g, bias, sinks, do, given["o"], given["lse"], dlse, *arguments(given))
        return dict(zip(("q", "k", "v", "do", "dlse", "bias", "sinks"), found))

    of_backward = (*_BACKWARD, *names)

    class Gradients(Function):
        @staticmethod
        def forward(*inputs: Any) -> tuple:
            given = dict(zip(of_backward, inputs))
            if given["lse"] is None:  # of an approximation
                given["lse"] = given["o"].new_empty(0)
            del given["patterns"]
            dq, dk, dv, dbias, dsinks = backward(*given.values())
            return dq, dk, dv, dbias if given["bias_gradient"] else None, dsinks if given["sinks_gradient"] else None

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            keep(ctx, of_backward, inputs)

        @staticmethod
        def vmap(info: Any, dims: Any, *inputs: Any) -> Any:
            found, out_dims = vmap.backward(Gradients.apply, names, info, dims, *inputs)
            wanted = (True, True, True, *inputs[4:6])
            return tuple(x if w else None for x, w in zip(found, wanted)), tuple(i if w else None for i, w in zip(out_dims, wanted))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> tuple:
            given, moved = kept(ctx), dict(zip(of_backward, tangents))
            require_exact_gradients(given["approximate"])
            require_still_slopes("tangents of gradients along", moved["alibi_slopes"])
            directions = [moved[name] for name in _MOVING]
            wanted = given["bias_gradient"], given["sinks_gradient"]
            found: list[Any] = [None] * 5
            if any(x is not None for x in directions):
                along = second_in(given, directions, given["do"], given["dlse"], *wanted)
                found = [along[name] if asked else None for name, asked in zip(_MOVING, (True, True, True, *wanted))]
            if moved["do"] is not None or moved["dlse"] is not None:
                found = list(map(_sum, found, gradients_in(given, moved["do"], moved["dlse"], *wanted)))
            return tuple(found)

        @staticmethod
        def backward(ctx: Any, *g: Any) -> tuple:
            given, needs = kept(ctx), dict(zip(of_backward, ctx.needs_input_grad))
            require_exact_gradients(given["approximate"])
            found = second_in(given, g, given["do"], given["dlse"], needs["bias"], needs["sinks"])
            return tuple(found.get(name) if needs[name] else None for name in of_backward)

    of_tangent = (*_TANGENT, *names)

    class Tangent(Function):
        @staticmethod
        def forward(*inputs: Any) -> tuple:
            return tangent(*inputs[:-1])

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            keep(ctx, of_tangent, inputs)

        @staticmethod
        def vmap(info: Any, dims: Any, *inputs: Any) -> Any:
            return vmap.tangent(Tangent.apply, names, info, dims, *inputs)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> tuple:
            given, moved = kept(ctx), dict(zip(of_tangent, tangents))
            if any(moved[name] is not None for name in _MOVING):
                raise Unsupported(
                    "tangents of tangents of redblue's attention are not computed: take a tangent of a gradient, as "
                    "torch.func.hessian does, or a gradient of a tangent"
                )
            require_still_slopes("tangents of tangents along", moved["alibi_slopes"])
            return Tangent.apply(*(moved["t" + name] for name in _MOVING), given["o"], given["lse"], *arguments(given))

        @staticmethod
        def backward(ctx: Any, do: Optional[Tensor], dlse: Optional[Tensor]) -> tuple:
            given, needs = kept(ctx), dict(zip(of_tangent, ctx.needs_input_grad))
            require_still_slopes("second derivatives in", needs["alibi_slopes"])
            found: dict[str, Any] = {}
            if do is None and dlse is None:
                return (None,) * len(of_tangent)
            directions = ["t" + name for name in _MOVING]
            if any(needs[name] for name in _MOVING):
                g = [given[name] for name in directions]
                found.update(second_in(given, g, do, dlse, needs["bias"], needs["sinks"]))
            if any(needs[name] for name in directions):
                found.update(zip(directions, gradients_in(given, do, dlse, needs["tbias"], needs["tsinks"])))
            return tuple(found[name] if needs[name] and name in found else None for name in of_tangent)


    class Second(Function):
        @staticmethod
        def forward(*inputs: Any) -> tuple:
            given = dict(zip(_SECOND, inputs))
            *found, ldlse, lbias, lsinks = second(*inputs[:-1])
            asked = (
                given["dlse"] is not None,
                given["bias_gradient"] or given["gbias"] is not None,
                given["sinks_gradient"] or given["gsinks"] is not None,
            )
            return (*found, *(x if wanted else None for x, wanted in zip((ldlse, lbias, lsinks), asked)))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, dims: Any, *inputs: Any) -> Any:
            return vmap.second(Second.apply, names, info, dims, *inputs)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> tuple:
            raise third_derivatives()

        @staticmethod
        def backward(ctx: Any, *g: Any) -> tuple:
            raise third_derivatives()

    return Functions(Attention, Gradients, Tangent, Second)
