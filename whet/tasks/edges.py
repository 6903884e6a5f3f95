"""Conversions at the model's edges made part of the kernel between them, where that is cheaper.

near = x as channels last;  out = conv(near, w);  y = out as rows        (three steps)
    ->   y = conv(x, w)                          (one step, which converts slab by slab)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from whet.ir.program import Buffer
from whet.ir.tensor import Tensor
from whet.tasks.places import Storage
from whet.tasks.price import Price
from whet.tasks.steps import AnyStep, Step
from whet.tasks.task import Task


def join_edges(steps: Sequence[AnyStep], price: Price) -> list[AnyStep]:
    """The steps with conversions joined to the one step that reads or writes what they convert."""
    uses = Counter(storage for step in steps for storage in _storages(step))
    copies = [s for s in steps if isinstance(s, Step) and not s.nodes]
    # What the caller has asked for as it is stays, also where it is copied to another output.
    arriving = {_target(s): s for s in copies if _is_between(_target(s), uses)}
    leaving = {_source(s): s for s in copies if _is_between(_source(s), uses)}
    gone: set[AnyStep] = set()
    joined: dict[AnyStep, Step] = {}
    for step in steps:
        if not isinstance(step, Step) or not step.nodes or len(step.task.outputs) != 1:
            continue
        moving = [t for t in step.task.inputs if t not in step.task.constants]
        first = arriving.get(step.storages[moving[0]]) if len(moving) == 1 else None
        last = leaving.get(step.storages[step.task.outputs[0]])
        if first is None or last is None or not _fits_between(first, step, last):
            continue
        made = _joined(first, step, last)
        apart = [s.task for s in (first, step, last)]
        between = _target(first).nbytes + _source(last).nbytes
        if price.prefers(made.task, apart, between):
            joined[step] = made
            gone |= {first, last}
    return [joined.get(step, step) for step in steps if step not in gone]


def _is_between(storage: Storage, uses: Mapping[Storage, int]) -> bool:
    """Whether memory of the model's own is used by a copy and one other step."""
    return storage.kind == "arena" and uses[storage] == 2


def _fits_between(first: Step, step: Step, last: Step) -> bool:
    """True when the step reads what the first writes and writes what the last reads as it is.

    In between, values may be seen through views: the transposition of a result lies in the same
    memory, and its elements are not where those of the result are.
    """
    (x,) = (t for t in step.task.inputs if t not in step.task.constants)
    (y,) = step.task.outputs
    (near,), (far,) = first.task.outputs, last.task.inputs
    ends = ((first.task.buffers[near], x), (last.task.buffers[far], y))
    return all(_same_elements(b, step.task.buffers[t]) for b, t in ends)


def _same_elements(a: Buffer, b: Buffer) -> bool:
    return (a.shape, a.strides, a.offset) == (b.shape, b.strides, b.offset)


def _joined(first: Step, step: Step, last: Step) -> Step:
    """The step between the memory that the first reads and that the last writes."""
    (x,) = (t for t in step.task.inputs if t not in step.task.constants)
    (y,) = step.task.outputs
    (source,), (target,) = first.task.inputs, last.task.outputs
    places: Mapping[Tensor, Buffer] = {
        x: first.task.buffers[source],
        y: last.task.buffers[target],
    }
    buffers = {
        t: Buffer(b.name, b.shape, b.dtype, places.get(t, b).strides, places.get(t, b).offset)
        for t, b in step.task.buffers.items()
    }
    given = frozenset({x}) if source in first.task.given else frozenset[Tensor]()
    task = Task(step.task.outputs, buffers, step.task.constants, {}, given)
    ends = {x: first.storages[source], y: last.storages[target]}
    return Step(task, {**step.storages, **ends}, step.name, step.nodes)


def _storages(step: AnyStep) -> set[Storage]:
    return set(step.storages.values() if isinstance(step, Step) else step.storages)


def _source(copy: Step) -> Storage:
    return copy.storages[copy.task.inputs[0]]


def _target(copy: Step) -> Storage:
    return copy.storages[copy.task.outputs[0]]
