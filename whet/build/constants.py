"""Constants as kernels read them: packed by expressions over a model's weights."""

from __future__ import annotations

import re

from whet.build.keys import program_key
from whet.build.shared_constants import Recipe
from whet.core.digest import digest_text
from whet.core.types import Array
from whet.graph.graph import Constant
from whet.ir.tensor import Compute, Tensor, describe, stages
from whet.schedule.program.kernel import prepare_constant
from whet.tasks.places import Storage
from whet.tasks.steps import Step


class ConstantStore:
    """The arrays behind all storages of kind constant."""

    def __init__(self) -> None:
        self._packed: dict[str, Storage] = {}
        self._known: dict[tuple[Step, Compute], Storage] = {}
        """The same by what was asked for: steps and expressions are compared by identity."""
        self._recipes: dict[Storage, Recipe] = {}

    def packed(self, step: Step, argument: Compute) -> Storage:
        """The storage of an expression over the step's constants; equal ones share theirs."""
        if (step, argument) not in self._known:
            self._known[step, argument] = self._shared(step, argument)
        return self._known[step, argument]

    def _shared(self, step: Step, argument: Compute) -> Storage:
        constants: dict[Tensor, Array] = {}
        digests: dict[str, str] = {}
        for tensor in step.task.constants:
            value = step.storages[tensor].value
            assert isinstance(value, Constant)
            constants[tensor] = value.array
            digests[tensor.name] = digests[step.task.buffers[tensor].name] = value.digest
        key = _packing_key(argument, digests)
        if key not in self._packed:
            value = step.storages[step.task.outputs[0]].value
            storage = Storage("constant", argument.type.size, argument.dtype, value)
            self._packed[key] = storage
            self._recipes[storage] = Recipe(
                key, lambda: prepare_constant(argument, step.task, constants)
            )
        return self._packed[key]

    def recipe(self, storage: Storage) -> Recipe:
        if storage in self._recipes:
            return self._recipes[storage]
        value = storage.value
        assert isinstance(value, Constant)
        return Recipe(digest_text("as it is", value.digest, program_key()), lambda: value.array)


def _packing_key(argument: Compute, digests: dict[str, str]) -> str:
    """Equal for equal expressions over equal constants, whatever these are called.

    panels[p, k, j] = x1[...] and panels[p, k, j] = x2[...] are the same of the same weights.
    """
    text, read = describe(argument), []
    for number, tensor in enumerate(t for t in stages([argument]) if not isinstance(t, Compute)):
        text = re.sub(rf"\b{re.escape(tensor.name)}\b", f"constant{number}", text)
        read.append(digests[tensor.name])
    return digest_text(text, *read, program_key())
