"""`python -m redblue`: the program redblue, of which the wheel holds a copy."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "redblue"
    if not program.exists():
        sys.exit(f"redblue: the program is not at {program}: install the package with pip")
    os.execv(program, ["redblue", *sys.argv[1:]])


if __name__ == "__main__":
    main()
