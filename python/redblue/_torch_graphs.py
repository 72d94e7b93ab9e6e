"""Where a graph of torch.compile ends: functions that read the values of tensors, which are not known when torch compiles."""

from __future__ import annotations

from typing import Any

import torch

from ._on_import import OnImport

_SLOPES = "slopes of each packed sequence: cu_seqlens is read to call each alone; fullgraph=True takes slopes of heads alone"
#: Names in redblue.torch, and what torch tells who wants one graph.
REASONS = {
    "starts_of_tensors": _SLOPES,
    "used_of_tensors": _SLOPES,
    "kvcache_of_tensors": "flash_attn_with_kvcache: lengths and tables are read to say where keys lie, so that fullgraph=True is "
    "not for it",
    "pages_of_tensors": "block_table: lengths and tables are read to say where keys lie, so that fullgraph=True is not for it",
    "int8_of_tensors": "k and v of int8: their scales are read where they lie, so that fullgraph=True is not for it",
    "numbers_of": "pattern is no tensor, so that fullgraph=True is not for it",
    "_transformed": "torch.func.grad, vjp or jvp around attention: Dynamo compiles no autograd.Function with a jvp, so that "
    "fullgraph=True is not for it; compile what stands around the transform",
}


def end_graphs(names: dict[str, Any], reasons: dict[str, str] = REASONS, constant: tuple[str, ...] = ()) -> None:
    """From the import of torch's compiler on, graphs end at these functions of a module, and keep the results of `constant`
    ones. torch.compiler.disable says so, and imports the compiler, which takes as long as all else of torch: so this waits
    until somebody else has."""

    def disable(_: Any) -> None:
        for name, reason in reasons.items():
            names[name] = torch.compiler.disable(names[name], reason=reason)
        for name in constant:
            names[name] = torch.compiler.assume_constant_result(names[name])

    OnImport("torch._dynamo", disable)
