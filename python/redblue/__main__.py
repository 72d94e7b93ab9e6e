"""`python -m redblue`: the program redblue, of which the wheel holds a copy, and the commands `report` and `explore`, which are Python."""

from __future__ import annotations

import importlib
import os
import sys

from ._errors import InvalidProblem
from ._program import program


def main() -> None:
    if sys.argv[1:2] in (["report"], ["explore"]):
        return importlib.import_module(f"redblue._{sys.argv[1]}").main(sys.argv[2:])
    try:
        path = program()
    except InvalidProblem as missing:
        sys.exit(f"redblue: {missing}")
    os.execv(path, ["redblue", *sys.argv[1:]])


if __name__ == "__main__":
    main()
