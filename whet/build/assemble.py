"""From the steps of a plan to the image of a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.build.borders import clearing_program
from whet.build.constants import SHARED_FROM_BYTES, ConstantStore, shared_bytes
from whet.build.entry import TableCall, entry_ir
from whet.build.image import CallNote, SegmentImage, Slot, join_constants
from whet.build.kernels import KernelMaker, NativeKernel, compile_all
from whet.build.memory import plan_arena
from whet.build.placement import Storage
from whet.build.plan import AnyStep, LoopStep, Plan
from whet.build.segment import ENTRY
from whet.core.caching import FileCache
from whet.ir.tensor import Compute, describe


@dataclass(frozen=True, eq=False)
class Call:
    """A kernel, the step that it computes and what its parameters point to."""

    kernel: NativeKernel
    step: AnyStep
    storages: tuple[Storage, ...]


def assemble(
    plan: Plan, maker: KernelMaker, support: Sequence[str], cache: FileCache
) -> SegmentImage:
    """The image of a plan; `support` is text IR that its kernels need besides."""
    constants = ConstantStore()
    calls = [_bind(maker.make(step), step, constants) for step in plan.steps]
    arena = plan_arena([[s for s in c.storages if s.kind == "arena"] for c in calls])
    calls = _with_clearing(calls, arena.cleared, maker)
    used = dict.fromkeys(s for c in calls for s in c.storages if s.kind == "constant")
    recipes = {s: constants.recipe(s) for s in used}
    small = [s for s in used if s.nbytes < SHARED_FROM_BYTES]
    joined, starts = join_constants([recipes[s].make() for s in small])
    large = {s: recipes[s] for s in used if s.nbytes >= SHARED_FROM_BYTES}
    shared = {recipe.key: shared_bytes(recipe, cache) for recipe in large.values()}
    numbers = {key: number for number, key in enumerate(shared)}
    found = {s: Slot("arena", at) for s, at in arena.offsets.items()}
    found |= {s: Slot("constant", at) for s, at in zip(small, starts)}
    found |= {s: Slot("shared", numbers[recipe.key]) for s, recipe in large.items()}
    slots: list[Slot] = []
    notes: list[CallNote] = []
    for call in calls:
        notes.append(CallNote(call.kernel.symbol, len(slots), call.step.name, _describe(call.step)))
        slots += [found.get(s) or Slot("array", _array_number(plan, s)) for s in call.storages]
        if call.kernel.has_status:
            slots.append(Slot("status", sum(s.kind == "status" for s in slots)))
    forwarded = [(at, s.at) for at, s in enumerate(slots) if s.kind == "array"]
    entry = entry_ir(ENTRY, [TableCall(n.symbol, n.start) for n in notes], forwarded)
    kernels = dict.fromkeys(c.kernel.ir for c in calls)
    objects = compile_all([*kernels, entry, *support], maker.target, cache)
    return SegmentImage(tuple(objects), tuple(slots), tuple(notes), arena.nbytes, joined, shared)


def _bind(kernel: NativeKernel, step: AnyStep, constants: ConstantStore) -> Call:
    """The kernel with the storages of the step; packed constants are made on the way."""
    if isinstance(step, LoopStep):
        found = list(step.storages)
    else:
        found = [
            constants.packed(step, argument)
            if isinstance(argument, Compute) and argument not in step.storages
            else step.storages[argument]
            for argument in kernel.kernel.arguments
        ]
        found += [step.storages[r] for r in kernel.kernel.results]
    for buffer in kernel.kernel.program.workspace:
        found.append(Storage("arena", buffer.type.size, buffer.dtype, found[-1].value))
    return Call(kernel, step, tuple(found))


def _with_clearing(
    calls: Sequence[Call], cleared: frozenset[Storage], maker: KernelMaker
) -> list[Call]:
    """The calls with one before the first use of each of these storages that zeros its border."""
    found: list[Call] = []
    waiting = set(cleared)
    for call in calls:
        for s in dict.fromkeys(call.storages):
            if s in waiting and s.geometry is not None:
                waiting.remove(s)
                step = LoopStep(clearing_program(s.geometry), (s,), call.step.name, ())
                found.append(Call(maker.make(step), step, (s,)))
        found.append(call)
    return found


def _array_number(plan: Plan, s: Storage) -> int:
    """The number of the caller's array behind a storage, inputs before outputs."""
    graph = plan.graph
    if s.kind == "input":
        return graph.inputs.index(s.value)
    for number, place in plan.placement.leaving.items():
        if place.storage is s:
            return len(graph.inputs) + number
    return len(graph.inputs) + graph.outputs.index(s.value)


def _describe(step: AnyStep) -> str:
    if isinstance(step, LoopStep):
        return f"loops of {step.nodes[0].op}" if step.nodes else "zeros around a value"
    return describe(*step.task.outputs)
