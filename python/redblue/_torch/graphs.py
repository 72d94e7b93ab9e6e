"""Where a graph of torch.compile ends: functions that read the values of tensors, which are not known when torch compiles."""

from __future__ import annotations

from typing import Any

import torch

from .on_import import OnImport


def end_graphs(names: dict[str, Any], reasons: dict[str, str], constant: tuple[str, ...] = ()) -> None:
    """From the import of torch's compiler on, graphs end at these functions of a module, for reasons that torch tells who wants one
    graph, and keep the results of `constant` ones. torch.compiler.disable says so, and imports the compiler, which takes as long as all else of torch: so this waits
    until somebody else has."""

    def disable(_: Any) -> None:
        for name, reason in reasons.items():
            names[name] = torch.compiler.disable(names[name], reason=reason)
        for name in constant:
            names[name] = torch.compiler.assume_constant_result(names[name])

    OnImport("torch._dynamo", disable)
