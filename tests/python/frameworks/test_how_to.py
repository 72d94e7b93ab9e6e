"""The Python of docs/how-to, and that of JAX in docs/python.md, runs as written: blocks of a page one after another."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "how-to").glob("*.md"))
pytestmark = pytest.mark.usefixtures("hardware")


def blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(code, page):
    for module in ("torch", "onnx", "jax"):
        if re.search(rf"^(import|from)\b.*\b{module}\b", code, re.MULTILINE):
            pytest.importorskip(module)
    exec(compile(code, page, "exec"), {})


@pytest.mark.filterwarnings("error:Converting a tensor with requires_grad")  # a reader would see it
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page):
    code = "\n".join(blocks(page.read_text(encoding="utf-8")))
    assert "redblue" in code and "assert" in code
    run(code, str(page))


def test_the_python_of_jax_runs():
    (code,) = (b for b in blocks((DOCS / "python.md").read_text(encoding="utf-8")) if "import jax" in b)
    run(code, "docs/python.md")


def test_a_page_that_is_wrong_is_noticed():
    with pytest.raises(AttributeError):
        run("import redblue\nredblue.atention", "a page")
