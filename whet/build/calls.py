"""The calls of kernels that a plan comes down to, and where everything lies that they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.build.borders import clearing_program
from whet.build.constants import ConstantStore
from whet.build.kernels import KernelMaker, NativeKernel
from whet.build.memory import Arena, plan_arena
from whet.build.shared_constants import SHARED_FROM_BYTES, Recipe, shared_bytes
from whet.build.slots import Slot, join_constants
from whet.core.caching import FileCache
from whet.core.types import Array
from whet.ir.tensor import Compute
from whet.tasks.places import Storage
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
Make = Callable[[Step | LoopStep], NativeKernel]
"""Gives the kernel of a step, as `KernelMaker.make` does."""


@dataclass(frozen=True, eq=False)
class BoundPlan:
    """A plan as calls, in order, and the memory behind their parameters."""

    calls: tuple[AnyCall, ...]
    places: Mapping[Storage, Slot]
    """Where storages are that are not the caller's."""
    arena_bytes: int
    constants: Array
    """The small constants, as bytes."""
    shared: Mapping[str, Array]
    """The bytes of large constants by their keys, in the order of their numbers."""

    def slot(self, plan: Plan, s: Storage) -> Slot:
        """Where a storage is; `plan` is the one, of the segment or of a body, that touches it."""
        if s.kind == "alarm":
            return Slot("alarm", 0)
        return self.places.get(s) or Slot("array", array_number(plan, s))


def bind_plan(
    plan: Plan, maker: KernelMaker, cache: FileCache, *, shares_borders: bool = True
) -> BoundPlan:
    """The calls of a plan with a place for every value; large constants are kept in the cache.

    Unless values with zero borders share memory with others, no call only clears a border.
    """
    placed = place_calls(plan, maker.make, ConstantStore(), shares_borders=shares_borders)
    calls, arena, recipes = placed.calls, placed.arena, placed.recipes
    small = [s for s in recipes if s.nbytes < SHARED_FROM_BYTES]
    joined, starts = join_constants([recipes[s].make() for s in small])
    large = {s: r for s, r in recipes.items() if s.nbytes >= SHARED_FROM_BYTES}
    shared = {recipe.key: shared_bytes(recipe, cache) for recipe in large.values()}
    numbers = {key: number for number, key in enumerate(shared)}
    places = {s: Slot("arena", at) for s, at in arena.offsets.items()}
    places |= {s: Slot("constant", at) for s, at in zip(small, starts)}
    places |= {s: Slot("shared", numbers[recipe.key]) for s, recipe in large.items()}
    return BoundPlan(calls, places, arena.nbytes, joined, shared)


@dataclass(frozen=True, eq=False)
class PlacedCalls:
    """The calls of a plan, and what is known about their memory before there are constants."""

    calls: tuple[AnyCall, ...]
    arena: Arena
    recipes: Mapping[Storage, Recipe]
    """How the constants are made that calls use, in the order in which they do."""


def place_calls(
    plan: Plan, make: Make, store: ConstantStore, *, shares_borders: bool
) -> PlacedCalls:
    """The calls of a plan, without making a constant; see `bind_plan`."""
    calls = _bound(plan, make, store)
    used_in_arena = [[s for s in used if s.kind == "arena"] for used in _uses(calls)]
    arena = plan_arena(used_in_arena, shares_borders=shares_borders)
    calls = _with_clearing(calls, set(arena.cleared), make)
    used = dict.fromkeys(s for used in _uses(calls) for s in used if s.kind == "constant")
    return PlacedCalls(calls, arena, {s: store.recipe(s) for s in used})


def _bound(plan: Plan, make: Make, constants: ConstantStore) -> tuple[AnyCall, ...]:
    """The calls of a plan; packed constants are made on the way."""
    return tuple(
        ControlCall(step, tuple(_bound(inner, make, constants) for inner in step.bodies))
        if isinstance(step, ControlStep)
        else _bind(make(step), step, constants)
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


def kernel_calls(calls: Sequence[AnyCall]) -> Iterator[Call]:
    """The calls of kernels, those inside bodies too."""
    for call in calls:
        if isinstance(call, Call):
            yield call
        else:
            for body in call.bodies:
                yield from kernel_calls(body)


def _with_clearing(
    calls: Sequence[AnyCall], waiting: set[Storage], make: Make
) -> tuple[AnyCall, ...]:
    """The calls with one before the first use of each of these storages that zeros its border."""
    found: list[AnyCall] = []
    for call in calls:
        for s in dict.fromkeys(call.storages):
            if s in waiting and s.geometry is not None:
                waiting.remove(s)
                step = LoopStep(clearing_program(s.geometry), (s,), call.step.name, ())
                found.append(Call(make(step), step, (s,)))
        if isinstance(call, ControlCall):
            bodies = tuple(_with_clearing(body, waiting, make) for body in call.bodies)
            call = replace(call, bodies=bodies)
        found.append(call)
    return tuple(found)


def array_number(plan: Plan, s: Storage) -> int:
    """The number of the caller's array behind a storage, inputs before outputs."""
    graph = plan.graph
    if s.kind == "input":
        return graph.inputs.index(s.value)
    for number, place in plan.placement.leaving.items():
        if place.storage is s:
            return len(graph.inputs) + number
    return len(graph.inputs) + graph.outputs.index(s.value)
