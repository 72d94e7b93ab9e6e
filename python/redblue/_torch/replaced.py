"""redblue's function in the place of torch.nn.functional.scaled_dot_product_attention, and who reads what stands there."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import functional

from .on_import import OnImport

_NAME = "scaled_dot_product_attention"


def _for_others() -> bool:
    """Is torch writing down the call for who has no redblue: torch.export, torch.onnx.export or torch.jit.trace?"""
    if torch.compiler.is_exporting():
        return True
    return not torch.compiler.is_compiling() and torch._C._get_tracing_state() is not None


def _owners(function: Any) -> Iterator[str]:
    """The names of what holds the function, outside of torch and redblue: a name of a module, an attribute, a default."""
    holders = gc.get_referrers(function)
    behind = gc.get_referrers(*(x for x in holders if isinstance(x, (dict, tuple))))
    for x in (*holders, *behind):
        name = getattr(x, "__name__", "") if isinstance(x, types.ModuleType) else getattr(x, "__module__", None)
        if not isinstance(name, str) or name == "__mp_main__" or name.partition(".")[0] in ("torch", "redblue"):
            continue
        if isinstance(x, types.FunctionType):
            defaults = (*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values())
            yield from (f"{name}.{x.__qualname__}" for y in defaults if y is function)
        else:
            kind = x if isinstance(x, type) else type(x)
            prefix = name if isinstance(x, types.ModuleType) else f"{name}.{kind.__qualname__}"
            yield from (f"{prefix}.{key}" for key, y in list(getattr(x, "__dict__", {}).items()) if y is function)


class Replaced:
    """What install, uninstall and use of redblue.torch do, for all threads."""

    def __init__(self, ours: Callable):
        def scaled_dot_product_attention(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
            is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False,
        ) -> Tensor:  # fmt: skip
            """redblue.scaled_dot_product_attention; torch's own where the call is exported."""
            call = self._own if _for_others() else ours
            return call(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

        self.function = scaled_dot_product_attention
        self._lock = threading.Lock()
        self._installed, self._blocks = False, 0  # by install(), and the open blocks of use()
        self._put_there = False
        self._own: Any = functional.scaled_dot_product_attention  # what ours stands, or has stood, in the place of
        self._own_heads: Any = None  # likewise torch.nn.functional.multi_head_attention_forward
        self._on_import: Any = None
        self._bias: Any = None  # torch.nn.attention.bias.CausalBias while its __torch_function__ is ours
        self._own_dispatch: Any = None  # likewise CausalBias.__torch_function__
        self._fast = True  # did torch take its fused encoder?
        self._modules: list[dict] = []  # the names of those that have one as torch's function, when there were `_count`
        self._count = 0
        self._count_of_own, self._warned_of = 0, set[str]()  # references to torch's function, and who has some of them
        self._warned_of_weights = False

    def _want(self, installed: Optional[bool] = None, blocks: int = 0) -> None:
        """Changes who wants redblue's function, and puts it in the place of torch's while anyone does."""
        with self._lock:
            self._installed = self._installed if installed is None else installed
            self._blocks += blocks
            wanted = self._installed or self._blocks > 0
            if wanted != self._put_there:
                self._put() if wanted else self._give_back()
                self._put_there = wanted

    def _holders(self, function: Any) -> Iterator[dict]:
        """The names of each module that has the function under torch's name: those that imported it, too. The rest of torch
        compares calls with its own function, and keeps that."""
        if len(sys.modules) != self._count:  # to look at all of them takes half a millisecond
            self._count, all_ = len(sys.modules), list(sys.modules.items())
            theirs = [getattr(x, "__dict__", {}) for name, x in all_ if name == functional.__name__ or not name.startswith("torch.")]
            self._modules = [names for names in theirs if _NAME in names]
        for names in (*self._modules, sys.modules["__main__"].__dict__):
            if names.get(_NAME) is function:
                yield names

    def _put(self) -> None:
        self._own, self._own_heads = functional.scaled_dot_product_attention, functional.multi_head_attention_forward
        for names in self._holders(self._own):
            names[_NAME] = self.function
        functional.multi_head_attention_forward = self._heads()
        # The module imports torch's compiler, which takes a second: it is not imported for this.
        self._on_import = OnImport("torch.nn.attention.bias", self._put_dispatch)
        self._fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        torch.jit._builtins._register_builtin(self.function, f"aten::{_NAME}")  # what torch.jit.script takes it for
        self._warn_of_others()

    def _give_back(self) -> None:
        for names in self._holders(self.function):  # modules that were imported in between, too
            names[_NAME] = self._own
        functional.multi_head_attention_forward = self._own_heads
        self._on_import.cancel()
        if self._bias is not None:
            self._bias.__torch_function__, self._bias = self._own_dispatch, None
        if not torch.backends.mha.get_fastpath_enabled():
            torch.backends.mha.set_fastpath_enabled(self._fast)

    def _put_dispatch(self, module: Any) -> None:
        self._bias = module.CausalBias
        self._own_dispatch = self._bias.__dict__["__torch_function__"]
        self._bias.__torch_function__ = classmethod(self._dispatch)

    def _dispatch(self, cls: type, function: Any, *rest: Any) -> Any:
        """CausalBias.__torch_function__, which knows torch's own function by what stands in its place: a call of torch's own
        would read the memory of the bias, which nobody has written."""
        return self._own_dispatch.__func__(cls, self.function if function is self._own else function, *rest)

    def _heads(self) -> Callable:
        """torch.nn.functional.multi_head_attention_forward, which says once that weights are computed without redblue."""
        own = self._own_heads

        @functools.wraps(own)
        def multi_head_attention_forward(*arguments: Any, **options: Any) -> Any:
            if options.get("need_weights", True) and not self._warned_of_weights and not torch.compiler.is_compiling():
                self._warned_of_weights = True
                warnings.warn(
                    "torch.nn.MultiheadAttention gives its weights unless need_weights=False, and then computes without "
                    "scaled_dot_product_attention, so without redblue",
                    stacklevel=2,
                )
            return own(*arguments, **options)

        multi_head_attention_forward.__prepare_scriptable__ = lambda: own  # type: ignore[attr-defined]
        return multi_head_attention_forward

    def _warn_of_others(self) -> None:
        """What has torch's function under another name, or as an attribute or a default, may have it to keep it, or for short:
        it stays, and this is said once for each."""
        count = sys.getrefcount(self._own)
        if count == self._count_of_own:  # to look for them takes some 80 ms
            return
        self._count_of_own = count
        found = set(_owners(self._own)) - self._warned_of
        self._warned_of |= found
        if found:
            warnings.warn(f"{', '.join(sorted(found))}: torch's own {_NAME}, which redblue does not replace there", stacklevel=5)

    def install(self) -> None:
        """From now on torch.nn.functional.scaled_dot_product_attention is redblue's, until `uninstall`."""
        self._want(installed=True)

    def uninstall(self) -> None:
        """Undoes `install`: torch has its own function back, or has it at the end of the last block of `use` that is open."""
        self._want(installed=False)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """`with redblue.use():` torch.nn.functional.scaled_dot_product_attention is redblue's inside the block, for all
        threads, and in modules that imported it under this name before. Blocks may be nested, or overlap in several
        threads: the last one that ends gives torch its own function back, unless `install` was called, in a block or
        before. torch.export, torch.onnx.export, torch.jit.trace and torch.jit.script write torch's own function down.
        """
        self._want(blocks=1)
        try:
            yield
        finally:
            self._want(blocks=-1)
