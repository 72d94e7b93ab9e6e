#!/usr/bin/env python3
"""Mutants of true certificates, judged by scripts/replay.py and scripts/replay.cpp (docs/pebbling.md, Tampering).

A mutant is tampering when something that it claims is not so, by the library's own reader, referee and values of nodes:
neither replayer may accept one. A mutant that claims what is so (two reads in another order, a larger M, another name of
the schedule) is none, and both must accept it. VERDICTS is the program of verdicts.cpp; it includes scripts/replay.cpp.

    tests/tampering/tampering_test.py build/release/tests/verdicts --mutants 10000
"""

import argparse
import contextlib
import io
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import mutants

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import replay  # noqa: E402


def certificates():
    for path in sorted((ROOT / "tests/pebbling/certificates").glob("*.txt")):
        yield path.stem, path.read_text()
    for path in sorted((ROOT / "tests/fuzz/corpus/pebbling").glob("ok_*.txt")):  # they lack the last line
        yield path.stem, mutants.signed(path.read_text())


def verdict_of_script(text):
    """The exit code of the script for a file with this text."""
    replay.open = lambda path, **how: io.TextIOWrapper(io.BytesIO(text.encode()), **how)
    sys.argv = ["replay.py", "certificate.txt"]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            replay.main()
    except SystemExit as end:
        assert len(said.getvalue().splitlines()) == 1, said.getvalue()
        return end.code
    return 0


class Verdicts:
    """The program, asked text by text."""

    def __init__(self, program, folder):
        command, pipe = [program, Path(folder) / "certificate.txt"], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def another_original(self):
        self.process.stdin.write(b"next\n")

    def ask(self, text):
        """The exit code of scripts/replay.cpp, and whether all is so (None: outputs differ by too little to say)."""
        data = text.encode()
        self.process.stdin.write(f"{len(data)}\n".encode() + data)
        self.process.stdin.flush()
        while not (line := self.process.stdout.readline().decode()).startswith("verdict "):
            assert line.startswith("reads="), line
        code, so = line.split()[1:]
        return int(code), {"0": False, "1": True, "?": None}[so]


NO_MOVES = """redblue pebbling certificate 1
schedule nothing to do
graph an input that is an output
problem none
rules place
M 1
nodes 1
a input 1 out -
moves 0
counts reads=0 writes=0 computed=0 peak=0
crc32 """


def judge(verdicts, number, rng):
    """Counts of mutants by mutator that are tampering, and that are true; those that a replayer takes for the other."""
    originals = list(certificates())
    for text in (NO_MOVES, NO_MOVES.replace("nothing to do", 500_000 * "x")):
        verdicts.another_original()
        assert verdict_of_script(mutants.signed(text)) == 0 and verdicts.ask(mutants.signed(text)) == (0, True)
    tampered, true, wrong = Counter(), Counter(), []
    for k, (name, text) in enumerate(originals):
        verdicts.another_original()
        assert verdict_of_script(text) == 0 and verdicts.ask(text) == (0, True), name
        assert mutants.joined(*mutants.parts(text)) == text, name
        of_this = 0
        while of_this < (number + k) // len(originals):
            mutator = mutants.MUTATORS[of_this % len(mutants.MUTATORS)]
            mutant = mutator(text, rng)
            if mutant == text:
                continue
            program, so = verdicts.ask(mutant)
            if so is None:
                continue
            of_this += 1
            script = verdict_of_script(mutant)
            (true if so else tampered)[mutator.__name__] += 1
            if ((script == 0) != so) or ((program == 0) != so):
                wrong.append((name, mutator.__name__, script, program, so, mutant))
    return tampered, true, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verdicts", metavar="VERDICTS")
    parser.add_argument("--mutants", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tampered, true, wrong = judge(Verdicts(args.verdicts, folder), args.mutants, random.Random(args.seed))
    print(f"{'mutation':<20}{'tampering':>11}{'true as well':>14}")
    for mutator in mutants.MUTATORS:
        print(f"{mutator.__name__:<20}{tampered[mutator.__name__]:>11}{true[mutator.__name__]:>14}")
    for name, mutation, script, program, so, mutant in wrong[:5]:
        print(f"\n{name}, {mutation}: script {script}, program {program}, true: {so}\n{mutant}")
    accepted = [sum(1 for w in wrong if w[k] == 0 and not w[4]) for k in (2, 3)]
    refused = [sum(1 for w in wrong if w[k] != 0 and w[4]) for k in (2, 3)]
    print(f"of {tampered.total()} that are tampering the script accepts {accepted[0]}, the program {accepted[1]}; of "
          f"{true.total()} that are true the script refuses {refused[0]}, the program {refused[1]}")
    assert not wrong


main()
