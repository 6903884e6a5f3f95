"""From a candidate to its kernel, and from a kernel to the memory behind its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.digest import digest_text
from whet.core.errors import fail
from whet.ir.tensor import Tensor, describe
from whet.measure.parameters import Kind, Parameter, contiguous
from whet.measure.results import Candidate
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import SKETCHES, find_sketch
from whet.schedule.space.trace import Trace, replay_kernel
from whet.tasks.task import Task


def kernel_of(
    candidate: Candidate, task: Task, symbol: str, forms: dict[str, Any]
) -> tuple[Kernel, Numeric]:
    """The candidate's kernel, and what its sketch takes the liberty of.

    `forms` keeps what sketches see in the task.
    """
    if candidate.trace:
        trace = Trace.from_json(candidate.trace).with_holes(candidate.holes)
        first = trace.steps[0].kind if trace.steps else ""
        numeric = SKETCHES[first].numeric if first in SKETCHES else "exact"
        return replay_kernel(trace, task, symbol), numeric
    sketch = find_sketch(candidate.sketch)
    if candidate.sketch not in forms:
        forms[candidate.sketch] = sketch.fits(task)
    form = forms[candidate.sketch]
    if form is None:
        fail("WH2121", f"sketch '{candidate.sketch}' does not fit the task")
    return sketch.lower(form, candidate.holes, symbol), sketch.numeric


@dataclass(frozen=True, eq=False)
class Bound:
    """Parameters of a kernel; `table` says which of them each of its arguments is."""

    parameters: tuple[Parameter, ...]
    table: tuple[int, ...]
    tensors: Sequence[Tensor]
    """What the first parameters hold; all behind them is workspace."""


def bind(kernel: Kernel, task: Task, *, has_status: bool, lead: int = 0) -> Bound:
    """The memory of a kernel, equal tensors once; `lead` is that of the caller's arrays."""
    tensors = {t: n for n, t in enumerate(dict.fromkeys((*kernel.arguments, *kernel.results)))}
    parameters = [_parameter(t, task, lead) for t in tensors]
    table = [tensors[t] for t in (*kernel.arguments, *kernel.results)]
    own = [(b.dtype.name, b.shape) for b in kernel.program.workspace]
    for dtype, shape in own + [("i64", (1,))] * has_status:
        table.append(len(parameters))
        parameters.append(contiguous("workspace", "", dtype, shape))
    return Bound(tuple(parameters), tuple(table), tuple(tensors))


def _parameter(tensor: Tensor, task: Task, lead: int) -> Parameter:
    if tensor in task.buffers:
        return boundary(tensor, task, lead)
    key = f"{task.key}.{digest_text(describe(tensor))}"
    return contiguous("constant", key, tensor.dtype.name, tensor.shape)


def boundary(tensor: Tensor, task: Task, lead: int = 0) -> Parameter:
    """The memory of an input or output of a task."""
    buffer = task.buffers[tensor]
    kind: Kind = "input"
    if tensor in task.outputs:
        kind = "output"
    elif tensor in task.constants:
        kind = "constant"
    return Parameter(kind, f"{task.key}.{tensor.name}", tensor.dtype.name, tensor.shape,
                     buffer.element_strides, buffer.offset, task.borders.get(tensor),
                     lead if tensor in task.given else 0)  # fmt: skip
