"""Where a graph of torch.compile ends: functions that read the values of tensors, which are not known when torch compiles."""

from __future__ import annotations

import torch

from ._kvcache import attend
from ._settings import starts, used

starts_of_tensors, used_of_tensors = (
    torch.compiler.disable(
        f, reason="slopes of each packed sequence: cu_seqlens is read to call each alone; fullgraph=True takes slopes of heads alone"
    )
    for f in (starts, used)
)
kvcache_of_tensors = torch.compiler.disable(
    attend, reason="flash_attn_with_kvcache: lengths and tables are read to say where keys lie, so that fullgraph=True is not for it"
)
