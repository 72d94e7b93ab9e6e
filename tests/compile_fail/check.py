#!/usr/bin/env python3
"""check.py COMPILER SNIPPET INCLUDE_DIR

The snippet must compile as it stands, and with -DREDBLUE_WRONG it must not: the compiler has to complain with a text that
matches the pattern in the snippet's first line, `// expect: PATTERN`. So a snippet that fails for another reason, or that
the rules no longer reject, fails the test.
"""

import re
import subprocess
import sys


def compile_snippet(*flags):
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{include_dir}", *flags, snippet]
    return subprocess.run(command, capture_output=True, text=True)


compiler, snippet, include_dir = sys.argv[1:]
with open(snippet, encoding="utf-8") as text:
    first = text.readline()
if not first.startswith("// expect: "):
    sys.exit(f"{snippet}: the first line must be '// expect: PATTERN'")
pattern = first.removeprefix("// expect: ").strip()

right = compile_snippet()
if right.returncode != 0:
    sys.exit(f"{snippet}: the right twin does not compile:\n{right.stderr}")
wrong = compile_snippet("-DREDBLUE_WRONG")
if wrong.returncode == 0:
    sys.exit(f"{snippet}: the wrong twin compiles")
errors = [line for line in wrong.stderr.splitlines() if "error" in line]
if not any(re.search(pattern, line) for line in errors):
    sys.exit(f"{snippet}: no error matches '{pattern}':\n{wrong.stderr}")
print(f"rejected: {errors[0]}")
