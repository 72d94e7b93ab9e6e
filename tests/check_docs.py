#!/usr/bin/env python3
"""Fails when documentation names what does not exist.

docs/theorems.md: every `path` exists; `bound::name` is declared under redblue/bounds/ or in redblue/methods/; `Class::member` and
`function` stand in a file that the same row names; `Suite.Name` is a test; no cell of the columns in REQUIRED is empty.
Any *.md: a relative link leads to a file, and its #anchor to a heading; a block of code under <!-- file: PATH --> is
that file, word for word; no line is longer than COLUMNS, but those that cannot be broken; a path in `code` leads to a file or
a folder, and so do paths in comments of C and C++.
The newest release of CHANGELOG.md, and the version that tests/consumer asks for, are that of redblue/version.hpp.
docs/reading.md: the path through model and code is as short as docs/README.md says.
Text files: none of RIDDLES, phrases that readers stumble over.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
THEOREMS = ROOT / "docs/theorems.md"
REQUIRED = {"theorem", "statement", "source", "file", "bound", "cost", "proof", "page", "tests"}

COLUMNS = 120
# All other documents keep to COLUMNS and to whole sentences; this one does not yet.
NOT_WRAPPED = {"CHANGELOG.md"}

# Phrases without a subject or a referent, also where a line of a comment ends inside them.
BREAK = r"(?:\s*\n\s*(?://+<?|\*|#)?\s*|\s+)"
RIDDLES = re.compile(
    "|".join(
        rf"\b{phrase.replace(' ', BREAK)}\b"
        for phrase in ("so many", "what is said", "the one for", "costs what it costs", "has not got", "are to be had")
    ),
    re.IGNORECASE,
)
# Beginnings of a sentence that say nothing of its subject; tests/check_comments.py looks for them in comments.
NO_SUBJECT = (
    r"Of [^.]|As of |Those (?:that|which|who|of) |That of |Else |Not so\b|For what |What is left of |All but "
    r"|The same(?:[,.;:]| (?:where|for|with|as|if|when|under|in|into|on|one"
    r"|of|to|from|over|without|way)\b)"
    r"|(?:Nothing|None)(?:[,.;:]| (?:where|for|if|when|unless|beyond)\b)|With a number in place of "
    r"|In place of [^,.;:]*[.;:]|Not (?:with|for) "
)
# Documents, moreover, have no sentences that begin with a verb.
FRAGMENT = re.compile(
    rf"{NO_SUBJECT}|(?:And|What the others have|This project's|Supports|Takes|Needs|Holds|Returns|Keeps|Computes|Gives"
    r"|Forward only|Not yet here|Not implemented)\b"
)
SENTENCE = re.compile(r"(?:^|\n\s*\n|\n\s*(?:[-*+]|\d+\.)\s+|[.!?][*)]*\s+)(?=[A-Z])")
RIDDLES_OF_SENTENCES = re.compile(  # of documents and of comments
    r"that\s+nobody\s+gave|is\s+not\s+a\s+number\s+is\s+not|hides?\s+what\s+is\s+not\s+there"
    r"|what\s+the\s+others\s+have|the\s+rest\s+are\s+what",
    re.IGNORECASE,
)
TEXT = {".md", ".hpp", ".cpp", ".h", ".c", ".py", ".sh", ".cmake", ".txt"}

TEST = re.compile(r"\b(?:(?:TYPED_)?TEST(?:_[FP])?|RC_GTEST_(?:FIXTURE_)?PROP)\s*\(\s*(\w+)\s*,\s*(\w+)")
PATH = re.compile(r"[\w./-]+/[\w./-]*|[\w-]+\.(?:md|hpp|cpp|py|sh|csv|txt|cff)")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
QUOTE = re.compile(r"^<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def read(path):
    return path.read_text(encoding="utf-8")


def tests():
    found = set()
    for file in (ROOT / "tests").rglob("*.cpp"):
        found |= {f"{suite}.{name}" for suite, name in TEST.findall(read(file))}
    return found


def names_member(text, qualified):
    """Is `Class::member`, or a free `function`, in this source text?"""
    *scopes, name = qualified.split("::")
    return all(re.search(rf"\b(?:struct|class|namespace)\s+(?:\w+::)*{s}\b", text) for s in scopes) and re.search(
        rf"\b{name}\b", text
    )


def check_reference(ref, files, known_tests):
    """What is wrong with one backticked reference, or None."""
    if PATH.fullmatch(ref):
        return None if (ROOT / ref).exists() else f"no such file: {ref}"
    if re.fullmatch(r"\w+\.\w+", ref):
        return None if ref in known_tests else f"no such test: {ref}"
    if re.fullmatch(r"\w+(::\w+)*", ref):
        if ref.startswith("bound::"):
            text = "".join(read(f) for d in ("bounds", "methods") for f in (ROOT / "redblue" / d).glob("*.hpp"))
            return None if re.search(rf"\b{ref.removeprefix('bound::')}\s*\(", text) else f"no such bound: {ref}"
        if any(names_member(read(f), ref) for f in files):
            return None
        return f"{ref} is not in {', '.join(str(f.relative_to(ROOT)) for f in files) or 'any file of its row'}"
    return f"not a path, name or test: {ref}"


def rows(text):
    """(line number, {column: cell}, is no cell missing) for the rows of all tables."""
    header = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            header = None
            continue
        cells = [c.strip() for c in line.strip().strip("|").split(" | ")]
        if header is None:
            header = [c.split(" (")[0] for c in cells]
        elif not re.fullmatch(r"[\s|:-]+", line):
            yield number, dict(zip(header, cells)), len(cells) == len(header)


def check_theorems():
    known_tests = tests()
    count = 0
    for number, row, complete in rows(read(THEOREMS)):
        count += 1
        where = f"docs/theorems.md:{number}"
        if not complete:
            yield f"{where}: another number of cells than its table has columns"
        for column in sorted(REQUIRED & row.keys()):
            if row[column] in ("", "-"):
                yield f"{where}: column '{column}' is empty"
        refs = re.findall(r"`([^`]+)`", " ".join(row.values()))
        files = [ROOT / r for r in refs if PATH.fullmatch(r) and (ROOT / r).is_file() and r.endswith((".hpp", ".cpp"))]
        for ref in refs:
            problem = check_reference(ref, files, known_tests)
            if problem:
                yield f"{where}: {problem}"
    if count == 0:
        yield "docs/theorems.md: no rows"
    for ref in re.findall(r"`([^`]+)`", re.sub(r"^\|.*$", "", read(THEOREMS), flags=re.MULTILINE)):
        if PATH.fullmatch(ref) and not (ROOT / ref).exists():
            yield f"docs/theorems.md: no such file: {ref}"


def folders(parent):
    return {p.name for p in parent.iterdir() if p.is_dir() and p.name not in ("build", ".git")}


# Folders that CONTRIBUTING.md names for what may come.
TO_COME = {"kernels/arm", "hardware/arm", "methods/kernels/arm", "schedules/second"}
# FAMILY, NAME, MACHINE-DATE-COMMIT: what the reader puts in.
PLACEHOLDER = re.compile(r"(?:^|[/_-])[A-Z]{4,}(?=[/.-]|$)")
WORD_OF_PATH = re.compile(r"(?<![\w./<\"'-])[\w.*-]+(?:/[\w.*-]+)*(?:/|\.(?:md|hpp|cpp|h|c|py|sh|cmake|csv|json|txt))(?![\w/>\"'])")


def check_paths(file):
    """Paths from the root, from redblue/ or from the file's own folder, with wildcards or without."""
    text = read(file)
    if file.suffix == ".md":
        known = "\n".join(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))
    else:
        known = "\n".join(re.findall(r"(?:///?<?|^ ?\*|/\*) .*$", text, flags=re.MULTILINE))
    first = folders(ROOT) | folders(ROOT / "redblue")
    for path in dict.fromkeys(WORD_OF_PATH.findall(known)):
        name = path.strip("/")
        if "/" not in path or path.split("/")[0] not in first or name in TO_COME or PLACEHOLDER.search(name):
            continue
        if not any(any(base.glob(name)) for base in (ROOT, ROOT / "redblue", file.parent)):
            yield f"{file.relative_to(ROOT)}: {path}: no such file or folder"


def check_version():
    version = re.search(r'kVersion = "(\d+\.\d+)(\.\d+)"', read(ROOT / "redblue/version.hpp"))
    if not version:
        yield "redblue/version.hpp: no kVersion"
        return
    for file, wanted, pattern in (
        ("CHANGELOG.md", version[1] + version[2], r"^## (\d\S*)"),
        ("tests/consumer/CMakeLists.txt", version[1], r"^find_package\(redblue (\S+)"),
    ):
        found = re.search(pattern, read(ROOT / file), re.MULTILINE)
        if not found or found[1] != wanted:
            yield f"{file}: its version is {found and found[1]}, that of redblue/version.hpp is {wanted}"


def anchors(text):
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    slug = lambda h: re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", h).lower()).replace(" ", "-")
    return {slug(h) for h in HEADING.findall(text)}


def check_links(file):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", read(file), flags=re.DOTALL)
    for target in LINK.findall(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE):
            continue
        path, _, anchor = target.partition("#")
        to = (ROOT / path.lstrip("/") if path.startswith("/") else file.parent / path) if path else file
        where = f"{file.relative_to(ROOT)}: link to {target}:"
        if not to.exists():
            yield f"{where} no such file"
        elif anchor and to.suffix == ".md" and anchor not in anchors(read(to)):
            yield f"{where} no such heading"


def check_quotes(file):
    text = read(file)
    quotes = QUOTE.findall(text)
    if len(quotes) != text.count("<!-- file: "):
        yield f"{file.relative_to(ROOT)}: no block of code under a <!-- file: PATH -->"
    for path, code in quotes:
        if not (ROOT / path).exists() or code != read(ROOT / path):
            yield f"{file.relative_to(ROOT)}: the block of code is not {path}"


def check_reading():
    """docs/model.md up to its masks, and the files of the first list of docs/reading.md."""
    most = re.search(r"a path of under (\d+) lines", read(ROOT / "docs/README.md"))
    section = read(ROOT / "docs/reading.md").split("\n## ")[1]
    files = [ROOT / f for f in re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)]
    texts = [read(ROOT / "docs/model.md").split("\n## Masks")[0], *(read(f) for f in files if f.exists())]
    lines = sum(len(t.splitlines()) for t in texts)
    if not most or lines >= int(most[1]):
        yield f"docs/reading.md: its first path has {lines} lines, docs/README.md promises less"


def check_width(file):
    """Rows of tables, what programs print (blocks of code without a language) and single words cannot be broken."""
    language = None  # of the block of code that the line stands in
    for number, line in enumerate(read(file).splitlines(), 1):
        if line.lstrip().startswith("```"):
            language = line.strip("` ") if language is None else None
        elif len(line) > COLUMNS and language != "" and not line.lstrip().startswith("|") and len(line.split()) > 1:
            yield f"{file.relative_to(ROOT)}:{number}: {len(line)} columns, more than {COLUMNS}"


def check_riddles(file):
    text = read(file)
    for found in RIDDLES.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield f"{file.relative_to(ROOT)}:{line}: '{' '.join(found[0].split())}': name the subject, in common words"


def check_sentences(file):
    """Paragraphs and lists, without code, tables, headings and comments."""
    blank = lambda m: re.sub(r"[^\n]", "", m[0])  # of the same number of lines
    text = re.sub(r"^```[\s\S]*?^```|^(?: {4}|\||#).*$|<!--[\s\S]*?-->", blank, read(file), flags=re.MULTILINE)
    begins = [m for s in SENTENCE.finditer(text) if (m := FRAGMENT.match(text, s.end()))]
    for found in [*begins, *RIDDLES_OF_SENTENCES.finditer(text)]:
        line = text.count("\n", 0, found.start()) + 1
        words = " ".join(text[found.start() :].split()[:6])
        yield f"{file.relative_to(ROOT)}:{line}: '{words} ..': begin with the subject, in common words"


def check_formulas(file):
    """Formulas stand between dollars, and each dollar has its partner; headings, which are addresses, are left out."""
    blank = lambda m: re.sub(r"[^\n]", "", m[0])
    text = re.sub(r"^```[\s\S]*?^```|`[^`\n]*`|^#.*$|\]\([^)]*\)", blank, read(file), flags=re.MULTILINE)
    text = re.sub(r"\$\$[\s\S]*?\$\$|\$[^$]*\$", blank, text)
    for found in re.finditer(r"[<>]=|:=|\bsqrt\b|\bSUM\b|\^|\b[A-Za-z]_[a-z]\b|\$", text):
        line = text.count("\n", 0, found.start()) + 1
        yield f"{file.relative_to(ROOT)}:{line}: '{found[0]}' outside of $...$"


def main():
    skip = {"build", ".git", "node_modules"}
    documents = [f for f in sorted(ROOT.rglob("*.md")) if not skip & set(f.relative_to(ROOT).parts)]
    wrong = list(check_theorems()) if THEOREMS.exists() else ["docs/theorems.md does not exist"]
    wrong += [*check_reading(), *check_version()]
    for file in documents:
        wrong += [*check_links(file), *check_quotes(file), *check_paths(file)]
        if file.name not in NOT_WRAPPED:
            wrong += [*check_width(file), *check_sentences(file)]
    for file in [THEOREMS, *sorted(ROOT.glob("docs/proofs/*.md"))]:
        wrong += check_formulas(file)
    for file in sorted(f for f in ROOT.rglob("*") if f.suffix in TEXT and not skip & set(f.relative_to(ROOT).parts)):
        if file != Path(__file__).resolve():
            wrong += check_riddles(file)
        if file.suffix in {".hpp", ".cpp", ".h", ".c"}:
            wrong += check_paths(file)
    print("\n".join(wrong) if wrong else f"{len(documents)} documents: all that they name exists")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
