"""flash_attn.bert_padding: tokens of padded batches one behind the other, and back, for tensors with their gradients.

Source: flash-attention 2.8 (https://github.com/Dao-AILab/flash-attention), flash_attn/bert_padding.py."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """These rows of input [rows, ...]."""
    return input[indices]


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """A tensor [first_axis_dim, ...] whose rows of these numbers are `values`, and zeros."""
    return values.new_zeros(first_axis_dim, *values.shape[1:]).index_put((indices,), values)


def unpad_input(hidden_states: Tensor, attention_mask: Tensor, unused_mask: Optional[Tensor] = None) -> tuple:
    """The tokens of hidden_states [batch, n, ...] that attention_mask [batch, n] marks, one behind the other; those of
    unused_mask, too, which are there without being used.

    Returns (tokens, their numbers in [batch * n], cu_seqlens, the longest sequence, the used tokens of each sequence)."""
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    there = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = there.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(there.flatten(), as_tuple=False).flatten()
    starts = torch.nn.functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, int(lengths.max()), used


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Tokens of these numbers in [batch * seqlen] as [batch, seqlen, ...], with zeros elsewhere."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
