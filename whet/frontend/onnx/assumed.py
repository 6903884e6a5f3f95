"""Errors that come from shapes that a model leaves open, and from values that it needs.

WH1102 Conv node 'c': conv: a window of 256 does not fit into 1
  ->
WH2007 the model does not fit the shapes that were assumed for its inputs
  Conv node 'c': conv: a window of 256 does not fit into 1
  input 'audio' was taken as 1x1
  hint: --input audio=BATCHxSAMPLES, with numbers for BATCH and SAMPLES
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.core.errors import ModelError, UsageError, WhetError
from whet.frontend.onnx.binding import symbol_of
from whet.frontend.onnx.load import load_model

UNKNOWN = "?"
_ABOUT_SHAPES = ("WH11", "WH2003")
"""Codes of errors that other shapes may not have."""


def explain_assumptions(error: ModelError, model: Any, given: Mapping[str, Any]) -> WhetError:
    """The error, or one that says what to type where something was not given."""
    graph = load_model(model).proto.graph
    if error.code == "WH2005":
        return _missing_value(error, [i.name for i in graph.input])
    constants = {t.name for t in graph.initializer}
    declared = {
        i.name: _written(i.type.tensor_type)
        for i in graph.input
        if (i.name not in constants or i.name in given) and _is_open(i.type)
    }
    if not declared or not error.code.startswith(_ABOUT_SHAPES):
        return error
    assumed = {name: dims for name, dims in declared.items() if name not in given}
    return UsageError(
        "WH2007",
        f"the model does not fit the shapes that were {'assumed' if assumed else 'given'} for "
        "its inputs",
        details=(error.message, *error.details, *_shapes_taken(declared, given)),
        hint=_what_to_type(assumed or declared),
    )


def _shapes_taken(declared: Mapping[str, list[str]], given: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, dims in declared.items():
        shown = "x".join(dims)
        if name in given:
            sizes = getattr(given[name], "shape", given[name])
            lines.append(f"input '{name}' ({shown}) was given as {'x'.join(map(str, sizes))}")
        else:
            taken = "x".join(d if d.isdigit() else "1" for d in dims)
            lines.append(f"input '{name}' ({shown}) was taken as {taken}")
    return lines


def _what_to_type(inputs: Mapping[str, list[str]]) -> str:
    options = " ".join(f"--input {name}={'x'.join(dims)}" for name, dims in inputs.items())
    names = dict.fromkeys(d for dims in inputs.values() for d in dims if not d.isdigit())
    return f"{options}, with numbers for {' and '.join(names)}; in Python inputs={{name: shape}}"


def _missing_value(error: ModelError, inputs: list[str]) -> WhetError:
    """A hint on what to type for the inputs whose value decides a shape."""
    names = [name for name in inputs if f"'{name}'" in error.message]
    if not names:
        return error
    options = " ".join(f"--input {name}:=VALUE" for name in names)
    return UsageError(
        error.code, error.message, details=error.details,
        hint=f"{options} (a number or a list), or {names[0]}=FILE.npy; in Python "
        f"inputs={{'{names[0]}': array}}",
    )  # fmt: skip


def _is_open(declared: Any) -> bool:
    tensor = declared.tensor_type
    return bool(declared.WhichOneof("value") == "tensor_type" and tensor.HasField("shape")) and any(
        not _is_known(d) for d in tensor.shape.dim
    )


def _is_known(dim: Any) -> bool:
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def _written(tensor: Any) -> list[str]:
    """The dimensions of a shape as one writes it, names where numbers are missing."""
    return [str(d.dim_value) if _is_known(d) else symbol_of(d) or UNKNOWN for d in tensor.shape.dim]
