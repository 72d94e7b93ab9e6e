"""Masks of Hugging Face transformers that stay rules: causal, windows, padding, a prefix, packed sequences. They reach redblue
as options, so that nothing of [n_q, n_k] is built. Whatever else a model does with such a mask sees the numbers of eager
attention: 0, and the lowest number where a key is hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from .._call import masks


class Rules(NamedTuple):
    """Query i sees the keys i + offset - left to i + offset + right (None: no edge), of those that are `keep`; with
    `prefix`, the first keys, too; with `sequences`, keys of its own number alone."""

    offset: int = 0
    left: Optional[int] = None
    right: Optional[int] = None
    prefix: int = 0
    keep: Optional[Tensor] = None  # [batch, n_k] of bool
    sequences: Optional[Tensor] = None  # [batch, n]


class Found(NamedTuple):
    """A mask as options of attention. `empty` are the queries [batch, n_q] that see no key, if there are any. `packed` is
    where each sequence begins, in all batches one after another."""

    options: dict
    bias: Optional[Tensor] = None
    empty: Optional[Tensor] = None
    packed: Optional[list] = None


class _Shared:
    """What a mask and its views have in common."""

    def __init__(self, build: Callable[[], Tensor]) -> None:
        self.build = build
        self.numbers: Optional[Tensor] = None
        self.open = False  # may anyone write to the numbers? Then the rules need not hold
        self.empty: Any = _UNKNOWN
        self.lengths: Any = _UNKNOWN
        self.edges: Any = _UNKNOWN  # options, the same for all layers


_UNKNOWN = object()


class RuleMask(Tensor):
    """A mask [batch, 1, n_q, n_k] of floats without memory, until something but redblue's attention reads it."""

    rules: Rules
    shared: _Shared

    @staticmethod
    def __new__(cls: Any, shape: tuple, dtype: torch.dtype, rules: Rules, shared: _Shared) -> RuleMask:
        self = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device="cpu")  # type: ignore[attr-defined]
        self.rules, self.shared = rules, shared
        return self

    def __repr__(self) -> str:  # type: ignore[override]
        return f"RuleMask({list(self.shape)}, {self.rules})"

    def numbers(self) -> Tensor:
        """The mask as eager attention has it."""
        if self.shared.numbers is None:
            self.shared.numbers = self.shared.build()
        return self.shared.numbers

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        mask = arguments[0] if arguments else None
        if type(mask) is RuleMask and _leaves_as_it_is(op, arguments, options):
            return RuleMask(tuple(mask.shape), mask.dtype, mask.rules, mask.shared)

        def plain(x: Any) -> Any:
            if type(x) is not RuleMask:
                return x
            x.shared.open = x.shared.open or op._schema.is_mutable or any(y.alias_info for y in op._schema.returns)
            return x.numbers()

        return op(*tree_map(plain, arguments), **tree_map(plain, options or {}))


_aten = torch.ops.aten


def _leaves_as_it_is(op: Any, arguments: tuple, options: Any) -> bool:
    """Slices of all keys, which models take of masks, give the mask itself."""
    if op is _aten.slice.Tensor and not options:
        given = dict(zip(("mask", "dim", "begin", "end", "step"), arguments))
        end = given.get("end")
        whole = end is None or end >= given["mask"].shape[given.get("dim", 0)]
        return whole and not given.get("begin") and given.get("step", 1) == 1
    return op in (_aten.detach.default, _aten.alias.default)


def mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0, mask_function: Any = None,
    attention_mask: Optional[Tensor] = None, dtype: torch.dtype = torch.float32, allow_is_bidirectional_skip: bool = False,
    **others: Any,
) -> Optional[Tensor]:  # fmt: skip
    """transformers' function of masks for attn_implementation="redblue": its own for eager attention, built when it is read."""
    from transformers.masking_utils import causal_mask_function, eager_mask
    from transformers.utils.import_utils import is_tracing

    mask_function = causal_mask_function if mask_function is None else mask_function

    def build(skip: bool = False) -> Optional[Tensor]:
        return eager_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=mask_function, attention_mask=attention_mask, dtype=dtype, allow_is_bidirectional_skip=skip, **others,
        )  # fmt: skip

    if is_tracing(attention_mask) or is_tracing() or torch._C._len_torch_dispatch_stack() > 0 or str(others.get("device", "cpu")) != "cpu":
        return build(allow_is_bidirectional_skip)
    rules = _rules_of(mask_function, int(q_offset) - kv_offset)
    if rules is None or rules.sequences is not None and (attention_mask is not None or q_length != kv_length):
        return build(allow_is_bidirectional_skip)
    rules = rules._replace(keep=_kept(attention_mask, kv_length, kv_offset))
    if allow_is_bidirectional_skip and rules.keep is None and rules.left is None and rules.right is None:
        return None
    return RuleMask((batch_size, 1, q_length, kv_length), dtype, rules, _Shared(build))


def _kept(attention_mask: Optional[Tensor], n_k: int, offset: int) -> Optional[Tensor]:
    """The keys [batch, n_k] that are no padding, or None where none is; those after the end of the mask are."""
    if attention_mask is None:
        return None
    keep = attention_mask[:, offset : offset + n_k].bool()
    if keep.shape[1] < n_k:
        keep = torch.nn.functional.pad(keep, (0, n_k - keep.shape[1]))
    return None if bool(keep.all()) else keep


def _parts_of(function: Any) -> tuple:
    """The name of a function of transformers that makes masks, and what it was made with."""
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    return function.__qualname__.partition(".")[0], {name: cell.cell_contents for name, cell in zip(names, cells)}


def _rules_of(function: Any, offset: int) -> Optional[Rules]:
    """What transformers' functions of masks say, or None where they say something else."""
    if getattr(function, "__module__", None) != "transformers.masking_utils" or not hasattr(function, "__code__"):
        return None
    name, made_of = _parts_of(function)
    if name == "causal_mask_function":
        return Rules(offset, right=0)
    if name == "bidirectional_mask_function":
        return Rules(offset)
    if name == "sliding_window_overlay":
        return Rules(offset, left=made_of["sliding_window"] - 1)
    if name == "sliding_window_bidirectional_overlay":
        return Rules(offset, left=made_of["sliding_window"], right=made_of["sliding_window"])
    if name == "packed_sequence_mask_function":
        return Rules(offset, sequences=made_of["packed_sequence_mask"])
    if name == "remap_positions_for_packed_sequence":  # within a sequence positions follow one another
        return _rules_of(made_of["mask_function"], offset)
    if name == "and_masks":
        return _all_of([_rules_of(f, offset) for f in made_of["mask_functions"]])
    if name == "or_masks":
        return _with_prefix(made_of["mask_functions"], offset)
    return None


def _all_of(parts: list) -> Optional[Rules]:
    """Rules that all hold, where no two are of one kind."""
    if any(part is None for part in parts):
        return None
    found = parts[0]
    for part in parts[1:]:
        for name in ("left", "right", "sequences"):
            mine, other = getattr(found, name), getattr(part, name)
            if mine is not None and other is not None:
                return None
            found = found._replace(**{name: other if mine is None else mine})
        if part.prefix or found.prefix:
            return None
    return found


def _with_prefix(functions: tuple, offset: int) -> Optional[Rules]:
    """Causal or of one block: a prefix, where the block has the first tokens, as many in each batch."""
    if len(functions) != 2 or offset != 0:
        return None
    causal, (name, made_of) = _rules_of(functions[0], offset), _parts_of(functions[1])
    if causal != Rules(offset, right=0) or name != "blockwise_overlay":
        return None
    blocks = made_of["block_sequence_ids"]
    prefix = int((blocks[0] >= 0).sum())
    one = blocks[:, :1] if prefix else blocks[:1, :0]
    same = bool((blocks[:, :prefix] == one).all()) and not bool((blocks[:, prefix:] >= 0).any())
    return causal._replace(prefix=prefix) if same else None


def options_of(mask: RuleMask, query: Tensor, key: Tensor, position_bias: Optional[Tensor]) -> Optional[Found]:
    """The mask as options for these queries and keys; None where it must be numbers: it is of other sizes, or few pairs are
    hidden by lengths, for each new list of which takes a plan."""
    rules, (batch, _, n_q, n_k) = mask.rules, mask.shape
    if mask.shared.open or (n_q, n_k) != (query.shape[2], key.shape[2]) or batch not in (1, query.shape[0]):
        return None
    shared = mask.shared
    if shared.edges is _UNKNOWN:
        shared.edges = _edges(rules, n_q, n_k)
    options = shared.edges
    many = query.shape[0] * query.shape[1] * n_q * n_k >= masks.LEAST_PAIRS
    if rules.sequences is not None:
        if position_bias is not None or batch != query.shape[0] or not many:
            return None
        return Found({k: x for k, x in options.items() if k != "alignment"}, packed=_begins(rules.sequences))
    if rules.keep is None:
        return Found(options, position_bias)
    if shared.empty is _UNKNOWN:  # the same for all layers
        shared.empty, shared.lengths = _empty(rules, n_q, n_k), _lengths(rules.keep)
    empty, lengths = shared.empty, shared.lengths
    if position_bias is None:
        return Found(options, rules.keep[:, None, None, :], empty)
    if lengths is not None and many:
        return Found({**options, "seqused_k": lengths * (query.shape[0] // batch)}, position_bias, empty)
    return Found({}, position_bias + mask.numbers(), empty)


def _edges(rules: Rules, n_q: int, n_k: int) -> dict:
    """Options of the edges that hide something."""
    left, right = rules.left, rules.right
    if right is not None and rules.offset + right >= n_k - 1:
        right = None
    if left is not None and n_q - 1 + rules.offset - left <= 0:
        left = None
    if left is None and right is None:
        return {}
    options: dict[str, Any] = {"alignment": rules.offset}
    if right == 0:
        options["causal"] = True
        if rules.prefix:
            options["prefix"] = rules.prefix
    if left is not None or right != 0:
        options["window"] = (-1 if left is None else left, -1 if right in (None, 0) else right)
    return options


def _begins(sequences: Tensor) -> list:
    """Where each sequence begins, in all batches one after another, and the end."""
    first = torch.ones_like(sequences[:, :1], dtype=torch.bool)
    begins = torch.cat([first, sequences[:, 1:] != sequences[:, :-1]], 1).flatten()
    return [*begins.nonzero().flatten().tolist(), begins.numel()]


def _lengths(keep: Tensor) -> Optional[list]:
    """How many keys of each batch come before padding, or None where padding lies elsewhere, too."""
    lengths = keep.sum(1)
    if not bool((keep == (torch.arange(keep.shape[1]) < lengths[:, None])).all()):
        return None
    return lengths.tolist()


def _empty(rules: Rules, n_q: int, n_k: int) -> Optional[Tensor]:
    """The queries [batch, n_q] that see no key, or None where all see one."""
    assert rules.keep is not None
    before = torch.nn.functional.pad(rules.keep.cumsum(1), (1, 0))  # keys that are kept, before each one
    at = torch.arange(n_q) + rules.offset
    begin = torch.zeros_like(at) if rules.left is None else (at - rules.left).clamp(0, n_k)
    end = torch.full_like(at, n_k) if rules.right is None else (at + rules.right + 1).clamp(rules.prefix, n_k)
    empty = before[:, end] <= before[:, torch.minimum(begin, end)]
    return empty if bool(empty.any()) else None
