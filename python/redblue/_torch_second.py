"""Tangents and gradients of gradients for tensors of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from ._errors import Unsupported
from ._second import attention_second, attention_tangent

_OF_MODIFIERS = "bias, alibi_slopes and sinks"
_SCHEMA_OF_SECOND = "Tensor? gq, Tensor? gk, Tensor? gv, Tensor do, Tensor o, Tensor lse, Tensor? dlse"


def tangents_of(saved: Sequence[Any], tangents: Sequence[Any], options: dict) -> tuple:
    """How o and lse of a call move. `saved`: q, k, v, bias, slopes, sinks, o and lse of the call."""
    q, k, v, bias, slopes, sinks, o, lse = saved
    if any(x is not None for x in tangents[3:]):
        raise Unsupported(f"tangents of {_OF_MODIFIERS} are not computed: give those without tangents")
    if lse is None:
        raise Unsupported("tangents of approximations are not computed: give approximate = None")
    options = {name: x for name, x in options.items() if name not in ("approximate", "compute") or name == "compute" and x != "bf16"}
    with torch.no_grad():
        still = [None if x is None else x.detach() for x in (q, k, v, o, lse)]
        found = attention_tangent(*tangents[:3], *still, bias=bias, alibi_slopes=slopes, sinks=sinks, **options)
    return tuple(found)


def second_operator(backward: Any, of_backward: tuple, names: tuple, schema: str, options_of: Callable[[dict], dict]) -> Any:
    """The operator of double backward, and the gradients of `backward`, that of gradients, which it gives."""

    def second(gq: Any, gk: Any, gv: Any, do: Tensor, o: Tensor, lse: Tensor, dlse: Optional[Tensor], *arguments: Any) -> tuple:
        given = dict(zip(names, arguments))
        options: Any = options_of(given)
        if options.get("compute") == "bf16":
            options["compute"] = None
        options.pop("approximate")
        options.update({name: given[name] for name in ("bias", "alibi_slopes", "sinks")})
        q, k, v = (given[name] for name in "qkv")
        found = attention_second(gq, gk, gv, do, q, k, v, o, lse, dlse=dlse, **options)
        return tuple(do.new_empty(0) if x is None else x for x in found)

    op = torch.library.custom_op(
        "redblue::attention_second", second, mutates_args=(), device_types="cpu",
        schema=f"({_SCHEMA_OF_SECOND}, {schema}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    )  # fmt: skip

    @op.register_fake
    def _(gq, gk, gv, do, o, lse, dlse, q, k, v, *others):  # type: ignore[no-untyped-def]
        return tuple(torch.empty_like(x) for x in (q, k, v, do)) + (do.new_empty(0) if dlse is None else torch.empty_like(dlse),)

    def refuse(ctx: Any, *gradients: Any) -> tuple:
        raise Unsupported(
            "third derivatives of redblue's attention are not computed: outside of redblue.use() torch's math path computes them, "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        )

    op.register_autograd(refuse, setup_context=lambda ctx, inputs, output: None)

    def keep(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.set_materialize_grads(False)
        given = dict(zip((*of_backward, *names), inputs))
        tensors = [name for name, x in given.items() if isinstance(x, Tensor)]
        ctx.save_for_backward(*(given[name] for name in tensors))
        ctx.patterns = given["pattern"]  # this very object holds the patterns
        ctx.tensors, ctx.others = tensors, {name: x for name, x in given.items() if name not in tensors}

    def gradients(ctx: Any, *of_gradients: Any) -> tuple:
        given = {**ctx.others, **dict(zip(ctx.tensors, ctx.saved_tensors))}
        all_names = (*of_backward, *names)
        needs = dict(zip(all_names, ctx.needs_input_grad))
        if any(x is not None for x in of_gradients[3:]):
            raise Unsupported(f"gradients of the gradients of {_OF_MODIFIERS} are not computed: take those of q, k and v alone")
        if given["approximate"] is not None:
            raise Unsupported("gradients of gradients of approximations are not computed: give approximate = None")
        if needs["bias"] or needs["sinks"]:
            raise Unsupported(f"second derivatives in {_OF_MODIFIERS} are not computed: give those without gradients")
        arguments = (given[name] for name in ("do", "o", "lse", "dlse", *names))
        lq, lk, lv, ldo, ldlse = op(*of_gradients[:3], *arguments)
        found = {"q": lq, "k": lk, "v": lv, "do": ldo, "dlse": None if given["dlse"] is None else ldlse}
        return tuple(found.get(name) for name in all_names)

    backward.register_autograd(gradients, setup_context=keep)
    return op
