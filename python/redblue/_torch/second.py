"""Tangents and gradients of gradients for tensors of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from .._second import attention_second, attention_tangent
from .functions import keep, kept, require_exact_gradients, third_derivatives

_SCHEMA_OF_TANGENT = "Tensor? tq, Tensor? tk, Tensor? tv, Tensor? tbias, Tensor? tsinks, Tensor o, Tensor lse"
_SCHEMA_OF_SECOND = (
    "Tensor? gq, Tensor? gk, Tensor? gv, Tensor? gbias, Tensor? gsinks, bool bias_gradient, bool sinks_gradient, "
    "Tensor do, Tensor o, Tensor lse, Tensor? dlse"
)


def _exact_options(given: dict, options_of: Callable[[dict], dict]) -> Any:
    """Options of attention_tangent and attention_second, from the arguments of an operator by name."""
    options = options_of(given)
    if options.get("compute") == "bf16":
        options["compute"] = None
    options.pop("approximate")
    return {**options, **{name: given[name] for name in ("bias", "alibi_slopes", "sinks")}}


def tangent_operator(names: tuple, schema: str, options_of: Callable[[dict], dict]) -> Any:
    """The operator of tangents. torch knows no tangents of operators: those of this one are of _torch/functions.py."""

    def tangent(tq: Any, tk: Any, tv: Any, tbias: Any, tsinks: Any, o: Tensor, lse: Tensor, *arguments: Any) -> tuple:
        given = dict(zip(names, arguments))
        q, k, v = (given[name] for name in "qkv")
        moved = {"tbias": tbias, "tsinks": tsinks}
        return tuple(attention_tangent(tq, tk, tv, q, k, v, o, lse, **moved, **_exact_options(given, options_of)))

    op = torch.library.custom_op(
        "redblue::attention_tangent", tangent, mutates_args=(), device_types="cpu",
        schema=f"({_SCHEMA_OF_TANGENT}, {schema}) -> (Tensor, Tensor)",
    )  # fmt: skip

    @op.register_fake
    def _(tq, tk, tv, tbias, tsinks, o, lse, *arguments):  # type: ignore[no-untyped-def]
        return torch.empty_like(o), torch.empty_like(lse)

    return op


def second_operator(backward: Any, of_backward: tuple, names: tuple, schema: str, options_of: Callable[[dict], dict]) -> Any:
    """The operator of double backward, and the gradients of `backward`, that of gradients, which it gives."""

    def second(
        gq: Any, gk: Any, gv: Any, gbias: Any, gsinks: Any, bias_gradient: bool, sinks_gradient: bool, do: Tensor, o: Tensor,
        lse: Tensor, dlse: Optional[Tensor], *arguments: Any,
    ) -> tuple:  # fmt: skip
        given = dict(zip(names, arguments))
        q, k, v = (given[name] for name in "qkv")
        options = _exact_options(given, options_of)
        found = attention_second(
            gq, gk, gv, do, q, k, v, o, lse, dlse=dlse, gbias=gbias, bias_gradient=bias_gradient, gsinks=gsinks,
            sinks_gradient=sinks_gradient, **options,
        )  # fmt: skip
        return tuple(do.new_empty(0) if x is None else x for x in found)

    op = torch.library.custom_op(
        "redblue::attention_second", second, mutates_args=(), device_types="cpu",
        schema=f"({_SCHEMA_OF_SECOND}, {schema}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    )  # fmt: skip

    @op.register_fake
    def _(gq, gk, gv, gbias, gsinks, bias_gradient, sinks_gradient, do, o, lse, dlse, *arguments):  # type: ignore[no-untyped-def]
        given = dict(zip(names, arguments))
        of_bias = given["bias"] if bias_gradient or gbias is not None else None
        of_sinks = given["sinks"] if sinks_gradient or gsinks is not None else None
        like = (given["q"], given["k"], given["v"], do, dlse, of_bias, of_sinks)
        return tuple(do.new_empty(0) if x is None else torch.empty_like(x) for x in like)

    def refuse(ctx: Any, *gradients: Any) -> tuple:
        raise third_derivatives()

    op.register_autograd(refuse, setup_context=lambda ctx, inputs, output: None)

    all_names = (*of_backward, *names)

    def keep_all(ctx: Any, inputs: tuple, output: tuple) -> None:
        keep(ctx, all_names, inputs)
        ctx.patterns = inputs[all_names.index("pattern")]  # this very object holds the patterns

    def gradients(ctx: Any, *of_gradients: Any) -> tuple:
        given, needs = kept(ctx), dict(zip(all_names, ctx.needs_input_grad))
        require_exact_gradients(given["approximate"])
        arguments = (given[name] for name in ("do", "o", "lse", "dlse", *names))
        wanted = given["bias_gradient"], given["sinks_gradient"]  # those of others are of empty tensors
        gbias, gsinks = (g if asked else None for g, asked in zip(of_gradients[3:], wanted))
        lq, lk, lv, ldo, ldlse, lbias, lsinks = op(*of_gradients[:3], gbias, gsinks, needs["bias"], needs["sinks"], *arguments)
        found = {"q": lq, "k": lk, "v": lv, "do": ldo, "dlse": None if given["dlse"] is None else ldlse}
        found["bias"], found["sinks"] = lbias if needs["bias"] else None, lsinks if needs["sinks"] else None
        return tuple(found.get(name) for name in all_names)

    backward.register_autograd(gradients, setup_context=keep_all)
    return op
