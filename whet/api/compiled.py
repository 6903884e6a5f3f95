"""A compiled model, as its user holds it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from whet.api.arguments import as_path
from whet.api.programs import Program, Programs
from whet.core.errors import UsageError, check, fail
from whet.core.precision import PRECISIONS, STRICT
from whet.core.types import Array
from whet.core.version import VERSION
from whet.graph.graph import Graph
from whet.runtime.artifact import Artifact, write_artifact
from whet.runtime.executable import Adopted
from whet.runtime.schedules import StoredSchedule
from whet.runtime.signature import Signature, TensorSpec


class CompiledModel:
    """A model that can be called with arrays, stored, and described.

        y = f(x)                  by position, in the order of the model's inputs
        y = f(image=x)            by name
        f(x, out=buffer)          into an existing array

    One result is returned as it is, several as a tuple.  Arrays may be NumPy's or any object
    with `__dlpack__`; results are NumPy arrays, which other libraries take through DLPack.  A model
    for a GPU takes arrays there where they lie, and then gives results there, unless parts of it
    run on the host.
    Arrays of other shapes than before make whet compile the model again, once, with a message.
    """

    def __init__(
        self,
        first: Program,
        programs: Programs,
        *,
        target: str,
        numerics: str,
        precision: str = STRICT,
        schedules: Callable[[Graph], tuple[StoredSchedule, ...]] = lambda graph: (),
    ) -> None:
        self.target, self.numerics, self.precision = target, numerics, precision
        self._first, self._programs, self.schedules = first, programs, schedules
        """Of `schedules`: how kernels of a graph are computed that were searched for."""

    @property
    def engine(self) -> str:
        """The engine of the model: `native`, or `interpreter`, and then `describe` says why."""
        return self._first.executable.engine

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names and types of the inputs that the model was compiled for."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names and types of the outputs; extents that depend on data are None.

        Empty if part of the model can be compiled only while it runs.
        """
        return self.signature.outputs

    @property
    def signature(self) -> Signature:
        return self._first.signature

    @property
    def graph(self) -> Graph:
        """The optimised graph that runs.

        It is made again from the model where nobody holds it, because its weights would take
        memory: `ModelError` if the model's file has changed.
        """
        return self._first.graph()

    def describe(self) -> list[str]:
        """Lines of text on how the model runs: native code, and what is not, and why."""
        lines = self._first.executable.describe()
        if self.precision == STRICT:
            return lines
        return [*lines, f"precision {self.precision}: {PRECISIONS[self.precision].meaning}"]

    def __call__(
        self, *arrays: Any, out: Array | Sequence[Array] | None = None, **by_name: Any
    ) -> Any:
        first = self._first
        plain = None if by_name else first.taken_plainly(arrays)
        if plain is not None:
            # The usual call by a short way: everything else costs microseconds.
            targets = None if out is None else _targets(first, out)
            results = first.run_plainly(plain, targets)
        else:
            results = tuple(self.results(*arrays, out=out, **by_name).values())
        return results[0] if len(results) == 1 else results

    def results(
        self, *arrays: Any, out: Array | Sequence[Array] | None = None, **by_name: Any
    ) -> dict[str, Any]:
        """The results of a call by name, in order."""
        values = self.signature.arrange(arrays, by_name)
        adopt = self._first.executable.adopt
        program, flat = self._programs.fitting(values, lambda s: s.flatten(values, adopt))
        return program.run(flat, None if out is None else _targets(program, out))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Stores the model, as compiled for its first input types, for `whet.load`.

        A tuned model takes its schedules with it.
        """
        from whet.graph.text import print_graph, stored_arrays

        path = as_path(path, "write")
        check(self._first.rest is None, "WH3006",
              "this model cannot be stored: part of it is compiled only when it runs, because "
              "shapes depend on data", kind=UsageError)  # fmt: skip
        graph = self.graph
        write_artifact(
            path,
            Artifact(
                signature=self.signature,
                graph_text=print_graph(graph),
                constants=stored_arrays(graph),
                target=self.target,
                numerics=self.numerics,
                precision=self.precision,
                whet_version=VERSION,
                schedules=self.schedules(graph),
            ),
        )

    def __copy__(self) -> CompiledModel:
        return self

    def __deepcopy__(self, known: dict[int, Any]) -> CompiledModel:
        """The model itself: it is a function, and nothing about it can be changed."""
        return self

    def __reduce__(self) -> NoReturn:
        fail("WH3006", "a compiled model cannot be pickled",
             hint="f.save(path) stores it, and whet.load(path) loads it in another process",
             kind=UsageError)  # fmt: skip

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs)) or "known after a run"
        return f"<whet model ({inputs}) -> ({outputs}), engine: {self.engine}>"


def _targets(program: Program, out: Array | Sequence[Array]) -> Sequence[Array]:
    """The arrays to write to, checked against the outputs."""
    given: Any = out if isinstance(out, (list, tuple)) else (out,)
    targets = program.as_targets(given)
    if given is not out and not isinstance(targets[0], (np.ndarray, Adopted)):
        fail("WH3003", f"'out' must be an array or a sequence of arrays, got {type(out).__name__}",
             kind=UsageError)  # fmt: skip
    if not program.can_write(targets):
        expected = ", ".join(map(str, program.signature.outputs))
        fail("WH3003", program.why_not_writable(targets), hint=f"the outputs are {expected}",
             kind=UsageError)  # fmt: skip
    return targets
