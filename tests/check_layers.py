#!/usr/bin/env python3
"""Imports go down only: fails when a file includes a header of a layer that its own layer may not know."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Layer: what it may include beside itself, as folders (with a slash) or single headers below redblue/.
ALLOWED = {
    "core": [],
    "isa": ["core/"],  # isa.hpp: the instruction sets
    "kernel": ["core/", "isa.hpp"],
    "schedule": ["core/", "kernel/"],
    "bound": ["core/"],
    "threads": ["core/", "threads.hpp"],
    "machine": ["core/", "kernel/", "threads/", "threads.hpp"],
    "model": ["core/", "kernel/", "isa.hpp", "hardware.hpp"],
    "file": ["core/"],
    "hardware": ["core/", "isa.hpp", "file/"],
    "patterns": ["core/"],  # patterns.hpp: the kinds of patterns
    "plan": ["core/", "bound/", "schedule/", "model/", "patterns.hpp", "problem.hpp"],
    "problem": ["core/", "bound/"],  # problem.hpp: what plan/ plans
    "oracle": ["core/", "problem.hpp"],
    "schedules": [""],  # the lists of schedules
    "claims": [""],
    "api": [""],  # src/api and the headers at the top: the only place where a schedule meets a machine
    "cli": [""],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:redblue/)?([^">]+)[">]', re.MULTILINE)


def layer_of(path):
    parts = path.parts
    if parts[0] == "cli":
        return "cli"
    below = parts[2:] if parts[0] == "include" else parts[1:]
    if len(below) > 1:
        return below[0]
    return path.stem if path.stem in ALLOWED else "api"


def ours(name):
    """Is this a header of the library, public or below src/ (and not a neighbour in the same folder)?"""
    return (ROOT / "include/redblue" / name).exists() or ("/" in name and (ROOT / "src" / name).exists())


def main():
    wrong = []
    files = sorted(p for top in ("include", "src", "cli") for p in (ROOT / top).rglob("*.[ch]pp"))
    for file in files:
        path = file.relative_to(ROOT)
        layer = layer_of(path)
        if layer not in ALLOWED:
            wrong.append(f"{path}: layer '{layer}' is not in the list of tests/check_layers.py")
            continue
        may = [f"{layer}/", f"{layer}.hpp", *ALLOWED[layer]]
        for name in INCLUDE.findall(file.read_text(encoding="utf-8")):
            if ours(name) and not any(name.startswith(prefix) for prefix in may):
                wrong.append(f"{path}: layer {layer} may not include redblue/{name} (only {', '.join(may)})")
    print("\n".join(wrong) if wrong else f"{len(files)} files keep to their layers")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
