"""One small kernel of every family of sketches, made for a fixed processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tests.schedule.small_tasks import divided, folded, largest, make_task, matmul_relu, softmax
from tests.schedule.test_attention import attention
from tests.schedule.test_family_nests import sharing, transposition
from tests.schedule.test_parts import deep_product, one_number, vector_by_matrix
from tests.schedule.test_slabs import convolution
from tests.schedule.test_turned import product_with_turned
from tests.schedule.windows import Windows
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import SKETCHES
from whet.tasks.task import Task

TARGET, THREADS = PRESETS["x86-64-v3"], 2


@dataclass(frozen=True)
class Example:
    """A task, and some holes: the family's first candidate with these values is taken, whatever
    its price, so that texts change when programs do and not when estimates do."""

    task: Task
    holes: Mapping[str, int]


def few_columns() -> Task:
    """y = b.T @ a.T with five columns, fewer than lanes: rows are beside each other in memory."""
    a, b, r = placeholder((7, 20), f32, "a"), placeholder((7, 5), f32, "b"), reduce_axis(7, "k")
    return make_task(compute((20, 5), lambda i, j: sum_(a[r, i] * b[r, j], r), "y"))


EXAMPLES: Mapping[str, Example] = {
    "contraction": Example(matmul_relu(5, 20, 7), {"mr": 2, "nv": 2}),
    "divided": Example(divided(5, (16, 8), 7), {"mr": 2, "nv": 2}),
    "folded": Example(folded(5, 16, 7), {"mr": 2, "nv": 2}),
    "turned": Example(few_columns(), {"mr": 2, "nv": 1}),
    "slabs": Example(convolution(2, 1, 8, 8, (8,), (3,)), {"mr": 2, "nv": 1}),
    "winograd": Example(Windows((8,), 8, 8).task, {"m": 2, "mr": 2, "nv": 1}),
    "spatial": Example(Windows((4, 4), 8, 8, kernel=2, pad=0, groups=8).task, {"px": 2}),
    "groups": Example(Windows((4, 4), 8, 8, kernel=2, pad=0, groups=4).task, {"px": 2}),
    "across": Example(sharing(20, 2), {"px": 2, "nv": 1}),
    "staged": Example(largest((2, 6, 16), (2, 2), 2, (0, 1), channels=0), {"px": 1, "lanes": 8}),
    "sliding": Example(largest((6, 6, 8), (2, 2), 2, (0, 1), channels=2), {"px": 2}),
    "planar": Example(largest((2, 6, 16), (2, 2), 2, (0, 1), channels=0), {"px": 1, "lanes": 4}),
    "rows": Example(softmax(4, 16), {"vectors": 1}),
    "transposed": Example(transposition(20, 24), {"size": 4}),
    "attention": Example(attention(1, 4, 8, 4), {"mr": 2}),
    "dots": Example(product_with_turned(4, 6, 32), {"mr": 2, "nc": 2}),
    "sweeps": Example(vector_by_matrix(256, 64), {"nv": 1}),
    "parts of contraction": Example(deep_product(256, 64), {"parts": 4, "mr": 1, "nv": 2}),
    "parts of spatial": Example(one_number(256, 64), {"parts": 4}),
    "parts of rows": Example(one_number(256, 64), {"parts": 4, "vectors": 1}),
    "parts of dots": Example(product_with_turned(4, 16, 1024), {"parts": 4, "mr": 2, "nc": 2}),
    "parts of sweeps": Example(vector_by_matrix(256, 64), {"parts": 4, "nv": 1}),
    "derived": Example(matmul_relu(8, 16, 8), {"j.lanes": 8}),
}
"""By the name of the family."""


def example_kernel(family: str) -> tuple[dict[str, int], Kernel]:
    """The holes of the example's candidate, and its kernel."""
    example, sketch = EXAMPLES[family], SKETCHES[family]
    form = sketch.fits(example.task)
    assert form is not None, f"the example of {family} is something else"
    population = sketch.space(form, TARGET, THREADS)
    fits = np.all([population[name] == n for name, n in example.holes.items()], axis=0)
    assert fits.any(), f"no candidate of {family} has {example.holes}"
    row = int(np.argmax(fits))
    holes = {name: int(column[row]) for name, column in population.items()}
    return holes, sketch.lower(form, holes, "kernel")
