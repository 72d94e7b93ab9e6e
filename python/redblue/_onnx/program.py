"""`python -m redblue.onnx fuse MODEL.onnx [-o OUT.onnx]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Optional

import onnx

from .._errors import Error, FileError
from .fuse import Fused, fuse, in_other_files


def main(arguments: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m redblue.onnx", description="Models of ONNX.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "fuse",
        help="write a model in which products of softmax weights are the operator Attention",
        description="Replaces softmax(scale Q K^T + mask) V by the operator Attention of opset 23, where that is the same, and says "
        "of each product what became of it. A model in which nothing is replaced is not written, and the exit status is 1.",
    )
    one.add_argument("model", metavar="MODEL.onnx", type=Path)
    one.add_argument("-o", "--output", metavar="OUT.onnx", type=Path, help="a new file; default: MODEL.fused.onnx")
    asked = parser.parse_args(arguments)
    try:
        output = asked.output or asked.model.with_suffix(".fused.onnx")
        fused = fuse_file(asked.model, output)
    except Error as problem:
        print(f"redblue.onnx: {problem}", file=sys.stderr)
        sys.exit(2)
    print(fused)
    print(f"written to {output}" if fused.count else f"{output} is not written")
    sys.exit(0 if fused.count else 1)


def fuse_file(path: Path, output: Path) -> Fused:
    """Writes the model of `path`, with Attention, to `output`, if there is any."""
    model = _read(path)
    _require_free(output)
    fused = fuse(model)
    if fused.count:
        _write(fused, path, output)
    return fused


def _read(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        raise FileError(f"{path}: {'this is no file' if path.exists() else 'there is no such file'}")
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as e:
        raise FileError(f"{path} cannot be read: {e.strerror}") from e
    except Exception as e:  # of protobuf, which has several
        raise FileError(f"{path} is no model of ONNX: {e}") from e
    if not model.graph.node or not model.opset_import:
        raise FileError(f"{path} is no model of ONNX: it has no nodes or no opset")
    return model


def _require_free(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise FileError(f"{path} exists: give the name of a new file by -o")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is no folder: give -o a file in one that is there")


def _write(fused: Fused, path: Path, output: Path) -> None:
    """Weights in files of their own stay there where the output lies beside the input; elsewhere they come to OUT.onnx.data."""
    model, weights = fused.model, in_other_files(fused.model)
    moved = bool(weights) and path.parent.resolve() != output.parent.resolve()
    written = [output]
    if moved:
        data = output.with_name(output.name + ".data")
        _require_free(data)
        onnx.load_external_data_for_model(model, str(path.parent))
        written.append(data)
    try:
        if moved:
            onnx.save_model(model, output, save_as_external_data=True, location=written[1].name)
        else:
            with output.open("xb") as file:
                file.write(model.SerializeToString())
        onnx.checker.check_model(str(output))
    except Exception as e:
        for made in written:
            made.unlink(missing_ok=True)
        raise FileError(f"{output} could not be written: {e}") from e
