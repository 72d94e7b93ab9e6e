#!/usr/bin/env python3
"""Draws the pictures of docs/schedules.md, docs/pictures/*.svg. Needs the package redblue and matplotlib.

    scripts/pictures.py [FOLDER]    # default: docs/pictures
"""

import pathlib
import sys

import matplotlib

matplotlib.use("Agg")

import redblue.plot  # noqa: E402


def main(folder: pathlib.Path) -> None:
    matplotlib.rcParams["svg.hashsalt"] = "redblue"  # the same file whenever the numbers are the same
    pictures = {
        "io": redblue.plot.io_against_memory("backward", n=4096, d=128),
        "ratios": redblue.plot.ratios("forward", n=4096),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, ax in pictures.items():
        ax.figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "docs" / "pictures")
