"""`python -m redblue`: the program redblue, of which the wheel holds a copy, and the commands `report` and `explore`, which are Python."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


def main() -> None:
    if sys.argv[1:2] in (["report"], ["explore"]):
        return importlib.import_module(f"redblue._{sys.argv[1]}").main(sys.argv[2:])
    program = Path(__file__).parent / "bin" / "redblue"
    if not program.exists():
        sys.exit(f"redblue: the program is not at {program}: install the package with pip")
    os.execv(program, ["redblue", *sys.argv[1:]])


if __name__ == "__main__":
    main()
