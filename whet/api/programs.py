"""Programs: a model compiled for given input types, and the set of those made so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from whet.api.originals import GetGraph
from whet.core.errors import OperatorError, UsageError, WhetError, fail
from whet.core.types import Array, Shape, type_of
from whet.graph.interpret import interpret
from whet.graph.summary import summarize
from whet.runtime.arrays import overlapping
from whet.runtime.executable import Adopt, Adopted, Executable
from whet.runtime.ports import Misfit
from whet.runtime.signature import Signature

Note = Callable[[str], None]
"""Receives messages that a user should see but that stop nothing."""

Fit = Callable[[Signature], tuple[Array, ...] | Misfit]
"""The flat arrays of a call for a signature, or why they do not fit it."""

EXPLAINED_FLOPS = 10**9
"""Models of so much work are run once more to explain a failure: a second, perhaps."""
MAX_PROGRAMS = 16
"""Programs kept per model; beyond it the oldest is dropped."""


@dataclass(frozen=True)
class Program:
    """A model for one set of input types and guarded values.

    Where shapes depend on data, the graph computes what can be computed before they are known,
    and `rest` goes on with its outputs.
    """

    signature: Signature
    graph: GetGraph
    executable: Executable
    rest: Programs | None = None

    @cached_property
    def plain_types(self) -> tuple[tuple[Any, Shape], ...] | None:
        """NumPy type and shape of each argument if the program takes and gives tensors only,
        so that a call with such arrays needs no arranging; else None."""
        s = self.signature
        in_order = [p.structure for p in s.arguments] == list(range(len(s.inputs)))
        out_order = [p.structure for p in s.results] == list(range(len(s.outputs)))
        known = all(None not in spec.shape for spec in s.inputs)
        if self.rest is not None or not (in_order and out_order and known):
            return None
        return tuple((spec.dtype.numpy, spec.shape) for spec in s.inputs)  # type: ignore[misc]

    @cached_property
    def guarded(self) -> tuple[tuple[int, bytes], ...]:
        """The positions and bytes of inputs that must have one value."""
        guards = self.signature.guards
        return tuple(
            (n, guards[spec.name].tobytes())
            for n, spec in enumerate(self.signature.inputs)
            if spec.name in guards
        )

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.signature.inputs)

    def taken_plainly(self, arrays: Sequence[Any]) -> Sequence[Array] | None:
        """The arrays if the executable can be called with them, as they are or as adopted, but
        for guarded ones, which it does not take; else None."""
        types = self.plain_types
        if types is None or len(types) != len(arrays):
            return None
        adopt = self.executable.adopt
        if adopt is not None:
            return self._adopted_plainly(arrays, types, adopt)
        for array, (dtype, shape) in zip(arrays, types):
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
        # Equal bytes are equal values; equal values of other bytes take the long way.
        if all(arrays[n].tobytes() == value for n, value in self.guarded):
            return arrays
        return None

    def _adopted_plainly(
        self, arrays: Sequence[Any], types: Sequence[tuple[Any, Shape]], adopt: Adopt
    ) -> Sequence[Array] | None:
        """The arrays, those on the executable's device adopted; None for what takes longer."""
        if self.guarded:
            return None
        found: list[Any] = []
        array: Any
        for given, array, (dtype, shape) in zip(arrays, adopt(arrays, self.input_names), types):
            if array is None:
                if type(given) is not np.ndarray:
                    return None
                array = given
            if array.dtype != dtype or array.shape != shape:
                return None
            found.append(array)
        return found

    def run_plainly(
        self, arrays: Sequence[Array], out: Sequence[Array] | None
    ) -> tuple[Array, ...]:
        """The results of arrays that fit; an index that the executable refuses is explained."""
        if self.guarded:
            arrays = self.signature.unguarded(arrays)
        try:
            return self.executable(arrays, out)
        except OperatorError as error:
            raise self._explained(error, arrays) from None

    @cached_property
    def target_types(self) -> tuple[tuple[Any, Shape], ...] | None:
        """NumPy type and shape of each output; None if they are known only after a run."""
        specs = self.signature.outputs
        if self.rest is not None or any(None in spec.shape for spec in specs):
            return None
        return tuple((spec.dtype.numpy, spec.shape) for spec in specs)  # type: ignore[misc]

    def can_write(self, arrays: Sequence[Any]) -> bool:
        """Whether the results can be written to these arrays."""
        types = self.target_types
        if types is None or len(types) != len(arrays):
            return False
        here = []
        for array, (dtype, shape) in zip(arrays, types):
            if isinstance(array, np.ndarray):
                if not array.flags.writeable:
                    return False
                here.append(array)
            elif not isinstance(array, Adopted):
                return False
            if array.dtype != dtype or array.shape != shape:
                return False
        return not here or not overlapping(here)

    def as_targets(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The arrays as ones that results can be written to, where they lie on the executable's
        device; else as they are."""
        adopt = self.executable.adopt
        if adopt is None:
            return arrays
        there = adopt(arrays, ["out"] * len(arrays))
        return [given if array is None else array for given, array in zip(arrays, there)]

    def why_not_writable(self, arrays: Sequence[Any]) -> str:
        """The problem that keeps results from being written to these arrays."""
        specs = self.signature.outputs
        if self.target_types is None:
            return "'out' needs outputs of known shape"
        if len(specs) != len(arrays):
            return f"'out' has {len(arrays)} arrays and the model {len(specs)} outputs"
        for array, spec in zip(arrays, specs):
            if not isinstance(array, (np.ndarray, Adopted)):
                return f"'out' of '{spec.name}' must be a NumPy array, got {type(array).__name__}"
            if array.dtype != spec.dtype.numpy or array.shape != spec.shape:
                found = type_of(cast(Array, array))
                return f"'out' of '{spec.name}' must be {spec.type_text}, got {found}"
            if isinstance(array, np.ndarray) and not array.flags.writeable:
                return f"'out' of '{spec.name}' is read-only"
        return "arrays in 'out' share memory, so that one result would overwrite another"

    def _explained(self, error: OperatorError, given: Sequence[Array]) -> OperatorError:
        """The interpreter's word on a failure that native code only notices: which node,
        which input, which value.  Not for models that it would take too long for."""
        if error.code != "WH1302" or self.executable.engine == "interpreter":
            return error
        try:
            graph = self.graph()
            if summarize(graph).flops <= EXPLAINED_FLOPS:
                interpret(graph, [np.asarray(a) for a in given], round_halves=False)
        except OperatorError as better:
            return better
        except (WhetError, MemoryError):
            return error  # the model's file has changed: it cannot be looked at again
        return error

    def run(self, arrays: Sequence[Array], out: Sequence[Array] | None = None) -> dict[str, Any]:
        """The results of the model by name, for flat arrays that fit the signature."""
        if self.rest is None:
            return self.signature.pack(self.run_plainly(arrays, out))
        between = self.run_plainly(arrays, None)
        following, arrays = self.rest.fitting(
            between, lambda signature: signature.misfit(between) or between
        )
        return following.run(arrays)


Make = Callable[[Sequence[Any], Callable[[], None]], Program]
"""Compiles a model for given values, which may be refused; it calls the function when they are
not, before it begins with what takes long."""


class Programs:
    """The programs of one model; a call that fits none of them makes a new one.

    `make` is None when the source of the model is gone.
    """

    def __init__(self, make: Make | None, note: Note, what: str) -> None:
        self.make, self.note, self.what = make, note, what
        self.made: list[Program] = []
        self.lock = threading.Lock()

    def fitting(self, values: Sequence[Any], fit: Fit) -> tuple[Program, tuple[Array, ...]]:
        """The program for the values and their flat arrays, compiled now if there is none."""
        found = self.find(fit)
        if isinstance(found, tuple):
            return found
        with self.lock:
            found = self.find(fit)  # another thread may have compiled it meanwhile
            if isinstance(found, tuple):
                return found
            program = self.compile_for(values, found)
            arrays = fit(program.signature)
            assert not isinstance(arrays, Misfit), arrays
            self.made = [program, *self.made[: MAX_PROGRAMS - 1]]
        return program, arrays

    def find(self, fit: Fit) -> tuple[Program, tuple[Array, ...]] | Misfit | None:
        """The program that fits, else why the newest one does not (None if there is none)."""
        misfit: Misfit | None = None
        for program in self.made:
            arrays = fit(program.signature)
            if not isinstance(arrays, Misfit):
                return program, arrays
            misfit = misfit or arrays
        return misfit

    def compile_for(self, values: Sequence[Any], misfit: Misfit | None) -> Program:
        if misfit is not None and not misfit.fixable:
            fail("WH3003", misfit.reason, hint=misfit.hint, kind=UsageError)
        if self.make is None:
            fail("WH3003", misfit.reason if misfit else "nothing is compiled",
                 hint="compile the model for these inputs: an artifact holds one set of types",
                 kind=UsageError)  # fmt: skip

        def announce() -> None:
            if misfit is not None:
                self.note(f"{misfit.reason}: compiling {self.what} again")

        # A model is read for values in this process's memory.
        adopt = self.made[0].executable.adopt if self.made else None
        if adopt is not None:
            there = adopt(values, [self.what] * len(values))
            values = [v if at is None else at for v, at in zip(values, there)]
        values = [np.asarray(v) if isinstance(v, Adopted) else v for v in values]
        try:
            return self.make(values, announce)
        except WhetError as error:
            if misfit is None:
                raise
            fail("WH3003", misfit.reason, *str(error).splitlines(), kind=UsageError)
