"""Arguments that several commands share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from whet.core.errors import UsageError, check, fail
from whet.core.precision import PRECISIONS

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="ONNX model.")]
ModelOrArtifact = Annotated[
    str, typer.Argument(metavar="MODEL", help="ONNX model, or artifact made by whet compile.")
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="Shape (name=1x3x224x224), array (name=file.npy) or value (name:=16000) of an input; "
        "may be repeated.",
    ),
]
ThreadsOption = Annotated[
    int | None, typer.Option(metavar="N", help="Threads of a model; one per core by default.")
]
BudgetOption = Annotated[
    str, typer.Option(metavar="TIME", help="Time to search for faster kernels: 30s, 10m, 1h.")
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Processor to build for: cpu (this machine, the default) or a preset such as "
        "x86-64-v3; `whet target NAME` describes it.",
    ),
]
NumericsOption = Annotated[
    str | None,
    typer.Option(
        metavar="real|guarded|exact",
        help="real: rewrites may change rounding; exact: they may not; guarded: not in calls with "
        "NaN, infinite or huge values. By default real, or what an artifact was compiled with.",
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(PRECISIONS),
        help="What numbers of single precision may be computed with on a GPU. By default fp32, or "
        "what an artifact was compiled with.",
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of random inputs.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No notes and no progress on standard error.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The result as JSON.")]

_SHAPE = re.compile(r"\d+(?:x\d+)*")


def parse_inputs(options: Sequence[str] | None) -> dict[str, Any]:
    """The value or shape given for each input: a shape (tuple), an array, or a number.

    image=1x3x224x224    a shape; a tensor without dimensions is `scalar`
    image=file.npy       an array
    rate:=16000          a value, as JSON: a number or a list of numbers
    """
    found: dict[str, Any] = {}
    for option in options or ():
        name, sign, value = option.partition("=")
        check(bool(name and sign and value), "WH3007", f"'{option}' is not NAME=VALUE",
              hint="--input image=1x3x224x224, image=file.npy or rate:=16000",
              kind=UsageError)  # fmt: skip
        read = _parse_literal if name.endswith(":") else _parse_value
        name = name.removesuffix(":")
        check(name not in found, "WH3007", f"input '{name}' is given twice", kind=UsageError)
        found[name] = read(name, value)
    return found


def given_values(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Those inputs that are given with their value and not only a shape."""
    return {name: v for name, v in inputs.items() if not isinstance(v, tuple)}


def _parse_value(name: str, value: str) -> Any:
    if value == "scalar":
        return ()
    if _SHAPE.fullmatch(value):
        return tuple(int(d) for d in value.split("x"))
    try:
        return np.load(Path(value), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        fail("WH3007", f"input '{name}': '{value}' is neither a shape nor an array file",
             str(error).splitlines()[0] if str(error) else "the file is empty",
             hint="a shape is 1x3x224x224, an array file is made by numpy.save",
             kind=UsageError)  # fmt: skip


def _parse_literal(name: str, text: str) -> Any:
    """A number as it is (it takes the input's type), a list as an array of i64, f32 or bool."""
    try:
        value = json.loads(text)
        array = np.asarray(value)
    except ValueError:
        fail("WH3007", f"input '{name}': '{text}' is no number and no list of numbers",
             hint="rate:=16000 or sizes:=[1,64,64]", kind=UsageError)  # fmt: skip
    check(array.dtype.kind in "iufb", "WH3007", f"input '{name}': '{text}' is not numeric",
          kind=UsageError)  # fmt: skip
    if array.ndim == 0:
        return value
    return array.astype(np.float32) if array.dtype.kind == "f" else array
