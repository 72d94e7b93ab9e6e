"""Something to do as soon as a module has been imported."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


class OnImport(importlib.abc.MetaPathFinder):
    """Calls then(module) at once if the module is imported, or right after its import, unless `cancel` came before."""

    def __init__(self, name: str, then: Callable[[Any], None]):
        self._name, self._then, self._wanted = name, then, True
        if name in sys.modules:
            then(sys.modules[name])
        else:
            sys.meta_path.insert(0, self)

    def cancel(self) -> None:
        self._wanted = False
        self._leave()

    def _leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The module's own specification, whose loader runs the module and then calls `then`."""
        if name != self._name:
            return None
        self._leave()
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                if self._wanted:
                    self._then(module)

            loader.exec_module = exec_module
        return spec
