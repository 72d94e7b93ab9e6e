"""The program redblue, of which the package holds a copy, as Python calls it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from ._errors import InvalidProblem


def printed_by(*command: Any) -> str:
    """What the program prints for this command; raises InvalidProblem with its message where it fails."""
    done = subprocess.run([sys.executable, "-m", "redblue", *map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise InvalidProblem(done.stderr.strip().removeprefix("redblue: "))
    return done.stdout
