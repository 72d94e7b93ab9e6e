#!/usr/bin/env python3
"""Includes go down only: fails when a file includes a header of a room, or of a shelf of its room, above its own, or lies
in a folder that is neither, when two headers define one type, when modules of the Python package import each other in a
circle, or when the Python extension or an example includes what is not of the public face."""

import ast
import graphlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# The rooms of redblue/ from the ground up. A room may include itself and the rooms before it.
ROOMS = [
    "language",   # words, types, shapes, blocks of slow memory, tiles, what a machine and a kernel are
    "threads",    # pools of threads
    "files",      # .npy and safetensors; they know nothing of attention
    "hardware",   # instruction sets, caches, what doctor measures
    "masks",      # who sees whom; modifiers of scores
    "problem",    # sizes, operations, what is asked for
    "kernels",    # the maths of one tile operation
    "machines",   # what runs a schedule: counting, checked, traced, ...
    "bounds",     # lower bounds
    "schedules",  # the algorithms with their exact costs
    "planner",    # the choice of schedule and tiles, for words or time
    "levels",     # plans of plans: how a level below carries out a call of a kernel, and what it moves
    "runtime",    # run, count, outline
    "ranks",      # attention over ranks: steps of each rank, their counts, and what executes them
    "verify",     # oracle, claims
    "pebbling",   # the red-blue pebble game on graphs of single words
    "methods",    # published approximations
    "c_api",      # the C interface
]
# The shelves of a room from the ground up; "" is its own folder. A room that is not here has no folders.
SHELVES = {
    "files": [
        "",         # formats, atomic files
        "io",       # requests to files, and addresses that stand for their bytes
        "partial",  # runs that can be resumed
    ],
    "hardware": [
        "",
        "x86",  # which of its instruction sets there are, and loops for them
    ],
    "kernels": [
        "",      # portable
        "simd",  # for any vector type
        "x86",   # its vector types, and the files that are compiled for its instruction sets
    ],
    "machines": [
        "",
        "ram",    # computes
        "files",  # what Ram computes on, in files: requests ahead of it and behind it
    ],
    "schedules": [
        "parts",     # what families share: tilings and their limits, masks, cores, products of matrices
        "operands",  # the arrays of each operation
        "passes",    # a block of queries or of keys stays while the others pass
        "pairs",     # tiles with a word for each pair of a pattern
        "forward",   # from here on the families
        "backward",
        "gradient",
        "sparse",
        "ring",  # begins as flash does
        "linear",
        "strips",
        "projected",
        "scores",
        "merge",
        "second",  # tangents and gradients of gradients
        "",       # a schedule as a value
        "lists",  # all of them
    ],
    "runtime": [
        "",
        "ram",    # the backend
        "files",  # another one: the same over files
    ],
    "verify": [
        "oracle",
        "",
    ],
    "ranks": [
        "",     # who has what, schedules as steps, their counts, what executes them, and threads as ranks
        "mpi",  # MPI carries messages; a library of its own
    ],
    "c_api": [
        "",
        "mpi",  # attention over ranks of MPI, in the library of ranks/mpi
    ],
    "pebbling": [
        "graphs",  # of single words: attention, test families, files
        "",        # the game: rules, moves, referee, certificates
        "search",  # exact optima and lower bounds
        "play",    # schedules as plays
    ],
    "methods": [
        "maths",  # what each method computes, and its numbers
        "kernels",
        "kernels/simd",
        "kernels/x86",
        "schedules/parts",
        "schedules",
        "oracle",
        "",  # what is made of it: texts, bounds, certificates, tolerances, comparisons
    ],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def faults_of(path):
    """What is wrong with a file of redblue/, by its includes and its place."""
    parts = path.parts
    if len(parts) == 2:  # the public face: it includes rooms, and no room includes it
        return []
    room, shelf = parts[1], "/".join(parts[2:-1])
    if room not in ROOMS:
        return [f"{path}: redblue/{room} is no room of tests/check_layers.py"]
    shelves = SHELVES.get(room, [""])
    if shelf not in shelves:
        return [f"{path}: redblue/{room}/{shelf} is no shelf of tests/check_layers.py"]
    faults = []
    for name in INCLUDE.findall((ROOT / path).read_text(encoding="utf-8")):
        target = name.split("/")
        if target[0] != "redblue":
            if name not in ("redblue.h", "redblue_second.h", "redblue_mpi.h") and (ROOT / path.parent / name).exists():
                faults.append(f"{path}: write {name} as redblue/ROOM/...")
        elif len(target) == 2:
            if name != "redblue/version.hpp":
                faults.append(f"{path}: {name} is of the public face, which rooms do not include")
        elif ROOMS.index(target[1]) > ROOMS.index(room):
            faults.append(f"{path}: {room} may not include {name}, which is above it")
        elif target[1] == room and "/".join(target[2:-1]) in shelves[shelves.index(shelf) + 1 :]:
            faults.append(f"{path}: {room}/{shelf} may not include {name}, which is above it")
    return faults


# The shelves of the program, from the ground up; command_line.hpp is below them all. main.cpp and no_approximations.cpp put
# things together.
SHELVES_OF_PROGRAM = ["report", "files", "options", "commands"]


def faults_of_program(path):
    """What is wrong with a file of cli/."""
    if len(path.parts) == 2 and path.stem != "command_line":
        return []
    own = SHELVES_OF_PROGRAM.index(path.parts[1]) if path.parts[1] in SHELVES_OF_PROGRAM else -1
    if own < 0 and len(path.parts) > 2:
        return [f"{path}: cli/{path.parts[1]} is no shelf of tests/check_layers.py"]
    targets = [name.split("/") for name in INCLUDE.findall((ROOT / path).read_text(encoding="utf-8"))]
    return [
        f"{path}: cli/{path.parts[1]} may not include {'/'.join(target)}, which is above it"
        for target in targets
        if target[0] in SHELVES_OF_PROGRAM and SHELVES_OF_PROGRAM.index(target[0]) > own
    ]


# What stands outside of redblue/ as a user's program does: it includes the public face alone, redblue/NAME.hpp.
OUTSIDE = ["python/src", "examples"]


def private_includes_of(path):
    """Headers of rooms that a file outside includes."""
    names = INCLUDE.findall((ROOT / path).read_text(encoding="utf-8"))
    return [f"{path}: {name} is not of the public face (redblue/*.hpp)" for name in names if re.match(r"redblue/.+/", name)]


PACKAGE = "python/redblue"


def imports_of(path, modules):
    """The modules of the package that one of them imports, anywhere in its text: modules are {parts of the name: path}."""
    name = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = name[: -node.level] + tuple(node.module.split(".") if node.module else ())
            yield from {base} & modules or {(*base, alias.name) for alias in node.names} & modules


def circles_of_package():
    """Where modules import each other; `import redblue` for an attribute of it, by which calls find torch, is none."""
    paths = {p.relative_to(ROOT / PACKAGE).with_suffix("").parts: p for p in (ROOT / PACKAGE).rglob("*.py")}
    graph = {name: set(imports_of(path, paths.keys())) for name, path in paths.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
        return []
    except graphlib.CycleError as e:
        return [f"{PACKAGE}: modules import each other in a circle: {' <- '.join('.'.join(x) for x in e.args[1])}"]


TYPE = re.compile(r"^(?:namespace ([\w:]+) \{|(?:struct|class|enum class) (?!alignas)(\w+)\b(?!<)[^;]*$)")


def shared_names_of(headers):
    """Types that two headers define in one namespace: the linker takes the members of one of them for both."""
    places = {}
    for path in headers:
        space = ""
        for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
            if found := TYPE.match(line):
                space = found[1] or space
                if found[2]:
                    places.setdefault(f"{space}::{found[2]}", set()).add(str(path))
    return [f"{name} is defined in {' and in '.join(sorted(p))}" for name, p in places.items() if len(p) > 1]


def main():
    files = sorted(p.relative_to(ROOT) for p in (ROOT / "redblue").rglob("*") if p.suffix in (".hpp", ".cpp", ".h"))
    wrong = [fault for path in files for fault in faults_of(path)]
    program = sorted(p.relative_to(ROOT) for p in (ROOT / "cli").rglob("*.?pp"))
    wrong += [fault for path in program for fault in faults_of_program(path)]
    wrong += shared_names_of(p for p in files + program if p.suffix == ".hpp")
    wrong += [f"{name}/: the sources are in redblue/" for name in ("include", "src") if (ROOT / name).exists()]
    outside = [
        p.relative_to(ROOT) for folder in OUTSIDE for p in (ROOT / folder).iterdir() if p.suffix in (".hpp", ".cpp", ".c")
    ]
    wrong += [fault for path in sorted(outside) for fault in private_includes_of(path)]
    wrong += circles_of_package()
    print("\n".join(wrong) if wrong else f"{len(files) + len(program)} files keep to their rooms, {len(outside)} to the public face")
    return 1 if wrong or not files or not outside else 0


if __name__ == "__main__":
    sys.exit(main())
