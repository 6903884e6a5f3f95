"""The values that kernels on a GPU are tried on: whole numbers, then any numbers.

Whole numbers tell kernels that add or multiply the wrong things from right ones, bit for bit; but
they are the same in every precision.  Numbers with all their digits show how much is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.ir.tensor import Tensor
from whet.measure.binding import boundary
from whet.measure.cuda.precise import evaluate_precisely
from whet.measure.parameters import view
from whet.tasks.examples import INEXACT, Example
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Trial:
    """Values for all boundary tensors of a task, those of outputs being what is expected."""

    name: str
    values: Mapping[Tensor, Array]
    exact: bool
    """Whether nothing is rounded on the way to them."""


def make_trials(task: Task, example: Example, seed: int = 0) -> tuple[Trial, ...]:
    """The example, and other numbers in its place where rounding cannot change results much."""
    # Where results are rounded, those of the example are as well, and in another order.
    precise = None if example.exact else evaluate_precisely(task.outputs, example.inputs)
    expected = example.outputs if precise is None else precise
    first = Trial("whole", _values(task, example.inputs, expected), example.exact)
    inputs = _moved(task, example, np.random.default_rng(seed))
    outputs = evaluate_precisely(task.outputs, inputs)
    if outputs is None:
        return (first,)
    return first, Trial("any", _values(task, inputs, outputs), exact=False)


def _values(
    task: Task, inputs: Mapping[Tensor, Array], outputs: Sequence[Array]
) -> dict[Tensor, Array]:
    found = dict(inputs)
    found.update(zip(task.outputs, outputs, strict=True))
    return found


def _moved(task: Task, example: Example, rng: np.random.Generator) -> dict[Tensor, Array]:
    """Numbers near those of the example, so that functions have values for them, too."""
    reach = 0.5 if example.exact else 0.5 * INEXACT
    found: dict[Tensor, Array] = {}
    for tensor, array in example.inputs.items():
        if not tensor.dtype.is_float:
            found[tensor] = array
            continue
        moved = array.astype(np.float64) + rng.uniform(-reach, reach, array.shape)
        # Through memory, where several elements may have the same place.
        p = boundary(tensor, task)
        memory = np.zeros(p.nbytes, np.uint8)
        view(p, memory)[...] = moved.astype(array.dtype)
        found[tensor] = view(p, memory).copy()
    return found
