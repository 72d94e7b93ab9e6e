"""Attention for tensors of PyTorch: custom operators with gradients, which torch.compile takes as they are.

    import redblue.torch
    with redblue.use():          # or redblue.install()
        model(x)                 # F.scaled_dot_product_attention is redblue's until the end of the block

The operators are redblue::attention and redblue::attention_backward. Tensors are on the CPU.
"""

from __future__ import annotations

import torch as torch  # functions that do without torch until they are given tensors take it from here

from ._call.settings import starts as starts_of_tensors  # noqa: F401
from ._call.settings import used as used_of_tensors  # noqa: F401
from ._flash.kvcache import attend as kvcache_of_tensors  # noqa: F401
from ._flash.varlen_pages import attend_to_pages as pages_of_tensors  # noqa: F401
from ._torch.attention import attention
from ._torch.attention import of_tensors as of_tensors
from ._torch.graphs import end_graphs
from ._torch.int8 import int8_of_tensors  # noqa: F401
from ._torch.replaced import Replaced
from ._torch.sdpa import scaled_dot_product_attention

__all__ = ["attention", "install", "register_transformers", "scaled_dot_product_attention", "uninstall", "use"]

_replaced = Replaced(scaled_dot_product_attention)
install, uninstall, use = _replaced.install, _replaced.uninstall, _replaced.use


def register_transformers() -> None:
    """Makes attn_implementation="redblue" known to Hugging Face transformers, which must be installed. Models then get what
    their eager attention computes; one that has attention of its own raises Unsupported when it is made with this name."""
    from ._transformers.attention import register

    register()


_SLOPES = "slopes of each packed sequence: cu_seqlens is read to call each alone; fullgraph=True takes slopes of heads alone"
_LENGTHS = "lengths and tables are read to say where keys lie, so that fullgraph=True is not for it"
end_graphs(
    globals(),
    {
        "starts_of_tensors": _SLOPES,
        "used_of_tensors": _SLOPES,
        "kvcache_of_tensors": f"flash_attn_with_kvcache: {_LENGTHS}",
        "pages_of_tensors": f"block_table: {_LENGTHS}",
        "int8_of_tensors": "k and v of int8: their scales are read where they lie, so that fullgraph=True is not for it",
    },
)
