"""keywords.py MODULE_DIR OUTPUT: writes what type checkers read of the options, redblue/_keywords.pyi, from the tables of the
extension module in MODULE_DIR. It needs nothing but that module."""

import importlib
import sys
import types
from pathlib import Path


def main(module_dir, output):
    sys.path.insert(0, module_dir)
    package = types.ModuleType("redblue")  # without its __init__, which needs NumPy
    package.__path__ = [str(Path(__file__).parent / "redblue")]
    sys.modules["redblue"] = package
    sys.modules["redblue._core"] = package._core = importlib.import_module("_core")
    options = importlib.import_module("redblue._call.options")
    types_of = {"list": "Any", "object": "Any", "bytes": "Union[int, str]"}
    lines = ["from typing import Any, NamedTuple, Optional, TypedDict, Union", "", "class Options(TypedDict, total=False):"]
    for o in options.OPTIONS.values():
        type_ = types_of.get(o.type, o.type)
        lines.append(f"    {o.name}: {f'Optional[{type_}]' if o.optional else type_}")
    lines += ["", "class Settings(NamedTuple):", *(f"    {name}: Any = ..." for name in options.DEFAULTS), ""]
    Path(output).write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
