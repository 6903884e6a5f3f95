"""A kernel: the program of a task and what its parameters are bound to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whet.core.types import Array
from whet.ir.evaluate import evaluate
from whet.ir.program import Buffer, Program
from whet.ir.tensor import Compute, Tensor
from whet.schedule.program.access import memory_of
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Kernel:
    """A program with its arguments.

    `arguments` are the tensors behind the program's inputs: boundary tensors of the task, or
    tensor expressions over its constants (weights in the order the program reads them), which
    are evaluated once when the kernel is built.  `alarm` is the buffer of the program's workspace
    whose one element becomes 1 when the kernel has met values that it would spread.
    """

    program: Program
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    alarm: Buffer | None = None


def prepare_constant(argument: Compute, task: Task, arrays: Mapping[Tensor, Array]) -> Array:
    """The array behind an argument that is an expression over constants (stored row-major)."""
    known: dict[Tensor, Array] = {}
    for tensor, array in arrays.items():
        known[tensor] = array
        known[task.buffers[tensor]] = array
        known[memory_of(tensor, task)] = array.reshape(-1)
    (result,) = evaluate([argument], known)
    return result
