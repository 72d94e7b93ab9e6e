"""The schedules that the program has."""

import json
import os
import subprocess

CLI = os.environ.get("REDBLUE_CLI")


def schedules_of(operation):
    """Their names, as the planner ranks them for a small problem; none without a program."""
    if not CLI:
        return []
    command = [CLI, "plan", "--op", operation, "--n", "8", "--d", "4", "--M", "1000", "--json"]
    plan = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    names = sorted(row["schedule"] for row in plan["plans"])
    assert len(names) >= 6, names
    return names
