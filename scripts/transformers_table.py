#!/usr/bin/env python3
"""Runs every architecture of the installed transformers, made tiny, under attn_implementation="redblue" beside its own eager
attention, and writes docs/transformers-models.md. Fails where a model is silently different, or fails.

scripts/transformers_table.py [--jobs 2]              all: ten minutes on two cores
scripts/transformers_table.py llama t5                these, to standard output
"""

import argparse
import collections
import importlib
import multiprocessing
import re
import sys
import textwrap
from concurrent import futures
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python/frameworks"))
LIMIT = 300  # seconds for an architecture

# What most of them import: once, and not in each process.
WANTED_BY_MOST = ("models.llama.modeling_llama", "models.t5.modeling_t5", "models.clip.modeling_clip", "generation.utils")


def walk(model_type):
    """Rows of an architecture, found in a process of its own: models of others may end it."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_walk, args=(model_type, theirs))
    child.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(LIMIT) else [("", "", "not made", f"more than {LIMIT} seconds")]
    except EOFError:
        found = [("", "", "fails", "its process ends")]
    child.kill()
    child.join()
    return found


def _walk(model_type, answer):
    import torch
    import walk_models

    import redblue._call.masks

    torch.set_num_threads(1)
    redblue._call.masks.LEAST_PAIRS = 1  # lengths are options in small problems, too
    answer.send(walk_models.walk(model_type))


def kind_of(rows):
    """The result of an architecture as a whole, and why."""
    results = collections.Counter(row[2] for row in rows)
    for bad in ("different", "fails"):
        if results[bad]:
            return bad, "; ".join(f"{name} {scenario}: {text}" for name, scenario, result, text in rows if result == bad)
    if results["same"]:
        return "same", ""
    if results["refused"]:
        return "refused", next(text for *_, result, text in rows if result == "refused")
    if results["own"]:
        return "none", ""
    return "not made", rows[0][3]


def sentence(text):
    """A refusal without the name of one model and the sizes of one call."""
    text = re.sub(r"^Unsupported: |; where it is part.*", "", text)
    text = re.sub(r'"redblue": \w+ has', '"redblue": MODEL has', text)
    return re.sub(r"sinks are \[[\d, ]+\]", "sinks are [batch, heads, n_q, 1]", text)


def reason(text):
    """Why an architecture was not made, without the name of its class."""
    text = re.sub(r"^\w+: ", "", text)
    text = re.sub(r"StrictDataclass\w+: Class validation error for validator '\w+': ", "", text)
    return text.replace("|", "/").replace("`", "'")[:150]


def listed(names):
    return textwrap.fill(", ".join(sorted(names)), 118, break_long_words=False, break_on_hyphens=False)


def page(found):
    import torch
    import transformers

    kinds = collections.defaultdict(lambda: collections.defaultdict(list))
    for model_type, rows in found.items():
        kind, text = kind_of(rows)
        kinds[kind][sentence(text) if kind == "refused" else reason(text) if kind == "not made" else text].append(model_type)
        for *_, result, text in rows if kind == "same" else ():
            if result == "refused" and model_type not in kinds["in part"][sentence(text)]:
                kinds["in part"][sentence(text)].append(model_type)
    count = lambda kind: sum(map(len, kinds[kind].values()))
    calls = collections.Counter(row[2] for rows in found.values() for row in rows)
    lines = [
        "# Every architecture of transformers",
        "",
        textwrap.fill(
            f"`scripts/transformers_table.py` wrote this page, with transformers {transformers.__version__} and PyTorch "
            f"{torch.__version__.split('+')[0]}. It walks all {len(found)} configurations, parts of larger models among them, makes "
            'each model tiny, and compares `attn_implementation="redblue"` with the model\'s own eager attention: without padding, '
            "with padding at the right and at the left, gradients, packed `position_ids`, tokens in two calls, and generation with "
            "dynamic and static caches, whose layers slide where the model's do. [transformers.md](transformers.md) says what a "
            "model gets.", 118, break_on_hyphens=False,
        ),
        "",
        "| result | architectures |",
        "|---|---|",
        f"| the same, in {calls['same']} calls | {count('same')} |",
        f"| refused, with a sentence | {count('refused')} |",
        f"| no attention called, in the tiny form | {count('none')} |",
        f"| silently different, or an error of another kind | {count('different') + count('fails')} |",
        f"| not made tiny by rules for all | {count('not made')} |",
        "",
        f"In {calls['eager fails']} calls the model's own eager attention fails, or gives NaN; these are not compared.",
        "",
        "## The same",
        "",
        listed(kinds["same"][""]),
    ]
    for kind, title in (("refused", "Refused"), ("in part", "Refused in some calls"), ("different", "Different"), ("fails", "Errors")):
        if kinds[kind]:
            lines += ["", f"## {title}"]
            for text, names in sorted(kinds[kind].items()):
                lines += ["", *("    " + line for line in textwrap.wrap(text, 110)), "", listed(names)]
    if kinds["none"]:
        lines += ["", "## No attention called", "", listed(kinds["none"][""])]
    lines += ["", "## Not made tiny", "", "| what its code said | architectures |", "|---|---|"]
    lines += [f"| `{text}` | {', '.join(sorted(names))} |" for text, names in sorted(kinds["not made"].items())]
    return "\n".join(lines) + "\n", count("different") + count("fails")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    import tiny_models
    import walk_models  # noqa: F401

    for name in WANTED_BY_MOST:
        importlib.import_module(f"transformers.{name}")
    names = arguments.names or tiny_models.model_types()
    with futures.ThreadPoolExecutor(arguments.jobs) as pool:
        found = dict(zip(names, pool.map(walk, names)))
    if arguments.names:
        for name, rows in found.items():
            print(*((name, *row) for row in rows), sep="\n")
    text, wrong = page(found)
    if not arguments.names:
        (ROOT / "docs/transformers-models.md").write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
