#!/usr/bin/env python3
"""check_isa_symbols.py OBJECT...: fails when an object compiled for one instruction set (*_avx2.cpp, *_amx_bf16.cpp, ...)
defines a symbol that the linker may take for another file's: an inline function or a template outside an anonymous
namespace. The linker keeps one copy of those; were it this one, a program without AVX would run into AVX."""

import re
import subprocess
import sys


def main(objects):
    wrong = []
    chosen = [o for o in objects if re.search(r"_(avx|amx)\w*\.cpp\.", o)]
    for file in chosen:
        lines = subprocess.run(["nm", "-C", "--defined-only", file], check=True, capture_output=True, text=True).stdout
        shared = re.finditer(r"^[0-9a-f]+ ([WVu]) (.*)$", lines, re.MULTILINE)
        wrong += [f"{file}: {m[2]}" for m in shared if not m[2].startswith("DW.ref.")]  # a pointer, which is no code
    print("\n".join(wrong) if wrong else f"{len(chosen)} of {len(objects)} objects are for one instruction set, and share nothing")
    return 1 if wrong or not objects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
