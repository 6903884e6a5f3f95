"""Steps of a plan: what runs, and on which memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from whet.core.digest import digest_text
from whet.graph.graph import Graph, Node
from whet.ir.program import Program
from whet.ir.tensor import Tensor
from whet.tasks.flow import Flow, Repeat
from whet.tasks.loops import program_key
from whet.tasks.places import Placement, Storage
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Step:
    """One task and the storages behind its boundary tensors."""

    task: Task
    storages: dict[Tensor, Storage]
    name: str
    """What the model calls the first node, for messages."""
    nodes: tuple[Node, ...] = ()
    """What it computes; none for a copy at the edge of the model."""

    def __post_init__(self) -> None:
        for tensor, storage in self.storages.items():
            storage.demand(self.task.buffers[tensor], self.task.borders.get(tensor))

    @property
    def key(self) -> str:
        """Equal for steps that the same kernel serves."""
        return self.task.key


@dataclass(frozen=True, eq=False)
class LoopStep:
    """A loop program, an operator's own or the zeros of a border, and the storages behind its
    inputs and outputs."""

    program: Program
    storages: tuple[Storage, ...]
    name: str
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        parameters = (*self.program.inputs, *self.program.outputs)
        for buffer, storage in zip(parameters, self.storages, strict=True):
            storage.demand(buffer)

    @cached_property
    def key(self) -> str:
        return program_key(self.program)


@dataclass(frozen=True, eq=False)
class ControlStep:
    """A loop or branch, the plans of its bodies, and the storages behind the addresses in it.

    The address of the status follows those of the storages.
    """

    flow: Flow
    bodies: tuple[Plan, ...]
    storages: tuple[Storage, ...]
    name: str
    nodes: tuple[Node, ...]

    @property
    def rounds(self) -> int:
        """The number of times that a body runs, as far as that is known."""
        return self.flow.rounds if isinstance(self.flow, Repeat) else 1


AnyStep = Step | LoopStep | ControlStep


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps of a model in the order in which they run."""

    graph: Graph
    steps: tuple[AnyStep, ...]
    placement: Placement
    others: tuple[Step, ...] = ()
    """Steps of another plan for the same graph, which was expected to take longer."""

    @cached_property
    def key(self) -> str:
        """Equal for plans that run the same kernels in the same order: what a kernel takes among
        others depends on these."""
        steps = (pair for step in self.steps for pair in inner_steps(step))
        return digest_text(*(f"{step.key} {times}" for step, times in steps))

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """The distinct tasks, by key, in the order in which they first run."""
        steps = (inner for step in self.steps for inner, _ in inner_steps(step))
        return {step.key: step.task for step in steps if isinstance(step, Step)}

    @cached_property
    def position(self) -> Mapping[Node, int]:
        """The positions of nodes in the graph."""
        return {node: n for n, node in enumerate(self.graph.nodes)}

    @cached_property
    def steps_of(self) -> Mapping[Node, tuple[AnyStep, ...]]:
        """The steps that compute a node: none for a view, one for every phase of it."""
        found: dict[Node, list[AnyStep]] = {}
        for step in self.steps:
            for node in step.nodes:
                found.setdefault(node, []).append(step)
        return {node: tuple(steps) for node, steps in found.items()}


def inner_steps(step: AnyStep, times: int = 1) -> Iterator[tuple[Step | LoopStep, int]]:
    """The steps with kernels, those inside bodies too, and how often each runs."""
    if not isinstance(step, ControlStep):
        yield step, times
        return
    for plan in step.bodies:
        for inner in plan.steps:
            yield from inner_steps(inner, times * step.rounds)


def other_steps(plan: Plan, times: int = 1) -> Iterator[tuple[Step, int]]:
    """The steps that other plans have, those of bodies too, and how often each would run."""
    yield from ((step, times) for step in plan.others)
    for step in plan.steps:
        if isinstance(step, ControlStep):
            for inner in step.bodies:
                yield from other_steps(inner, times * step.rounds)
