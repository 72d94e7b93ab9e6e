#!/usr/bin/env python3
"""Puts the demo's output into README.md: scripts/demo.sh | scripts/readme_demo.py"""
import pathlib
import re
import sys

readme = pathlib.Path(__file__).resolve().parent.parent / "README.md"
shown = sys.stdin.read()
shown = shown[shown.index("## ") : shown.index("\ndemo: o and lse")].rstrip()
block = f"<!-- demo -->\n```\n{shown}\n```\n<!-- /demo -->"
text, replaced = re.subn(r"<!-- demo -->.*<!-- /demo -->", lambda _: block, readme.read_text(), flags=re.DOTALL)
if replaced != 1:
    sys.exit("README.md has no <!-- demo --> ... <!-- /demo --> block")
readme.write_text(text)
