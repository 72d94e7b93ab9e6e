"""The parts of documents that programs write: they stand between <!-- NAME --> and <!-- /NAME -->."""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pattern(name):
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)


def read(document, name):
    return pattern(name).search((ROOT / document).read_text())[0]


def paragraph(text):
    """As the documents have them: lines of at most 120 columns."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def write(document, name, text):
    path = ROOT / document
    whole, replaced = pattern(name).subn(lambda _: text, path.read_text())
    if replaced != 1:
        sys.exit(f"{document} has no <!-- {name} --> ... <!-- /{name} --> block")
    path.write_text(whole)
    print(f"wrote {document}, block {name}", file=sys.stderr)


def rename_cells(results):
    """Results of November 2026 and before call packed sequences documents."""
    for e in results:
        if e["cell"] == "documents":
            e["cell"] = "sequences"
