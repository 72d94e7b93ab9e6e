"""Every block of C++ or C in a document or in a comment of a header compiles, with both compilers."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILERS = {"cpp": (["g++", "-std=c++20"], ["clang++-19", "-std=c++20"]), "c": (["gcc", "-std=c99"], ["clang-19", "-std=c99"])}
HEADERS = "".join(
    f"#include <{path.relative_to(ROOT / 'include')}>\n"
    for path in sorted([*(ROOT / "include/redblue").glob("*.hpp"), *(ROOT / "include/redblue/file").glob("*.hpp")])
) + "#include <vector>\n"


def documents():
    yield from (path for path in ROOT.glob("*.md"))
    yield from (path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "cases")  # with headers: test_readme.py
    yield from ROOT.glob("bench/**/*.md")


def snippets():
    """Where a block begins, its language and its text."""
    for path in sorted([*documents(), *ROOT.glob("include/**/*.h*")]):
        text = path.read_text()
        if path.suffix != ".md":  # the text of comments alone, line by line
            text = "\n".join(m[1] if (m := re.match(r"\s*///? ?(.*)", line)) else "" for line in text.splitlines())
        for block in re.finditer(r"^```(cpp|c)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 1
            yield pytest.param(block[1], block[2], id=f"{path.relative_to(ROOT)}:{line}")


ALL = list(snippets())


def program(language, text):
    """As it stands if it is a whole file; else as the body of a function, after all public headers."""
    return text if language == "c" or "#include" in text else f"{HEADERS}void snippet() {{\n{text}}}\n"


def test_there_are_snippets_to_compile():
    names = [p.id for p in ALL]
    for file in ("README.md", "docs/c-api.md", "docs/files.md", "include/redblue/attention.hpp"):
        assert any(name.startswith(file) for name in names), names


@pytest.mark.parametrize("language, text", ALL)
def test_snippet_compiles(tmp_path, language, text):
    source = tmp_path / f"snippet.{language}"
    source.write_text(program(language, text))
    for compiler in COMPILERS[language]:
        done = subprocess.run(
            [*compiler, "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-fsyntax-only", f"-I{ROOT}/include", source],
            capture_output=True, text=True,
        )
        assert done.returncode == 0, done.stderr


def test_a_wrong_snippet_is_noticed():
    wrong = program("cpp", "redblue::Tensor t(std::vector<float>(4), {1, 1, 2, 2});\n")  # a view of what is gone
    done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}/include", "-xc++", "-"], input=wrong, text=True,
                          capture_output=True)
    assert done.returncode != 0
