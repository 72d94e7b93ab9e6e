"""The program redblue, of which the package holds a copy, as Python calls it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
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


def printed_while(say: Callable[[str], Any], *command: Any) -> str:
    """What `printed_by` returns, where `say` gets each line that the program says while it runs. An exception, as of Ctrl-C, ends it."""
    said = ""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([program(), *map(str, command)], stdout=out, stderr=subprocess.PIPE, text=True)
        with process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    said = line.strip().removeprefix("redblue: ")
                    say(said)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise InvalidProblem(said or f"the program was ended by signal {-process.returncode}")
        out.seek(0)
        return out.read()
