"""What mkdocs does for redblue's pages beyond its own work: folders in the navigation, links for paths, MathML."""

import html
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert

# What stays as it is comes first: fenced and indented code, and links. The last is a path, in backticks or not.
PATHS = re.compile(
    r"^```[\s\S]*?^```|^(?: {4}|#).*$|!?\[[^\]]*\]\([^)]*\)|"
    r"(?P<tick>`?)(?<![\w/.-])(?P<path>[\w./-]+\.md)\b(?![/-])(?P=tick)",
    re.MULTILINE,
)
MATHS = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
CELL = re.compile(r"<t([dh])\b.*?</t\1>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]*(?=</code>)")
BREAK = re.compile(r"(?:/|::|[_.,])(?=\w)")  # where a name that is wider than its column may go on in the next line


def on_config(config):
    """Lists the pages of each folder that the navigation names."""
    source = Path(config.docs_dir)
    for entry in config.nav:
        for title, value in entry.items():
            if isinstance(value, str) and value.endswith("/"):
                pages = sorted(source.glob(f"{value}*.md"), key=lambda p: (p.name != "README.md", p.name))
                entry[title] = [str(p.relative_to(source)) for p in pages]
    return config


def on_page_markdown(markdown, page, files, **_):
    """A path of a page, from the root of the repository or from the folder of this page, becomes a link to it."""
    here = posixpath.dirname(page.file.src_uri)

    def link(match):
        path = match["path"]
        for target in (path, posixpath.join(here, path)) if path else ():
            if target != page.file.src_uri and files.get_file_from_path(target):
                return f"[{match[0]}]({posixpath.relpath(target, here or '.')})"
        return match[0]

    return PATHS.sub(link, markdown)


def pieces(formula):
    """A long formula, cut before its relations, sums, differences and bracketed factors: browsers break no line inside
    MathML."""
    if len(formula) <= 20:
        return [formula]
    depth, cuts = 0, [0]
    for token in re.finditer(r"\\[A-Za-z]+|.", formula):
        if depth == 0 and token[0] == "(" and formula[token.start() - 1 : token.start()] in (")", "/"):
            cuts.append(token.start())
        depth += (token[0] in "([{" or token[0] == r"\lbrace") - (token[0] in ")]}" or token[0] == r"\rbrace")
        operator = token[0] in (r"\le", r"\ge", r"\ll", r"\coloneqq", "<", ">", "=", "+", "-")
        if depth == 0 and operator and formula[token.start() - 1 : token.start()] == " ":
            cuts.append(token.start())
    return [("{}" if i else "") + formula[i:j] for i, j in zip(cuts, [*cuts[1:], None])]


def on_page_content(content, **_):
    """Formulas become MathML. In cells of tables a `\\|` in code becomes the bar that it stands for, and names wrap."""

    def maths(match):
        formula = html.unescape(match[2]).replace(":=", r"\coloneqq")
        if match[1] == "div":
            return f'<div class="maths">{convert(formula, display="block")}</div>'
        return "<wbr>".join(map(convert, pieces(formula)))

    def code(match):
        return BREAK.sub(r"\g<0><wbr>", match[0].replace("\\|", "|"))

    return MATHS.sub(maths, CELL.sub(lambda cell: CODE.sub(code, cell[0]), content))
