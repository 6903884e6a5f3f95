"""Opening what a command is given: a model or an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import whet
from whet.api.compiled import CompiledModel
from whet.api.engines import default_engine
from whet.api.interpreter import Interpreter
from whet.build.backend import require_here
from whet.cli.console import Reporter
from whet.core.cpu import HERE
from whet.core.errors import UsageError, check
from whet.core.precision import STRICT
from whet.runtime.artifact import is_artifact

COMPILE_AGAIN = "an artifact is made for one set of shapes and options: compile the model again"


def open_model(
    model: str,
    inputs: Mapping[str, Any],
    reporter: Reporter,
    *,
    threads: int | None = None,
    numerics: str | None = None,
    target: str | None = None,
    precision: str | None = None,
    to_run: bool = True,
) -> CompiledModel:
    """The model compiled, or the artifact loaded, with messages to the reporter.

    What is not `to_run` may be for another processor.  An artifact has its shapes and options
    already: others are refused, and not ignored.
    """
    with reporter.working(f"compiling {model}"):
        if not is_artifact(model):
            if to_run:
                require_runnable(target, reporter, precision)
            return whet.compile(
                model, inputs, threads, target=target, numerics=numerics or "real",
                precision=precision, note=reporter.note,
            )  # fmt: skip
        loaded = whet.load(model, threads, target, note=reporter.note)
    for name, value in inputs.items():
        _check_input(loaded, name, value)
    check(numerics in (None, loaded.numerics), "WH3007",
          f"'{model}' was compiled with --numerics {loaded.numerics}", hint=COMPILE_AGAIN,
          kind=UsageError)  # fmt: skip
    check(precision in (None, loaded.precision), "WH3007",
          f"'{model}' was compiled with --precision {loaded.precision}", hint=COMPILE_AGAIN,
          kind=UsageError)  # fmt: skip
    return loaded


def require_runnable(target: str | None, reporter: Reporter, precision: str | None = None) -> None:
    """`WH1305` if code for the target does not run here, before time is spent on it."""
    engine = default_engine(reporter.note, target, precision)
    if engine.target is not None:
        require_here(engine.target)


def engine_text(compiled: CompiledModel) -> str:
    """The engine, the target if it is not this machine as it is, and a precision that is not
    strict."""
    other = compiled.target != HERE and compiled.engine != Interpreter.name
    text = f"{compiled.engine} for {compiled.target}" if other else compiled.engine
    return text if compiled.precision == STRICT else f"{text}, {compiled.precision}"


def _check_input(loaded: CompiledModel, name: str, value: Any) -> None:
    """Checks that a shape, array or number given for an input is what it takes."""
    ports = {port.name: port.structure for port in loaded.signature.arguments}
    takes = ", ".join(map(str, loaded.inputs)) or "no inputs"
    check(name in ports, "WH3007", f"the artifact has no input '{name}'", hint=f"it takes {takes}",
          kind=UsageError)  # fmt: skip
    structure = ports[name]
    if not isinstance(structure, int):
        return  # a sequence, which only a call can check
    spec = loaded.inputs[structure]
    shape = value if isinstance(value, tuple) else getattr(value, "shape", ())
    check(tuple(shape) == spec.shape, "WH3007",
          f"input '{name}' of the artifact is {spec.type_text}, not of shape "
          f"{'x'.join(map(str, shape)) or 'scalar'}", hint=COMPILE_AGAIN,
          kind=UsageError)  # fmt: skip
