"""A module flash_attn made of redblue's functions, for models that import it by name."""

from __future__ import annotations

import importlib.machinery
import sys
import threading
import types
from typing import Any

from .._errors import Unsupported
from . import bert_padding, kvcache, shims

#: The version of flash-attention whose names and signatures these are.
_VERSION = "2.8.3"
_FUNCTIONS = {
    **{name: getattr(shims, name) for name in dir(shims) if name.startswith("flash_attn_")},
    "flash_attn_with_kvcache": kvcache.flash_attn_with_kvcache,
}
_PADDING = {name: getattr(bert_padding, name) for name in ("index_first_axis", "index_put_first_axis", "pad_input", "unpad_input")}
_NAME = "flash_attn"


def _module(name: str, contents: dict, package: bool = False) -> types.ModuleType:
    found = types.ModuleType(name, "redblue's functions under the names of flash-attention: redblue.install_flash_attn().")
    found.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="redblue", is_package=package)
    found.__version__ = _VERSION  # type: ignore[attr-defined]
    found.__dict__.update(contents)
    if package:
        found.__path__ = []
    return found


_interface = _module(f"{_NAME}.flash_attn_interface", _FUNCTIONS)
_padding = _module(f"{_NAME}.bert_padding", _PADDING)
_top = _module(_NAME, {**_FUNCTIONS, "flash_attn_interface": _interface, "bert_padding": _padding}, package=True)
_modules = {module.__name__: module for module in (_top, _interface, _padding)}
_lock = threading.Lock()


class Installed:
    """What install_flash_attn returns: the end of a `with` block takes the module back, unless it was there before."""

    def __init__(self, before: bool):
        self._before = before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        if not self._before:
            uninstall_flash_attn()


def install_flash_attn() -> Installed:
    """From now on `import flash_attn` finds redblue's functions, until `uninstall_flash_attn` or the end of a `with` block.

        with redblue.install_flash_attn():
            import a_model_that_imports_flash_attn

    The module has the functions of flash-attention 2.8 (flash_attn_func, those for packed arrays and packed sequences, and
    flash_attn_with_kvcache), in flash_attn.flash_attn_interface, too, and flash_attn.bert_padding. There is nothing else in
    it: flash_attn.layers, .ops and .cute are not found. Who has imported the functions keeps them. An installed
    flash-attention is not touched, and hidden. Raises Unsupported where it is imported already.
    """
    with _lock:
        there = sys.modules.get(_NAME)
        if there is not None and there is not _top:
            raise Unsupported(
                f"flash_attn is imported already, from {getattr(there, '__file__', 'an unknown place')}, and who imported it keeps "
                "it: call redblue.install_flash_attn() before"
            )
        sys.modules.update(_modules)
        return Installed(there is _top)


def uninstall_flash_attn() -> None:
    """Undoes `install_flash_attn`: `import flash_attn` finds what is installed under this name, if anything."""
    with _lock:
        for name, module in _modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
