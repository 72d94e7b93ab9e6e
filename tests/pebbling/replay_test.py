#!/usr/bin/env python3
"""scripts/replay.py and the program of scripts/replay.cpp, given as argument, accept the certificates of this folder, and
neither accepts one that claims what is not so, although its digest is right."""

import contextlib
import io
import random
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
import replay  # noqa: E402

PROGRAM = sys.argv[1]
MOVES_OF_LINE = 20


def signed(text):
    body = text.rpartition("crc32 ")[0]
    return body + f"crc32 {zlib.crc32(body.encode()):08x}\n"


def verdict_of_python(text):
    """0, 1 or 2, as the script's exit code."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", newline="\n") as file:
        file.write(text)
        file.flush()
        sys.argv = ["replay.py", file.name, "--seed", "3"]
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                replay.main()
        except SystemExit as end:
            assert len(said.getvalue().splitlines()) == 1, said.getvalue()
            return end.code
    return 0


def verdict_of_program(text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", newline="\n") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([PROGRAM, file.name, "3"], capture_output=True, text=True)
    assert done.returncode == 0 or len(done.stderr.splitlines()) == 1, done.stderr
    return done.returncode


def parts(text):
    """The lines before the moves, the moves, the line of counts."""
    lines = text.split("\n")
    at = next(k for k, line in enumerate(lines) if line.startswith("moves "))
    return lines[:at], " ".join(lines[at + 1 : -3]).split(" "), lines[-3]


def joined(head, moves, counts):
    rows = [" ".join(moves[k : k + MOVES_OF_LINE]) for k in range(0, len(moves), MOVES_OF_LINE)]
    return signed("\n".join([*head, f"moves {len(moves)}", *rows, counts, "crc32 "]))


def changed_node(line, number, of_all, rng):
    """Another operation, constant, parent, name of an input, or claim to be an output."""
    name, op, k, out, parents, *formula = line.split(" ", 5)
    choice = rng.randrange(4)
    if op == "input":
        return " ".join([name.replace("[", "'["), op, k, out, parents])
    if choice == 0 and op != "formula":
        other = {"product": "sum", "sum": "product", "exp": "copy", "quotient": "difference", "multiply_add": "product",
                 "maximum": "sum", "log": "exp"}[op]
        return " ".join([name, other, k, out, parents])
    if choice == 1 and op in ("product", "multiply_add"):
        return " ".join([name, op, "1.5" if k != "1.5" else "2", out, parents])
    if choice == 2 and name[0] != "l":  # lse may be an output or not
        return " ".join([name, op, k, "." if out == "out" else "out", parents, *formula])
    first, *others = parents.split(",")
    other = rng.choice([p for p in range(number) if p != int(first)])
    return " ".join([name, op, k, out, ",".join([str(other), *others]), *formula])


def lie(text, rng):
    """A text that claims what is not so, signed."""
    head, moves, counts = parts(text)
    kind = rng.randrange(6)
    if kind == 0:  # a count
        words = counts.split(" ")
        k = rng.randrange(1, 5)
        key, value = words[k].split("=")
        words[k] = f"{key}={int(value) + rng.choice([-1, 1, 10])}"
        return joined(head, moves, " ".join(words))
    if kind == 1:  # M below the peak
        head[5] = f"M {int(counts.split('peak=')[1]) - 1}"
        return joined(head, moves, counts)
    if kind == 2:  # what the outputs are
        words = head[3].split(" ")
        k = rng.randrange(1, 7)
        if k == 1:
            words[1] = rng.choice([w for w in ("forward", "backward", "gradient") if w != words[1]])
        elif k < 6:
            key, value = words[k].split("=")
            words[k] = f"{key}={int(value) + 1}"
        else:
            words[6] = f"mask={'full' if words[6] != 'mask=full' else 'causal'}"
        head[3] = " ".join(words)
        return joined(head, moves, counts)
    if kind == 3:  # a node
        # (Online softmax gives the same outputs whatever is subtracted: a lie about m may be true.)
        k = rng.choice([k for k in range(7, len(head)) if head[k][0] not in "mM"])
        head[k] = changed_node(head[k], k - 7, head, rng)
        return joined(head, moves, counts)
    k = rng.choice([k for k, move in enumerate(moves) if move[0] != "d"])
    if kind == 4:  # a move too few, too many, or that comes too late
        how = rng.randrange(2)
        return joined(head, moves[:k] + moves[k + 1 :] if how else moves[: k + 1] + moves[k:], counts)
    letter = rng.choice([x for x in "rwcsud" if x != moves[k][0] and (moves[k][0], x) != ("s", "c")])  # another kind
    node, mark, parent = moves[k][1:].partition("<")
    node, at, processor = node.partition("@") if not mark else (node, *parent.partition("@")[1:])
    move = letter + node + (f"<{parent.split('@')[0] or 0}" if letter in "su" else "") + at + processor
    return joined(head, moves[:k] + [move] + moves[k + 1 :], counts)


def main():
    rng = random.Random(1)
    tried = refused_by_program = 0
    for path in sorted((HERE / "certificates").glob("*.txt")):
        text = path.read_text()
        assert verdict_of_python(text) == 0 and verdict_of_program(text) == 0, path
        assert joined(*parts(text)) == text, path
        for k in range(500):
            mutant = lie(text, rng)
            if mutant == text:
                continue
            tried += 1
            verdict = verdict_of_python(mutant)
            assert verdict in (1, 2), f"{path}: accepted\n{mutant}"
            if k % 8 == 0:
                refused_by_program += 1
                assert verdict_of_program(mutant) in (1, 2), f"{path}: accepted by the program\n{mutant}"
        for k in range(0, len(text), 7):  # cut, and with a byte changed
            assert verdict_of_python(text[:k]) == 2
            assert verdict_of_python(text[:k] + chr(ord(text[k]) ^ 1) + text[k + 1 :]) == 2
        for k in range(0, len(text), 97):
            assert verdict_of_program(text[:k]) == 2
    print(f"{tried} lies refused by the script, {refused_by_program} by the program")


main()
