"""Results that are moved at once: written where they are moved to.

y[h, l, d] = attention(...);  z[l, h * 64 + d] = y[h, l, d]      (two steps)
    ->   y = attention(...), whose element h, l, d lies at 768 * l + 64 * h + d      (one step)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

import numpy as np

from whet.core.errors import OperatorError
from whet.core.types import Array, Shape, TensorType
from whet.ir.program import Buffer
from whet.ops.base import Op
from whet.tasks.places import Storage
from whet.tasks.price import Price
from whet.tasks.steps import AnyStep, Step
from whet.tasks.stride_views import addresses_of, strides_over
from whet.tasks.structure import KNOWN, structure_of
from whet.tasks.task import Task

Lying = tuple[Shape, Shape, int]
"""Shape, strides and offset of elements in memory."""


def join_moves(
    steps: Sequence[AnyStep], price: Price, kept: Collection[Storage] = ()
) -> list[AnyStep]:
    """The steps, without those that only move what one other step writes for them; others may read
    what is `kept`."""
    if not price.joins(("product", "move")):
        return list(steps)
    uses = Counter(_all_storages(steps)) + Counter(kept)
    writers: dict[Storage, int] = {}
    found = list(steps)
    gone: set[int] = set()
    for number, step in enumerate(steps):
        if not isinstance(step, Step):
            continue
        source = _moved(step)
        writer = writers.get(source) if source is not None and uses[source] == 2 else None
        made = None if writer is None else _joined(found[writer:number], step, price)
        if writer is not None and made is not None:
            found[writer] = made
            gone.add(number)
            writers[step.storages[step.task.outputs[0]]] = writer
        elif step.nodes and len(step.task.outputs) == 1:
            writers[step.storages[step.task.outputs[0]]] = number
    return [step for number, step in enumerate(found) if number not in gone]


def _all_storages(steps: Sequence[AnyStep]) -> Iterator[Storage]:
    """The memory that steps use, once for each of them."""
    for step in steps:
        yield from set(step.storages.values() if isinstance(step, Step) else step.storages)


def _moved(step: Step) -> Storage | None:
    """The memory that a step moves all elements of, and does nothing else."""
    if not len(step.nodes) == len(step.task.inputs) == len(step.task.outputs) == 1:
        return None
    s = structure_of(step.nodes[0])
    if s is None or not s.is_movement or len(step.nodes[0].inputs) != 1 or step.task.borders:
        return None
    (x,), (y,) = step.task.inputs, step.task.outputs
    storage = step.storages[x]
    return storage if storage.kind == "arena" and x.type.size == y.type.size else None


def _joined(since: Sequence[AnyStep], move: Step, price: Price) -> Step | None:
    """The first of the steps since then, with its results where the last one would move them, if
    that is free and the better place."""
    before, target = since[0], move.storages[move.task.outputs[0]]
    if not isinstance(before, Step) or target in set(_all_storages(since)):
        return None
    made = _written_there(before, move)
    nbytes = move.task.inputs[0].type.nbytes
    if made is None or not price.prefers(made.task, [before.task, move.task], nbytes):
        return None
    return made


def _written_there(before: Step, move: Step) -> Step | None:
    """The step whose results lie where they would be moved to, if strides can say where that is
    and neighbours stay neighbours."""
    ((x,), (y,)), (t,) = (move.task.inputs, move.task.outputs), before.task.outputs
    (node,) = move.nodes
    buffers = move.task.buffers[x], move.task.buffers[y], before.task.buffers[t]
    if len({b.dtype for b in buffers}) > 1 or t in before.task.borders:
        return None
    given = node.inputs[0].tensor_type
    source, target, own = (_lying(b) for b in buffers)
    found = _moved_strides(node.op, given, source, target, own) if x.shape == given.shape else None
    if found is None or _neighbours(found[0]) != _neighbours(own[1]):
        return None
    buffer, old = before.task.buffers[t], before.task
    moved = Buffer(buffer.name, buffer.shape, buffer.dtype, *found)
    task = Task(old.outputs, {**old.buffers, t: moved}, old.constants, old.borders, old.given)
    storages = {**before.storages, t: move.storages[y]}
    return Step(task, storages, before.name, (*before.nodes, *move.nodes))


def _lying(buffer: Buffer) -> Lying:
    return buffer.shape, buffer.element_strides, buffer.offset


def _neighbours(strides: Shape) -> list[int]:
    """The axes whose neighbours are neighbours in memory."""
    return [n for n, stride in enumerate(strides) if stride == 1]


@lru_cache(maxsize=KNOWN)
def _moved_strides(
    op: Op, given: TensorType, source: Lying, target: Lying, own: Lying
) -> tuple[Shape, int] | None:
    """Strides and offset of elements that lie at `own`, are seen at `source`, and moved to
    `target`: the operator is run on the addresses of what it moves."""
    try:
        (cells,) = op.run_reference((addresses_of(*source),))
    except OperatorError:  # it cannot move integers
        return None
    if cells.dtype != np.int64 or cells.shape != target[0]:
        return None
    order = np.argsort(cells, axis=None)
    known: Array = cells.reshape(-1)[order]
    wanted = addresses_of(*own)
    at = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    is_moved = np.array_equal(known[at], wanted) and (np.diff(known) > 0).all()
    if not is_moved or wanted.size != known.size:
        return None
    return strides_over(addresses_of(*target).reshape(-1)[order][at])
