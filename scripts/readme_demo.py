#!/usr/bin/env python3
"""Puts the demo's output into docs/demo.md, and its first plan into README.md.

scripts/demo.sh | scripts/readme_demo.py
"""

import re
import sys

import blocks


def commands(shown):
    """(command line, what it printed) for each command of the demo."""
    return re.findall(r"^\$ redblue (.*)\n((?:(?!## ).*\n)*)", shown, re.MULTILINE)


def first_plan(shown):
    """The first command and its ranked table: what stands in README.md."""
    command, output = commands(shown)[0]
    return f"```\n$ redblue {command}\n{output.rstrip()}\n```\n"


def main():
    shown = sys.stdin.read()
    shown = shown[shown.index("## ") : shown.index("\ndemo: o and lse")].rstrip() + "\n"
    blocks.write("docs/demo.md", "demo", f"```\n{shown}```\n")
    blocks.write("README.md", "plan", first_plan(shown))


if __name__ == "__main__":
    main()
