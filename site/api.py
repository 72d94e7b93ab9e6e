"""Pages of the interfaces: Python from docstrings, C and C++ from the comments of public headers.

    site/api.py FOLDER
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python/redblue"


def indented(text: str) -> str:
    return "\n".join("    " + line if line else "" for line in text.splitlines())


def signature(f: ast.FunctionDef) -> str:
    result = f" -> {ast.unparse(f.returns)}" if f.returns else ""
    return f"{f.name}({ast.unparse(f.args)}){result}"


def of_definition(path: str, node: ast.AST) -> str:
    """A function, or a class with its public methods."""
    functions = [node] if isinstance(node, ast.FunctionDef) else [f for f in node.body if isinstance(f, ast.FunctionDef)]
    lines = [f"### {path}", ""]
    if not isinstance(node, ast.FunctionDef):
        lines += [indented(ast.get_docstring(node) or ""), ""]
    for f in functions:
        if not f.name.startswith("_") and ast.get_docstring(f):
            lines += [indented(signature(f)), "", indented(ast.get_docstring(f)), ""]
    return "\n".join(lines)


def definitions(file: str) -> dict:
    body = ast.parse((PACKAGE / file).read_text()).body
    return {x.name: x for x in body if isinstance(x, (ast.FunctionDef, ast.ClassDef)) and not x.name.startswith("_")}


def brought_into(tree: ast.Module) -> dict:
    """What a module takes from other modules of the package, by name, where it is defined there."""
    found = {}
    for x in ast.walk(tree):
        if isinstance(x, ast.ImportFrom) and x.level == 1 and x.module not in (None, "_core"):
            known = definitions(x.module.replace(".", "/") + ".py")
            found.update({n.name: known[n.name] for n in x.names if n.name in known})
    return found


def of_module(file: str) -> str:
    """What a module defines, and what it brings of those that stand behind it, as far as it lists it."""
    name = f"redblue.{file.removesuffix('.py')}"
    tree = ast.parse((PACKAGE / file).read_text())
    listed = [x.value for x in tree.body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "__all__"]
    brought = {n: x for n, x in brought_into(tree).items() if listed and n in ast.literal_eval(listed[0])}
    things = "\n".join(of_definition(f"{name}.{n}", x) for n, x in {**brought, **definitions(file)}.items())
    return f"## {name}\n\n{indented(ast.get_docstring(tree) or '')}\n\n{things}"


def of_package() -> str:
    """What `import redblue` brings, from the files where it is defined."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    things = [of_definition(f"redblue.{n}", x) for n, x in brought_into(tree).items()]
    return f"## redblue\n\n{indented(ast.get_docstring(tree))}\n\n" + "\n".join(things)


def of_header(path: pathlib.Path) -> str:
    """A public header, with the headers of rooms that it names."""
    named = re.findall(r'^#include "(redblue/.*)"$', path.read_text(), re.MULTILINE) if path.suffix == ".hpp" else []
    name = path.name if path.suffix == ".h" else f"redblue/{path.name}"
    return f"## {name}\n\n" + "\n".join(f"{indented(file.read_text())}\n" for file in (path, *(ROOT / n for n in named)))


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    modules = ("patterns.py", "torch.py", "onnx.py", "plot.py")
    python = "\n".join([of_package(), *(of_module(file) for file in modules)])
    (folder / "python.md").write_text(f"# The Python package, function by function\n\n{python}")
    c = "\n".join(of_header(ROOT / "redblue/c_api" / name) for name in ("redblue.h", "redblue_second.h"))
    (folder / "c.md").write_text(f"# The C interface\n\n{c}")
    headers = sorted((ROOT / "redblue").glob("*.hpp"))
    (folder / "cpp.md").write_text("# The C++ interface\n\n" + "\n".join(of_header(h) for h in headers))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
