#!/usr/bin/env python3
"""Fails when a sentence of a comment or docstring lacks its subject, or is a riddle (check_docs.py has the lists)."""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

from check_docs import NO_SUBJECT, RIDDLES_OF_SENTENCES

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("redblue", "cli", "python", "examples", "tests/support")
CPP = {".hpp", ".cpp", ".h", ".c"}

FRAGMENT = re.compile(NO_SUBJECT)
SENTENCE = re.compile(r"(?:^|[.!?:][)\"']*\s+)(?=[A-Z])")
# Strings first, so that a `//` inside one is no comment.
TOKEN = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'|//[!/]*<?[^\n]*|/\*.*?\*/", re.DOTALL)


def joined(pieces):
    """(line, text) of comments from pieces (line, column, text, alone on its line) in order.

    A piece on the next line, alone there, goes on with the one above; after code, only from the column of that one on.
    """
    found = []
    last = None
    for line, column, text, alone in pieces:
        if last and alone and line == last[0] + 1 and text and (last[2] or column >= last[1]):
            found[-1][1].append(text)
            last = (line, column, last[2])
        else:
            found.append((line, [text]))
            last = (line, column, alone)
    return [(line, " ".join(texts)) for line, texts in found]


def comments_of_cpp(source):
    pieces = []
    for token in TOKEN.finditer(source):
        if token[0].startswith("/"):
            line = source.count("\n", 0, token.start()) + 1
            start = source.rfind("\n", 0, token.start()) + 1
            text = re.sub(r"^(?://[!/]*<?|/\*+<?)|\*+/$|\n\s*\*", " ", token[0])
            alone = not source[start : token.start()].strip()
            pieces.append((line, token.start() - start, " ".join(text.split()), alone))
    return joined(pieces)


def comments_of_python(source):
    pieces = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            pieces.append((*token.start, token.string.lstrip("#! ").strip(), alone))
    found = joined(pieces)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                found.append((node.body[0].lineno, " ".join(paragraph.split())))
    return found


def wrong_in(name, source):
    """What is wrong with the comments of one file."""
    for line, text in (comments_of_python if name.endswith(".py") else comments_of_cpp)(source):
        for start in SENTENCE.finditer(text):
            if FRAGMENT.match(text, start.end()):
                yield f"{name}:{line}: this sentence lacks its subject: '{text[start.end() :][:60]}'"
        for riddle in RIDDLES_OF_SENTENCES.finditer(text):
            yield f"{name}:{line}: say this another way: '{riddle[0]}'"


def files(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in CPP | {".py"}:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def main():
    sources = dict(files(ROOT))
    wrong = [line for name, source in sources.items() for line in wrong_in(name, source)]
    print("\n".join(wrong) or f"{len(sources)} sources: each sentence of their comments has its subject")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
