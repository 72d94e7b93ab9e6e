"""Each block of Python in docs/how-to.md runs, one after another. Blocks need what they import, or are skipped."""

import re
from pathlib import Path

import pytest

pytest.importorskip("redblue")
TEXT = (Path(__file__).parents[2] / "docs/how-to.md").read_text()
SECTIONS = {part.split("\n", 1)[0]: re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
            for part in TEXT.split("\n## ")}  # fmt: skip
(BEGIN,) = SECTIONS.pop("# How to")


def test_each_section_has_a_block():
    assert len(SECTIONS) >= 9 and all(SECTIONS.values())


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_runs(title, monkeypatch):
    code = "\n".join(SECTIONS[title])
    for module in re.findall(r"^import ([a-z_]+)", code, re.MULTILINE):
        pytest.importorskip(module)
    names: dict = {}
    exec(BEGIN + code, names)  # noqa: S102: our own document
