"""Programs: a model compiled for given input types, and the set of those made so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from whet.api.originals import GetGraph
from whet.core.errors import UsageError, WhetError, fail
from whet.core.types import Array, Shape
from whet.runtime.executable import Executable
from whet.runtime.ports import Misfit
from whet.runtime.signature import Signature

Note = Callable[[str], None]
"""Receives messages that a user should see but that stop nothing."""

Fit = Callable[[Signature], tuple[Array, ...] | Misfit]
"""The flat arrays of a call for a signature, or why they do not fit it."""

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

    def fits_plainly(self, arrays: Sequence[Any]) -> bool:
        """Whether the executable can be called with these arrays, as they are, but for guarded
        ones, which it does not take."""
        types = self.plain_types
        if types is None or len(types) != len(arrays):
            return False
        for array, (dtype, shape) in zip(arrays, types):
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return False
        # Equal bytes are equal values; equal values of other bytes take the long way.
        return all(arrays[n].tobytes() == value for n, value in self.guarded)

    def run_plainly(
        self, arrays: Sequence[Array], out: Sequence[Array] | None
    ) -> tuple[Array, ...]:
        """The results of arrays that fit."""
        if self.guarded:
            arrays = self.signature.unguarded(arrays)
        return self.executable(arrays, out)

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
        for array, (dtype, shape) in zip(arrays, types):
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
                return False
            if not array.flags.writeable:
                return False
        return True

    def run(self, arrays: Sequence[Array], out: Sequence[Array] | None = None) -> dict[str, Any]:
        """The results of the model by name, for flat arrays that fit the signature."""
        given = self.signature.unguarded(arrays)
        if self.rest is None:
            return self.signature.pack(self.executable(given, out))
        between = self.executable(given)
        following, arrays = self.rest.fitting(
            between, lambda signature: signature.misfit(between) or between
        )
        return following.run(arrays)


class Programs:
    """The programs of one model; a call that fits none of them makes a new one.

    `make` compiles for given values; it is None when the source of the model is gone.
    """

    def __init__(
        self, make: Callable[[Sequence[Any]], Program] | None, note: Note, what: str
    ) -> None:
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
            fail("WH3003", misfit.reason, kind=UsageError)
        if self.make is None:
            fail("WH3003", misfit.reason if misfit else "nothing is compiled",
                 hint="compile the model for these inputs: an artifact holds one set of types",
                 kind=UsageError)  # fmt: skip
        if misfit is not None:
            self.note(f"{misfit.reason}: compiling {self.what} again")
        try:
            return self.make(values)
        except WhetError as error:
            if misfit is None:
                raise
            fail("WH3003", misfit.reason, *str(error).splitlines(), kind=UsageError)
