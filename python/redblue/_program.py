"""The program redblue, of which the package holds a copy, as Python calls it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from ._errors import InvalidProblem


def program() -> Path:
    """Where it is; raises InvalidProblem where the package lacks it."""
    path = Path(__file__).parent / "bin" / "redblue"
    if not path.exists():
        raise InvalidProblem(f"the program is not at {path}: install the package with pip")
    return path


def printed_by(*command: Any) -> str:
    """What the program prints for this command; raises InvalidProblem with its message where it fails."""
    done = subprocess.run([program(), *map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise InvalidProblem(done.stderr.strip().removeprefix("redblue: "))
    return done.stdout
