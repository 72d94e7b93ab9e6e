"""Flops as torch counts those of its own attention: all pairs of queries and keys, without a look at masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from .._call.settings import tokens_first

#: Multiply-adds for each pair and feature of keys, and of values. Backward: the scores once more, dP, dV, dQ and dK. Tangent and
#: second (fused_key_outer): docs/algorithms/second-derivatives.md.
_PRODUCTS = {"attention": (1, 1), "attention_backward": (3, 2), "attention_tangent": (3, 2), "attention_second": (10, 7)}


def count_flops(names: Sequence[str]) -> None:
    """`names`: the last arguments of each operator."""
    for name, products in _PRODUCTS.items():
        _register(getattr(torch.ops.redblue, name), products, names)


def _register(op: Any, products: tuple[int, int], names: Sequence[str]) -> None:
    @register_flop_formula(op)
    def _(*arguments, **_):  # type: ignore[no-untyped-def]
        given = dict(zip(names, arguments[-len(names) :]))
        q, k, v = (given[name] for name in "qkv")
        pairs = math.prod(q[:-1]) * k[-3 if tokens_first(given["layout"]) else -2]
        return 2 * pairs * (products[0] * q[-1] + products[1] * v[-1])
