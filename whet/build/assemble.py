"""From the steps of a plan to the image of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whet.build.borders import clearing_program
from whet.build.constants import ConstantStore
from whet.build.entry import FlowCall, TableCall, declarations, routine_ir
from whet.build.flow import flow_ir
from whet.build.image import CallNote, SegmentImage, Slot, join_constants
from whet.build.kernels import KernelMaker, NativeKernel, compile_all
from whet.build.memory import plan_arena
from whet.build.segment import ENTRY
from whet.build.shared_constants import SHARED_FROM_BYTES, shared_bytes
from whet.core.caching import FileCache
from whet.ir.tensor import Compute, describe
from whet.tasks.placement import Storage
from whet.tasks.steps import ControlStep, LoopStep, Plan, Step


@dataclass(frozen=True, eq=False)
class Call:
    """A kernel, the step that it computes and what its parameters point to."""

    kernel: NativeKernel
    step: Step | LoopStep
    storages: tuple[Storage, ...]


@dataclass(frozen=True, eq=False)
class ControlCall:
    """A loop or branch and the calls inside its bodies."""

    step: ControlStep
    bodies: tuple[tuple[AnyCall, ...], ...]

    @property
    def storages(self) -> tuple[Storage, ...]:
        return self.step.storages


AnyCall = Call | ControlCall


def assemble(
    plan: Plan, maker: KernelMaker, support: Sequence[str], cache: FileCache
) -> SegmentImage:
    """The image of a plan; `support` is text IR that its kernels need besides."""
    constants = ConstantStore()
    calls = _bound(plan, maker, constants)
    arena = plan_arena([[s for s in used if s.kind == "arena"] for used in _uses(calls)])
    calls = _with_clearing(calls, set(arena.cleared), maker)
    used = dict.fromkeys(s for used in _uses(calls) for s in used if s.kind == "constant")
    recipes = {s: constants.recipe(s) for s in used}
    small = [s for s in used if s.nbytes < SHARED_FROM_BYTES]
    joined, starts = join_constants([recipes[s].make() for s in small])
    large = {s: recipes[s] for s in used if s.nbytes >= SHARED_FROM_BYTES}
    shared = {recipe.key: shared_bytes(recipe, cache) for recipe in large.values()}
    numbers = {key: number for number, key in enumerate(shared)}
    found = {s: Slot("arena", at) for s, at in arena.offsets.items()}
    found |= {s: Slot("constant", at) for s, at in zip(small, starts)}
    found |= {s: Slot("shared", numbers[recipe.key]) for s, recipe in large.items()}
    table = _Table(found)
    table.routine(ENTRY, plan, calls)
    kernels = dict.fromkeys(c.kernel.ir for c in _kernel_calls(calls))
    objects = compile_all([*kernels, table.text(), *support], maker.target, cache)
    return SegmentImage(
        tuple(objects), tuple(table.slots), tuple(table.notes), arena.nbytes, joined, shared,
        tuple(table.watched),
    )  # fmt: skip


def _bound(plan: Plan, maker: KernelMaker, constants: ConstantStore) -> tuple[AnyCall, ...]:
    """The calls of a plan; packed constants are made on the way."""
    return tuple(
        ControlCall(step, tuple(_bound(inner, maker, constants) for inner in step.bodies))
        if isinstance(step, ControlStep)
        else _bind(maker.make(step), step, constants)
        for step in plan.steps
    )


def _bind(kernel: NativeKernel, step: Step | LoopStep, constants: ConstantStore) -> Call:
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
        kind = "alarm" if buffer is kernel.kernel.alarm else "arena"
        found.append(Storage(kind, buffer.type.size, buffer.dtype, found[-1].value))
    return Call(kernel, step, tuple(found))


def _uses(calls: Sequence[AnyCall]) -> Iterator[tuple[Storage, ...]]:
    """The storages that every call touches, in order.

    A loop's own memory is in use before its body and after it, and what its body computes is
    written anew in every round: so the rounds of a loop need no more memory than one of them.
    """
    for call in calls:
        yield call.storages
        if isinstance(call, ControlCall):
            for body in call.bodies:
                yield from _uses(body)
            yield call.storages


def _kernel_calls(calls: Sequence[AnyCall]) -> Iterator[Call]:
    """The calls of kernels, those inside bodies too."""
    for call in calls:
        if isinstance(call, Call):
            yield call
        else:
            for body in call.bodies:
                yield from _kernel_calls(body)


def _with_clearing(
    calls: Sequence[AnyCall], waiting: set[Storage], maker: KernelMaker
) -> tuple[AnyCall, ...]:
    """The calls with one before the first use of each of these storages that zeros its border."""
    found: list[AnyCall] = []
    for call in calls:
        for s in dict.fromkeys(call.storages):
            if s in waiting and s.geometry is not None:
                waiting.remove(s)
                step = LoopStep(clearing_program(s.geometry), (s,), call.step.name, ())
                found.append(Call(maker.make(step), step, (s,)))
        if isinstance(call, ControlCall):
            bodies = tuple(_with_clearing(body, waiting, maker) for body in call.bodies)
            call = replace(call, bodies=bodies)
        found.append(call)
    return tuple(found)


@dataclass(eq=False)
class _Table:
    """The table of addresses and the routines that use it, under construction."""

    known: Mapping[Storage, Slot]
    """Where storages are that are not the caller's."""
    slots: list[Slot] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)
    """The names of what has a status, by its number."""
    notes: list[CallNote] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    flows: int = 0

    def routine(
        self,
        name: str,
        plan: Plan,
        calls: Sequence[AnyCall],
        linkage: str = "",
        status: Slot | None = None,
    ) -> None:
        """Adds the code that makes the calls, and their parameters.

        A loop ends when something goes wrong in it, so all that is inside shares its status.
        """
        made: list[TableCall | FlowCall] = []
        arrays: list[tuple[int, int]] = []
        for call in calls:
            start = len(self.slots)
            for s in call.storages:
                slot = self.slot(plan, s)
                if slot.kind == "array":
                    arrays.append((len(self.slots), slot.at))
                self.slots.append(slot)
            if isinstance(call, ControlCall):
                shared = status or self.new_status(call.step.name)
                self.slots.append(shared)
                made.append(FlowCall(self.flow(call, start, shared)))
                continue
            made.append(TableCall(call.kernel.symbol, start))
            symbol, text = call.kernel.symbol, _describe(call.step)
            self.notes.append(CallNote(symbol, start, call.step.name, text))
            if call.kernel.has_status:
                self.slots.append(status or self.new_status(call.step.name))
        self.texts.append(routine_ir(name, made, arrays, linkage))

    def new_status(self, name: str) -> Slot:
        self.watched.append(name)
        return Slot("status", len(self.watched) - 1)

    def flow(self, call: ControlCall, start: int, status: Slot) -> str:
        """Adds the code of a loop or branch and of its bodies."""
        number = self.flows
        self.flows += 1
        names = [f"body{number}.{n}" for n in range(len(call.bodies))]
        for name, plan, body in zip(names, call.step.bodies, call.bodies, strict=True):
            self.routine(name, plan, body, "internal", status)
        self.texts.append(flow_ir(call.step.flow, f"flow{number}", start, names))
        return f"flow{number}"

    def slot(self, plan: Plan, s: Storage) -> Slot:
        if s.kind == "alarm":
            return Slot("alarm", 0)
        return self.known.get(s) or Slot("array", _array_number(plan, s))

    def text(self) -> str:
        return "\n".join([declarations([n.symbol for n in self.notes]), *self.texts])


def _array_number(plan: Plan, s: Storage) -> int:
    """The number of the caller's array behind a storage, inputs before outputs."""
    graph = plan.graph
    if s.kind == "input":
        return graph.inputs.index(s.value)
    for number, place in plan.placement.leaving.items():
        if place.storage is s:
            return len(graph.inputs) + number
    return len(graph.inputs) + graph.outputs.index(s.value)


def _describe(step: Step | LoopStep) -> str:
    if isinstance(step, LoopStep):
        return f"loops of {step.nodes[0].op}" if step.nodes else "zeros around a value"
    return describe(*step.task.outputs)
