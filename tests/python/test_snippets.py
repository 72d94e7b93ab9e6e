"""Every block of C++ or C in a document or in a comment of a header compiles, with both compilers."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILERS = {
    "gcc": {"cpp": ["g++", "-std=c++20"], "c": ["gcc", "-std=c99"]},
    "clang": {"cpp": ["clang++-19", "-std=c++20"], "c": ["clang-19", "-std=c99"]},
}
HEADERS = "".join(
    f"#include <{path.relative_to(ROOT)}>\n" for path in sorted((ROOT / "redblue").glob("*.hpp")) if path.name != "mpi.hpp"
) + "#include <vector>\n"  # mpi.hpp needs an MPI, whose flags CMake knows


def documents():
    yield from (path for path in ROOT.glob("*.md"))
    yield from (path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "cases")  # with headers: test_readme.py
    yield from ROOT.glob("bench/**/*.md")


def snippets():
    """Where a block begins, its language and its text."""
    for path in sorted([*documents(), *ROOT.glob("redblue/**/*.h*")]):
        text = path.read_text()
        if path.suffix != ".md":  # the text of comments alone, line by line
            text = "\n".join(m[1] if (m := re.match(r"\s*///? ?(.*)", line)) else "" for line in text.splitlines())
        for block in re.finditer(r"^```(cpp|c)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 1
            yield pytest.param(block[1], block[2], id=f"{path.relative_to(ROOT)}:{line}")


ALL = list(snippets())


def is_body(language, text):
    return language == "cpp" and "#include" not in text


def program(*bodies, headers=HEADERS):
    """These bodies of functions, after all public headers. Errors name the place of a body."""
    functions = (f'#line {line} "{path}"\nvoid snippet_{i}() {{\n{text}}}\n' for i, (path, line, text) in enumerate(bodies))
    return headers + "".join(functions)


def compiles(tmp_path, compiler, language, text):
    command = COMPILERS[compiler][language]
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not here: scripts/setup.sh --dev installs it")
    source = tmp_path / f"snippet.{language}"
    source.write_text(text)
    options = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-fsyntax-only", f"-I{ROOT}", f"-I{ROOT}/redblue/c_api"]
    done = subprocess.run([*command, *options, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_snippets_to_compile():
    names = [p.id for p in ALL]
    for file in ("docs/cpp.md", "docs/c-api.md", "docs/files.md", "redblue/runtime/run.hpp"):
        assert any(name.startswith(file) for name in names), names


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("language, text", [p for p in ALL if not is_body(*p.values)])
def test_a_whole_file_compiles(tmp_path, compiler, language, text):
    compiles(tmp_path, compiler, language, text)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_bodies_of_functions_compile(tmp_path, compiler):
    """All in one program: to read the headers takes longer than to compile what uses them."""
    bodies = [(*p.id.rsplit(":", 1), p.values[1]) for p in ALL if is_body(*p.values)]
    assert len(bodies) >= 5
    compiles(tmp_path, compiler, "cpp", program(*bodies))


def test_a_wrong_snippet_is_noticed():
    command = ["g++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", "-xc++", "-"]
    for values, status in (("std::vector<float>(4)", 1), ("values", 0)):  # a view of what is gone, and of what stays
        body = f"std::vector<float> values(4);\nredblue::Tensor t({values}, {{1, 1, 2, 2}});\n"
        text = program(("here", 1, body), headers="#include <redblue/attention.hpp>\n#include <vector>\n")
        assert subprocess.run(command, input=text, text=True, capture_output=True).returncode == status


C_LIBRARY = os.environ.get("REDBLUE_C_LIBRARY")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home, in a folder that has the examples and the build, as the documents' commands expect."""
    if not C_LIBRARY or not Path(C_LIBRARY).exists():
        pytest.skip("set REDBLUE_C_LIBRARY to libredblue_c.so of a build of everything")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/release").symlink_to(Path(C_LIBRARY).resolve().parent)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


def shell(commands):
    done = subprocess.run(["bash", "-ec", commands], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_commands_for_c_programs_compile_link_and_run(home):
    commands = blocks("docs/c-api.md", "sh")
    assert [shell(c).count("times the bound") for c in commands] == [1, 1]
    (gradients,) = (b for b in blocks("docs/c-api.md", "c") if "redblue_backward(" in b)
    (home / "gradients.c").write_text(gradients)
    shown = shell(commands[1].replace("examples/06_c_api.c", "gradients.c"))
    assert shown.startswith("dv[5] = ")


def test_cmake_of_a_schedule_of_your_own_configures_and_builds(home):
    shell("cmake --install build/release --prefix ~/.local")
    (home / "mine").mkdir()
    (cmake,) = blocks("docs/adding-an-algorithm.md", "cmake")
    (commands,) = blocks("docs/adding-an-algorithm.md", "sh")
    (home / "mine/CMakeLists.txt").write_text(cmake)
    (home / "mine/mine.cpp").write_text("#include <redblue/version.hpp>\nint main() {}\n")
    shell(f"cd mine\n{commands}\nbuild/mine")
