#!/usr/bin/env python3
"""Puts what the program prints into the documents that show it.

scripts/demo.sh | scripts/readme_demo.py        the demo, into docs/demo.md
scripts/readme_demo.py PROGRAM docs/PAGE.md...  what the commands of these pages print with PROGRAM (build/release/redblue)
"""

import os
import re
import subprocess
import sys
import tempfile

import blocks

PAGES = ["docs/tutorial.md", *sorted(str(p.relative_to(blocks.ROOT)) for p in blocks.ROOT.glob("docs/cases/*.md"))]
FENCE = re.compile(r"^```(python|c|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def commands(shown):
    """(command line, what it printed) for each command of the demo."""
    return re.findall(r"^\$ redblue (.*)\n((?:(?!## ).*\n)*)", shown, re.MULTILINE)


def steps(page):
    """(language, source, what it printed) for each block of code of a page, and for each command, in order."""
    for language, text in FENCE.findall(page):
        if language:
            yield language, text, ""
        else:
            yield from (("shell", command, output) for command, output in SHELL.findall(text))


def run_step(language, source, folder, program):
    """Runs one step in a folder, where it finds the files of the steps before, and returns what it prints."""
    known = f'redblue() {{ "{program}" "$@"; }}; python() {{ "{sys.executable}" "$@"; }}; '
    line = {
        "shell": ["bash", "-c", known + source],
        "python": [sys.executable, "-c", source],
        "c": ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I.", "-xc", "-"],
    }[language]
    done = subprocess.run(line, input=source if language == "c" else None, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{source}\n{done.stderr}")
    return done.stdout


def fill(document, program):
    """Writes what the commands of a page print today into the page."""
    path = blocks.ROOT / document
    page = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        printed = [run_step(*step[:2], folder, program) for step in steps(page)]
    outputs = iter(printed)

    def block(match):
        if match[1]:
            next(outputs)
            return match[0]
        shown = "".join(f"$ {command}\n{next(outputs).rstrip()}\n\n" for command, _ in SHELL.findall(match[2]))
        return f"```\n{re.sub(chr(10) + '{3,}', chr(10) * 2, shown).rstrip()}\n```" if shown else match[0]

    path.write_text(FENCE.sub(block, page))


def main():
    if sys.argv[1:]:
        for document in sys.argv[2:]:
            fill(document, os.path.abspath(sys.argv[1]))
        return
    shown = sys.stdin.read()
    shown = shown[shown.index("## ") : shown.index("\ndemo: o and lse")].rstrip() + "\n"
    blocks.write("docs/demo.md", "demo", f"```\n{shown}```\n")


if __name__ == "__main__":
    main()
