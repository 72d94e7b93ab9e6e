"""The part of XLA's C interface that redblue declares is that of the installed jaxlib. Skipped where jax is missing."""

import shutil
import subprocess
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")
TEXT = Path(__file__).with_name("xla_abi.cpp")
OURS = Path(__file__).parents[3] / "python/src/xla_abi.hpp"


def compiled(ours, folder):
    (folder / "xla_abi.hpp").write_text(ours, encoding="utf-8")
    compiler = shutil.which("g++") or shutil.which("clang++-19")
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{folder}", f"-I{jax.ffi.include_dir()}", str(TEXT)]
    return subprocess.run(command, capture_output=True, text=True)


def test_declarations_are_those_of_jaxlib(tmp_path):
    result = compiled(OURS.read_text(encoding="utf-8"), tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "line, other",
    [
        ("std::int64_t rank;", "int rank;"),
        ("  Type type;\n  void* data;", "  void* data;\n  Type type;"),
        ("Values arguments, results;", "Values results, arguments;"),
        ("int major, minor;", "int minor, major;"),
        ("bf16 = 16", "bf16 = 15"),
        ("kString = 4", "kString = 3"),
        ("  const Api* api;", ""),
    ],
)
def test_a_change_is_found(line, other, tmp_path):
    text = OURS.read_text(encoding="utf-8")
    assert text.count(line) == 1
    assert "static assertion failed" in compiled(text.replace(line, other), tmp_path).stderr
