#!/usr/bin/env python3
"""Files stay small: fails where one has more lines than LIMIT, or than it had when it was put among the exceptions."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 500
SUFFIXES = {".c", ".cmake", ".cpp", ".h", ".hpp", ".html", ".js", ".md", ".py", ".sh", ".txt"}
SKIPPED = ("build", "bench/results", "data", "examples/data", "shared", "tests/data", "tests/fuzz")

# Files that were longer when the limit came. They may shrink, and then this list does.
EXCEPTIONS = {
    "redblue/kernels/simd/online_attention.hpp": 717,
    "tests/runtime/backward_test.cpp": 676,
    "tests/c_api/c_api_test.c": 809,
    "tests/cli/operations_test.cpp": 669,
    "tests/kernels/implementations_test.cpp": 854,
    "tests/planner/fastest_test.cpp": 617,
    "tests/planner/planner_test.cpp": 623,
    "tests/python/test_package.py": 1208,
    "tests/python/test_patterns.py": 1335,
    "tests/python/frameworks/test_torch.py": 862,
}


def lines_of(path):
    return path.read_bytes().count(b"\n")


def files(root):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix in SUFFIXES and path.is_file() and not name.startswith((".", *(f"{folder}/" for folder in SKIPPED))):
            yield name, lines_of(path)


def too_long(sizes):
    """What is wrong with files of these sizes."""
    for name, lines in sizes.items():
        limit = EXCEPTIONS.get(name, LIMIT)
        if lines > limit:
            yield f"{name}: {lines} lines, {limit} at most: split it by what its parts are for"
    for name in EXCEPTIONS:
        if sizes.get(name, 0) <= LIMIT:
            yield f"tests/check_sizes.py: {name} is no exception any more: take it off the list"


def main():
    sizes = dict(files(ROOT))
    wrong = list(too_long(sizes))
    print("\n".join(wrong) or f"{len(sizes)} files, {len(EXCEPTIONS)} of them longer than {LIMIT} lines")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
