"""Attention as primitives of JAX, each with its derivatives: jvp, grad, and both of both.

F is attention, x = (q, k, v, bias, sinks), t and g directions, u what o and lse have as gradients. A primitive's tangent is a primitive, too, and
so is what JAX makes of that backwards:

    attention        F(x)              tangent: tangent
    tangent          F'(x) t           tangent: moving_tangent     backwards: gradients(u)
    gradients        F'(x)^T u         tangent: moving_gradients
    moving_tangent   of x and t        backwards: second(t, u) for x, gradients(u) for t
    moving_gradients of x and u        backwards: second(g, u)
    second           the gradients of <F'(x) g, u>

For F'' is symmetric: how F'(x)^T u moves along t is the gradient of <F'(x) t, u> in x. o and lse are functions of x, and what
depends on x through them is part of the above: they have no derivatives of their own here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._errors import Unsupported
from .batches import as_one_call, of_each_call

_MOVING = ("q", "k", "v", "bias", "sinks")
_AT_REST = ("alibi_slopes",)
_THIRD = (
    "third derivatives of redblue's attention are not computed: jax.nn.dot_product_attention has them, in memory that grows with the "
    "square of the length"
)


def _refuse(what: str) -> Unsupported:
    return Unsupported(f"{what} alibi_slopes are not computed: give these at rest, as by jax.lax.stop_gradient")


def _moves(tangent: Any) -> bool:
    return type(tangent) is not ad.Zero and tangent.dtype != jax.dtypes.float0


class _Differentiable:
    """A primitive whose arguments have names, of which it takes those that are there."""

    def __init__(self, name: str, run: Callable, shapes: Callable, tangent: Callable, backwards: Any = None):
        self.primitive = Primitive(f"redblue_{name}")
        self.primitive.multiple_results = True
        self.primitive.def_impl(lambda *arrays, **params: jax.jit(functools.partial(self.primitive.bind, **params))(*arrays))

        def values(*arrays: Any, names: tuple, **params: Any) -> list:
            return run(dict(zip(names, arrays)), **params)

        def abstract(*arrays: Any, **params: Any) -> list:
            found = shapes(values, arrays, **params)
            return [jax.core.ShapedArray(x.shape, x.dtype) for x in found]

        def jvp(primals: Sequence, tangents: Sequence, *, names: tuple, **params: Any) -> tuple:
            moved = {name: x for name, x in zip(names, tangents) if name not in ("o", "lse") and _moves(x)}
            found, moving = tangent(dict(zip(names, primals)), moved, **params)
            return found, [ad.Zero.from_primal_value(x) for x in found] if moving is None else moving

        def transpose(cotangents: Sequence, *arrays: Any, names: tuple, **params: Any) -> list:
            unknown = {name for name, x in zip(names, arrays) if ad.is_undefined_primal(x)}
            given = {name: x for name, x in zip(names, arrays) if name not in unknown}
            wanted = [None if type(x) is ad.Zero else x for x in cotangents]
            if all(x is None for x in wanted):
                return [None] * len(names)
            found = backwards(given, wanted, unknown, **params)
            return [found.get(name) if name in unknown else None for name in names]

        self.primitive.def_abstract_eval(abstract)
        mlir.register_lowering(self.primitive, mlir.lower_fun(values, multiple_results=True))
        batching.primitive_batchers[self.primitive] = self._mapped
        ad.primitive_jvps[self.primitive] = jvp
        if backwards is not None:
            ad.primitive_transposes[self.primitive] = transpose

    def _mapped(self, arrays: Sequence, dims: Sequence, **params: Any) -> tuple:
        one = as_one_call(arrays, dims, params["names"], params["fixed"], params.get("wanted", ()))
        if one is None:
            return self._one_after_another(arrays, dims, **params)
        found = of_each_call(self.primitive.bind(*one, **params), arrays, dims)
        return found, [0] * len(found)

    def _one_after_another(self, arrays: Sequence, dims: Sequence, **params: Any) -> tuple:
        mapped = [jnp.moveaxis(x, dim, 0) for x, dim in zip(arrays, dims) if dim is not None]

        def call(own: Sequence) -> list:
            each = iter(own)
            return self.primitive.bind(*(x if dim is None else next(each) for x, dim in zip(arrays, dims)), **params)

        found = jax.lax.map(call, mapped)
        return found, [0] * len(found)

    def __call__(self, given: dict[str, Any], **params: Any) -> list:
        there = {name: x for name, x in given.items() if x is not None}
        return self.primitive.bind(*there.values(), names=tuple(there), **params)


def _as_computed(values: Callable, arrays: Sequence, **params: Any) -> Any:
    return jax.eval_shape(functools.partial(values, **params), *arrays)


def _like(*of: str) -> Callable:
    """Results like these arguments."""

    def shapes(values: Callable, arrays: Sequence, names: tuple, **params: Any) -> list:
        given = dict(zip(names, arrays))
        return [given[name] for name in of or params["wanted"]]

    return shapes


def _third(given: dict, moved: dict, **params: Any) -> tuple:
    raise Unsupported(_THIRD)


def differentiable(attention: Callable, gradients: Callable, tangent: Callable, second: Callable) -> Callable:
    """The primitive of attention, of what computes each from arrays by name: `attention(given, fixed, return_lse)` gives o, and
    lse; `gradients(given, fixed, wanted)` those of these names; `tangent(given, fixed)` to and tlse; `second(given, fixed)` lq, lk,
    lv, ldo, ldlse where dlse is given, lbias where gbias is, and lsinks where gsinks are."""

    def with_gradients(given: dict, do: Any, dlse: Any) -> dict:
        do = jnp.zeros(given["o"].shape, given["o"].dtype) if do is None else do
        return {**given, "do": do, "dlse": dlse}

    def along(given: dict, prefix: str) -> dict:
        """The arrays of a call, without directions that have this prefix, and these by the names of what moves."""
        return {name.removeprefix(prefix): x for name, x in given.items() if name.startswith(prefix)}

    def without(given: dict, *names: str) -> dict:
        return {name: x for name, x in given.items() if not name.startswith("d_") and name not in names}

    DIRECTIONS = tuple("t" + name for name in (*_MOVING, *_AT_REST))

    def second_by_name(of: Callable, g: dict, own: dict, wanted: set) -> dict:
        """The gradients that `of` makes of directions g, also those in a bias and in sinks that are wanted, and may be at rest."""
        directions = {"g" + name: g.get(name) for name in _MOVING}
        moving = [name for name in ("bias", "sinks") if name in wanted or directions["g" + name] is not None]
        for name in moving:
            if directions["g" + name] is None:
                directions["g" + name] = jnp.zeros_like(own[name])
        there = {name: x for name, x in {**directions, **own}.items() if x is not None}
        names = ("q", "k", "v", "do", *(("dlse",) if own.get("dlse") is not None else ()), *moving)
        return dict(zip(names, of(there)))

    def attention_moves(given: dict, moved: dict, fixed: tuple, return_lse: bool) -> tuple:
        if "alibi_slopes" in moved:
            raise Unsupported("the gradient of alibi_slopes is not computed: give slopes that require none, by jax.lax.stop_gradient")
        found = of_attention(given, fixed=fixed, return_lse=True)
        if not moved:
            return found[: 1 + return_lse], None
        o, lse = found
        moving = of_tangent({**{"t" + name: x for name, x in moved.items()}, **given, "o": o, "lse": lse}, fixed=fixed)
        return found[: 1 + return_lse], moving[: 1 + return_lse]

    def run_tangent(given: dict, fixed: tuple) -> list:
        if any("t" + name in given for name in _AT_REST):
            raise _refuse("tangents of")
        return tangent(given, fixed)

    def tangent_moves(given: dict, moved: dict, fixed: tuple) -> tuple:
        found = of_tangent(given, fixed=fixed)
        if any(name in moved for name in _AT_REST):
            raise _refuse("second derivatives in")
        if not moved:
            return found, None
        return found, of_moving_tangent({**{"d_" + name: x for name, x in moved.items()}, **given}, fixed=fixed)

    def tangent_backwards(given: dict, u: Sequence, unknown: set, fixed: tuple) -> dict:
        wanted = tuple(name for name in DIRECTIONS if name in unknown)
        of_x = with_gradients(without(given, *DIRECTIONS), *u)
        return dict(zip(wanted, of_gradients(of_x, fixed=fixed, wanted=tuple(name[1:] for name in wanted))))

    def run_moving_tangent(given: dict, fixed: tuple) -> list:
        moved = along(given, "d_")
        if any(name in moved for name in _MOVING):
            raise Unsupported(
                "tangents of tangents of redblue's attention are not computed: take a tangent of a gradient, as jax.hessian does, or a "
                "gradient of a tangent"
            )
        return run_tangent({**without(given, *DIRECTIONS), **moved}, fixed)

    def moving_tangent_backwards(given: dict, u: Sequence, unknown: set, fixed: tuple) -> dict:
        found: dict[str, Any] = {}
        own = with_gradients(without(given, *DIRECTIONS), *u)
        if unknown & {"d_" + name for name in _MOVING}:
            g = {name: given.get("t" + name) for name in _MOVING}
            second_of = second_by_name(functools.partial(of_second, fixed=fixed), g, own, {name.removeprefix("d_") for name in unknown})
            found.update(("d_" + name, x) for name, x in second_of.items() if name in _MOVING)
        wanted = tuple(name for name in DIRECTIONS if "d_" + name in unknown)
        if wanted:
            linear = of_gradients(own, fixed=fixed, wanted=tuple(name[1:] for name in wanted))
            found.update(("d_" + name, x) for name, x in zip(wanted, linear))
        return found

    def gradients_move(given: dict, moved: dict, fixed: tuple, wanted: tuple) -> tuple:
        found = of_gradients(given, fixed=fixed, wanted=wanted)
        if any(name in moved for name in _AT_REST):
            raise _refuse("second derivatives in")
        if not moved:
            return found, None
        own = {**{"d_" + name: x for name, x in moved.items()}, **given}
        return found, of_moving_gradients(own, fixed=fixed, wanted=wanted)

    def run_moving_gradients(given: dict, fixed: tuple, wanted: tuple) -> list:
        own, moved = without(given), along(given, "d_")
        found: dict[str, Any] = {}
        if any(name in moved for name in _MOVING):
            second_of = second_by_name(lambda there: second(there, fixed), moved, own, set(wanted))
            found.update((name, second_of[name]) for name in wanted)
        if "do" in moved or "dlse" in moved:
            linear = gradients(with_gradients(without(own, "do", "dlse"), moved.get("do"), moved.get("dlse")), fixed, wanted)
            found.update({name: x if name not in found else found[name] + x for name, x in zip(wanted, linear)})
        return [found[name] for name in wanted]

    def moving_gradients_backwards(given: dict, g: Sequence, unknown: set, fixed: tuple, wanted: tuple) -> dict:
        by_name = dict(zip(wanted, g))
        own = without(given)
        if not unknown & {"d_" + name for name in _MOVING}:
            at = without(own, "do", "dlse")
            directions = {"t" + name: by_name.get(name) for name in _MOVING}
            return dict(zip(("d_do", "d_dlse"), of_tangent({**directions, **at}, fixed=fixed)))
        found = second_by_name(functools.partial(of_second, fixed=fixed), by_name, own, {name.removeprefix("d_") for name in unknown})
        return {"d_" + name: x for name, x in found.items()}

    of_attention = _Differentiable("attention", attention, _as_computed, attention_moves)
    of_tangent = _Differentiable("tangent", run_tangent, _like("o", "lse"), tangent_moves, tangent_backwards)
    of_gradients = _Differentiable("gradients", gradients, _as_computed, gradients_move)
    of_moving_tangent = _Differentiable("moving_tangent", run_moving_tangent, _like("o", "lse"), _third, moving_tangent_backwards)
    of_moving_gradients = _Differentiable("moving_gradients", run_moving_gradients, _like(), _third, moving_gradients_backwards)
    of_second = _Differentiable("second", second, _as_computed, _third)
    return of_attention
