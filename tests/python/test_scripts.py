"""What scripts/setup.sh installs for whom, and that scripts/test.sh compiles nothing that scripts/demo.sh has compiled."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LARGE = ("chromium", "nodejs", "wasi-libc", "clang", "torch", "transformers", "jax", "onnx", "mkdocs", "matplotlib")


def stub(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


@pytest.fixture
def tree(tmp_path):
    """A copy of the repository without builds, whose build/venv has a pip that only says what it is asked for."""
    copy = tmp_path / "redblue"
    names = shutil.ignore_patterns("build", ".git", "results", "fuzz", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=names, symlinks=True)
    stub(copy / "build/venv/bin/pip", f'echo pip "$@" >>"{tmp_path}/asked"\n')
    stub(copy / "build/venv/bin/python", f'exec "{sys.executable}" "$@"\n')
    return copy


def run(tree, tools, *command):
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    for name in ("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_C_COMPILER_LAUNCHER", "PYTHONPATH"):
        environment.pop(name, None)
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("mode", ["", "--test", "--dev"])
def test_setup_installs_what_its_tests_use(tree, tmp_path, mode):
    asked, tools = tmp_path / "asked", tmp_path / "tools"
    stub(tools / "dpkg-query", "exit 1\n")  # a bare machine
    stub(tools / "apt-get", f'echo apt-get "$@" >>"{asked}"\n')
    stub(tools / "sudo", 'exec "$@"\n')
    done = run(tree, tools, "scripts/setup.sh", *mode.split())
    assert done.returncode == 0, done.stderr
    installed = asked.read_text()
    for line in installed.splitlines():
        if "-r scripts/" in line:
            installed += (tree / line.split("-r ")[1]).read_text()
    assert " g++ " in installed and " libcli11-dev " in installed
    assert ("librapidcheck-dev" in installed) == (mode != "") == ("\nnumpy>" in installed)
    named = {name for name in LARGE if name in installed}
    assert not named if mode != "--dev" else {"clang", "torch", "jax", "mkdocs"} <= named
    asked.unlink()
    stub(tools / "dpkg-query", 'printf "installed "\n')
    run(tree, tools, "scripts/setup.sh", *mode.split())
    assert not asked.exists() or "pip" not in asked.read_text()  # a second time, pip has nothing to do


def test_setup_refuses_what_it_does_not_know(tree, tmp_path):
    done = run(tree, tmp_path, "scripts/setup.sh", "--tests")
    assert done.returncode == 2 and "usage" in done.stderr


def test_after_the_demo_the_first_tests_compile_nothing_again(tree, tmp_path):
    """The commands that make the program's objects are the same, letter by letter."""
    if not shutil.which("dpkg-query") or run(tree, tmp_path, "dpkg-query", "-W", "librapidcheck-dev").returncode:
        pytest.skip("this is not Debian with what scripts/setup.sh installs")
    tools, commands = tmp_path / "tools", []
    cmake = shutil.which("cmake")
    # A cmake that configures, and lists in place of building what it would run for the program.
    stub(tools / "cmake", f'case "$*" in *--build*) exec ninja -C build/release -t commands redblue-cli;; esac\nexec "{cmake}" "$@"\n')
    for script in ("scripts/demo.sh", "scripts/test.sh"):
        done = run(tree, tools, script)
        assert "build/release" in done.stdout or "=== release build" in done.stdout, done.stdout + done.stderr
        commands.append({line for line in done.stdout.splitlines() if " -c " in line and ".o " in line})
    assert len(commands[0]) > 20 and commands[0] == commands[1], commands[0] ^ commands[1]


@pytest.mark.parametrize("arguments", [["nothing"], ["--all", "cpp"], ["cpp", "--quick"]])
def test_parts_that_there_are_not_are_refused(tree, tmp_path, arguments):
    done = run(tree, tmp_path, "scripts/test.sh", *arguments)
    assert done.returncode == 2 and "scripts/test.sh PART" in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    "name, source, line",
    [
        ("a.hpp", "int a;\n/// Adds one. The same where b\n/// is 0.\nint f();\n", 2),
        ("a.hpp", "int a;  ///< the rest; Those that fit.\nint b;  ///< of a. Those that fit.\n", 2),
        ("a.h", "/* Runs.\n * Of the tensors q is read. */\n", 1),
        ("a.cpp", "// NaN: what is not a\n// number is not near.\n", 1),
        ("a.py", 'def f():\n    """Runs.\n\n    None where it fails.\n    """\n', 2),
        ("a.py", "x = 1\n# All but the first.\n", 2),
    ],
)
def test_a_sentence_of_a_comment_without_its_subject_is_refused(monkeypatch, name, source, line):
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    import check_comments

    assert [wrong.split(": ")[0] for wrong in check_comments.wrong_in(name, source)] == [f"{name}:{line}"]
    code = 'auto s = "// The same where";' if not name.endswith(".py") else 's = "# The same where"'
    assert not list(check_comments.wrong_in(name, code + "\n"))  # a string is no comment


def test_a_file_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    import check_sizes

    exceptions = dict(check_sizes.EXCEPTIONS)
    longest = next(iter(exceptions))
    assert not list(check_sizes.too_long({**exceptions, "new.cpp": 500}))
    assert [wrong.split(":")[0] for wrong in check_sizes.too_long({**exceptions, "new.cpp": 501})] == ["new.cpp"]
    assert list(check_sizes.too_long({**exceptions, longest: exceptions[longest] + 1}))
    assert list(check_sizes.too_long({**exceptions, longest: 500}))  # no exception any more
