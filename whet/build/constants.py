"""Constants in the order in which kernels read them, each made once."""

from __future__ import annotations

from whet.build.placement import Storage
from whet.build.plan import Step
from whet.core.digest import digest_text
from whet.core.types import Array
from whet.graph.graph import Constant
from whet.ir.tensor import Compute, Tensor, describe
from whet.schedule.kernel import prepare_constant


class ConstantStore:
    """The arrays behind all storages of kind constant."""

    def __init__(self) -> None:
        self.arrays: dict[Storage, Array] = {}
        self._packed: dict[tuple[str, ...], Storage] = {}

    def packed(self, step: Step, argument: Compute) -> Storage:
        """The storage of an expression over the step's constants, evaluated when first met."""
        constants: dict[Tensor, Array] = {}
        digests = []
        for tensor in step.task.constants:
            value = step.storages[tensor].value
            assert isinstance(value, Constant)
            constants[tensor] = value.array
            digests.append(f"{tensor.name}{value.digest}")
        key = (digest_text(describe(argument)), *sorted(digests))
        if key not in self._packed:
            value = step.storages[step.task.outputs[0]].value
            storage = Storage("constant", argument.type.size, argument.dtype, value)
            self.arrays[storage] = prepare_constant(argument, step.task, constants)
            self._packed[key] = storage
        return self._packed[key]

    def array(self, storage: Storage) -> Array:
        if storage in self.arrays:
            return self.arrays[storage]
        assert isinstance(storage.value, Constant)
        return storage.value.array
