"""A page of HTML about one run, plan, count or comparison, from what the program prints with --json."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Optional, Union

from ._compare import Comparison
from ._errors import Error, FileError, InvalidProblem

Facts = Mapping[str, Any]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 1.6rem 0 .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .15rem .7rem .15rem 0; text-align: left; vertical-align: top; white-space: nowrap; }
td.n { text-align: right; } .facts th, .facts td { white-space: normal; } .facts th { font-weight: 600; }
tr.chosen td { font-weight: 600; }
.bars div { margin: .15rem 0; } .bars .track { display: flex; height: .8rem; background: #8882; }
.track i { background: #0072B2; } .track i + i { background: #E69F00; } .bound i { background: #7F7F7F; }
.key::before { content: ""; display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .8rem; background: #0072B2; }
.writes::before { background: #E69F00; } .of-bound::before { background: #7F7F7F; }
.no { color: #D55E00; font-weight: 600; }
"""


def _text(value: Any) -> str:
    """A number, a text or a structure, ready to stand in a page."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{escape(name)}: {_text(x)}" for name, x in value.items())
    return escape(value if isinstance(value, str) else json.dumps(value))


def _tiles(tiling: Facts) -> str:
    return " ".join(f"{name}={size}" for name, size in tiling.items())


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}\n" if body else ""


def _pairs(facts: Facts) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts.items())
    return f"<table class=facts>{rows}</table>" if rows else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], chosen: Optional[int] = None) -> str:
    """Cells that are numbers stand at the right; the row `chosen` stands out."""

    def cell(value: Any) -> str:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return f"<td{' class=n' if number else ''}>{_text(value)}</td>"

    body = "".join(
        f"<tr{' class=chosen' if i == chosen else ''}>{''.join(map(cell, row))}</tr>\n" for i, row in enumerate(rows)
    )
    return f"<div class=wide><table><tr>{''.join(f'<th>{escape(h)}</th>' for h in head)}</tr>\n{body}</table></div>" if body else ""


def _bars(rows: Sequence[tuple[str, int, int]], bound: Facts) -> str:
    """(name, words read, words written) as bars, and the lower bound on the same scale."""
    widest = max([1, bound["words"], *(reads + writes for _, reads, writes in rows)])

    def bar(name: str, parts: Sequence[int], kind: str) -> str:
        lengths = "".join(f'<i style="width:{100 * part / widest:.3f}%"></i>' for part in parts)
        words = f"{_text(sum(parts))} words" + (f" ({_text(parts[0])} read, {_text(parts[1])} written)" if len(parts) == 2 else "")
        return f'<div>{escape(name)}: {words}<div class="track{kind}">{lengths}</div></div>\n'

    drawn = "".join(bar(name, (reads, writes), "") for name, reads, writes in rows)
    key = '<p><span class="key">read</span><span class="key writes">written</span><span class="key of-bound">lower bound</span></p>'
    return f"<div class=bars>{key}\n{drawn}{bar('lower bound, theorem ' + bound['theorem'], (bound['words'],), ' bound')}</div>"


def _problem(facts: Facts) -> str:
    return _section("Problem", _pairs(facts["problem"]))


def _machine(facts: Facts) -> str:
    names = ("M", "footprint_in", "compute_dtype", "kernels", "threads", "objective")
    shown = {name: facts[name] for name in names if name in facts}
    return _section("Machine", _pairs({**shown, **facts.get("options", {})}))


def _bound(facts: Facts) -> str:
    bound = facts["bound"]
    names = ("words", "theorem", "class", "status", "condition", "holds")
    return _section("Lower bound", _pairs({**{name: bound[name] for name in names}, "ratio": facts.get("ratio")}))


def _verdict(entry: Facts) -> str:
    return {True: "ok", False: "FAILED", None: "no verdict"}[entry["ok"]]


def _verification(facts: Facts) -> str:
    if "verify" not in facts:
        return ""
    verify = dict(facts["verify"])
    good = verify.pop("ok")
    groups = {"": verify, "given ": verify.pop("given", {}), "central differences ": verify.pop("central_differences", {})}
    checks = {prefix + name: entry for prefix, group in groups.items() for name, entry in group.items()}
    judged = {name: dict(entry) for name, entry in checks.items() if isinstance(entry, Mapping) and "ok" in entry}
    rows = [
        (name, _verdict(entry), ", ".join(f"{key} {_plain(x)}" for key, x in entry.items() if key != "ok"))
        for name, entry in judged.items()
    ]
    rest = {name: entry for name, entry in checks.items() if name not in judged and entry}
    said = "All agree with fp64, within tolerance." if good else '<span class="no">FAILED: not all agree with fp64.</span>'
    return _section("Verification", f"<p>{said}</p>{_table(('array', 'verdict', 'figures'), rows)}{_pairs(rest)}")


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)


def _moved(facts: Facts, counts: str) -> str:
    moved, formula = facts[counts], facts["formula"]
    arrays = [(name, words["reads"], words["writes"]) for name, words in moved["per_array"].items()]
    names = ("reads", "writes", "io", "peak", "flops")
    table = _table(("", counts, "formula"), [(name, moved[name], formula[name]) for name in names])
    equal = all(moved[name] == formula[name] for name in names)
    said = f"{counts} = formula" if equal else f'<span class="no">{counts} differs from the formula</span>'
    decisions = facts.get("decisions", {"asked": 0})
    if decisions["asked"]:  # in a run whose counts depend on its data
        within = all(moved[name] <= formula[name] for name in names)
        said = f"{counts} is within the formula" if within else f'<span class="no">{counts} is more than the formula</span>'
        exact = f"all {decisions['asked']:,} rows exact; {decisions['worst']:,} were exact"
        said += f", which is the most that any data cost: {exact}"
    drawn = _bars([*arrays, ("all arrays", moved["reads"], moved["writes"])], facts["bound"])
    return _section("Words by array", drawn) + _section("Counts", f"{table}<p>{said}</p>")


def _schedule(facts: Facts) -> str:
    chosen = {"schedule": facts["schedule"], "tiles": _tiles(facts["tiling"])}
    if "forward" in facts:
        forward = facts["forward"]
        chosen["first"] = f"a forward pass by {forward['schedule']} {_tiles(forward['tiling'])}: {forward['io']:,} words more"
    timed = {"seconds": facts["seconds"]} if facts.get("seconds") is not None else {}
    why = {"reason": facts["reason"]} if "reason" in facts else {}
    return _section("Schedule", _pairs({**chosen, **timed, **why}))


def _tolerance(facts: Facts) -> str:
    """What was asked, what answers it, and why."""
    return _section("Tolerance", _pairs(facts["tolerance"])) if "tolerance" in facts else ""


#: What a certificate says of each head, but for what exact attention has no need of.
_OF_HEADS = ("batch", "head", "range", "largest_v", "weight_error", "output_error", "rounding", "exact_rows")


def _certificate(facts: Facts) -> str:
    """What is proved, of all heads and of each; sizes and arithmetic stand elsewhere on the page."""
    if "certificate" not in facts:
        return ""
    certificate = facts["certificate"]
    heads = certificate["per_head"]
    names = ("method", "degree", "output_error", "rounding", "range", "tolerance", "scale", "mask", "output_dtype")
    said = _pairs({name: certificate[name] for name in names if name in certificate})
    columns = [name for name in _OF_HEADS if any(name in head for head in heads)]
    return _section("Certificate", said + _table(columns, [[head.get(name) for name in columns] for head in heads]))


def _run(facts: Facts) -> str:
    proved = _tolerance(facts) + _certificate(facts)
    return _schedule(facts) + proved + _verification(facts) + _moved(facts, "moved") + _bound(facts)


def _count(facts: Facts) -> str:
    return _schedule(facts) + _moved(facts, "counted") + _bound(facts)


def _named(row: Facts) -> str:
    """A schedule, and why the planner does not choose it."""
    why = [] if row["stable"] else ["unstable"]
    why += [] if row["fits"] else ["does not fit"]
    return f"{row['schedule']} ({', '.join(why)})" if why else row["schedule"]


def _plan(facts: Facts) -> str:
    plans, chosen = facts["plans"], facts["chosen"]
    best = {**plans[chosen], "reason": facts["reason"]}
    if "forward" in facts:
        forward = facts["forward"]
        best["forward"] = forward["plans"][forward["chosen"]] if "plans" in forward else forward
    in_bytes = all("footprint_bytes" in p for p in plans)
    names = {"schedule": _named, "words": "io", "read": "reads", "written": "writes"}
    names |= {"bytes moved": "bytes"} if "bound_bytes" in facts else {}
    names |= {"ratio": "ratio", "work": lambda p: p["work"]["relative"]}
    names |= {"bytes held": "footprint_bytes"} if in_bytes else {"words held": "footprint"}
    names |= {"workspace": "workspace", "tiles": lambda p: _tiles(p["tiling"])}
    rows = [tuple(of(p) if callable(of) else p[of] for of in names.values()) for p in plans]
    refused = [(r["schedule"], r["why"], r["smallest_M"]) for r in facts["refused"]]
    return (
        _schedule(best)
        + _tolerance(facts)
        + _section("Words by schedule", _bars([(_named(p), p["reads"], p["writes"]) for p in plans], facts["bound"]))
        + _section("Ranked schedules", _table(tuple(names), rows, chosen))
        + _section("Refused schedules", _table(("schedule", "why", "least M that works"), refused))
        + _bound({**facts, "ratio": best["ratio"]})
    )


def _compare(facts: Facts) -> str:
    done = [m for m in facts["methods"] if "refused" not in m]
    widest = max([1, *(m["io"] for m in done)])
    drawn = "".join(
        f"<div>{escape(' '.join(filter(None, (m['method'], m['setting']))))}: {_text(m['io'])} words"
        f'<div class="track"><i style="width:{100 * m["io"] / widest:.3f}%"></i></div></div>\n'
        for m in done
    )
    worst = [max((h["frobenius"] for h in m["heads"] if h["frobenius"] is not None), default=None) for m in done]
    head = ("method", "setting", "schedule", "words", "of exact", "error, worst head", "seconds")
    rows = [
        (m["method"], m["setting"], m["schedule"], m["io"], m["io_over_exact"], error, m["seconds"])
        for m, error in zip(done, worst)
    ]
    refused = [(m["method"], m["setting"], m["refused"]) for m in facts["methods"] if "refused" in m]
    return (
        _section("Words by method", f"<div class=bars>{drawn}</div>")
        + _section("Methods", f"{_table(head, rows)}<p>{_text(facts['errors'])}; the table shows frobenius.</p>")
        + _section("Refused methods", _table(("method", "setting", "reason"), refused))
    )


_PAGES: dict[str, Callable[[Facts], str]] = {
    "redblue.run/1": _run,
    "redblue.plan/1": _plan,
    "redblue.count/1": _count,
    "redblue.compare/1": _compare,
}
_WANTED = "give what redblue run, plan, count or compare prints with --json"


def report(source: Union[str, Path, Facts, Comparison], output: Union[str, Path, None] = None) -> str:
    """One page of HTML, complete in itself: problem, machine, schedule and tiles, words beside the lower bound, ranked and
    refused schedules; of a run the verification, the answer to a tolerance and the certificate, if there were any.

    source: a file with what `redblue run`, `plan`, `count` or `compare` printed with --json, the same as a dict, or what
    `redblue.compare` returned.
    output: a file to write the page to. Returns the page. Raises InvalidProblem for anything else, FileError for a file
    that cannot be read or written.
    """
    if isinstance(source, Comparison):
        source = source.to_dict()
    if not isinstance(source, (str, os.PathLike, Mapping)):
        raise InvalidProblem(f"source is a {type(source).__name__}: {_WANTED}")
    name = "this dict" if isinstance(source, Mapping) else str(source)
    facts = source if isinstance(source, Mapping) else json_of(Path(source), _WANTED)
    if output is not None and not isinstance(source, Mapping) and Path(output).exists() and Path(output).samefile(source):
        raise InvalidProblem(f"the page would replace {source}, of which it is made: name another file")
    schema = facts.get("schema") if isinstance(facts, Mapping) else None
    if not isinstance(schema, str) or schema not in _PAGES:
        found = f"is of schema {schema!r}" if schema is not None else "names no schema"
        raise InvalidProblem(f"{name} {found}: {_WANTED}")
    try:
        body = _problem(facts) + _PAGES[schema](facts) + _machine(facts)
        title = f"{schema.split('/')[0].replace('.', ' ')}: {facts['problem']['op']} attention"
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as problem:
        raise InvalidProblem(f"{name} says that it is {schema}, but it is not whole ({problem!r}): {_WANTED}") from problem
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}</body></html>\n"
    )
    if output is not None:
        try:
            Path(output).write_text(page, encoding="utf-8")
        except OSError as problem:
            raise FileError(f"{output} cannot be written: {problem.strerror}") from problem
    return page


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise FileError(f"{path} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise InvalidProblem(f"{path} holds no text ({problem})") from problem


def json_of(path: Path, wanted: str) -> Any:
    """What a file of JSON holds. wanted: what to give in its place, for people."""
    try:
        return json.loads(text_of(path))
    except ValueError as problem:
        raise InvalidProblem(f"{path} is not JSON ({problem}): {wanted}") from problem


def main(arguments: Sequence[str]) -> None:
    """`python -m redblue report RUN.json -o run.html`; exit code 2 for bad input, as everywhere in redblue."""
    parser = argparse.ArgumentParser(prog="redblue report", description="a page of HTML about one run, plan, count or comparison")
    parser.add_argument("file", metavar="RUN.json", help="what redblue run, plan, count or compare printed with --json")
    parser.add_argument("-o", "--output", metavar="HTML", required=True, help="file to write the page to: run.html")
    asked = parser.parse_args(arguments)
    try:
        report(asked.file, asked.output)
    except Error as problem:
        print(f"redblue: {problem}", file=sys.stderr)
        sys.exit(2)
