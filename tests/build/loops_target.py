"""A second kind of machine, added from outside the package: an interpreter of loop programs.

It has all that whet asks of one: a target, a sketch, prices, a generator, segments and a runner.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from whet.build.backend import Backend
from whet.build.calls import AnyCall, BoundPlan, Call, bind_plan, kernel_calls
from whet.build.slots import Slot
from whet.codegen.generator import Source
from whet.core.digest import digest_text
from whet.core.dtypes import DType
from whet.core.errors import ScheduleError
from whet.core.outcomes import Outcome
from whet.core.types import Array
from whet.ir.interpreter import run
from whet.ir.program import Buffer, Program
from whet.measure.results import Candidate, Comparison, Measured
from whet.schedule.default import default_kernel, draft
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.primitives.naive import naive_program
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.flow import Address, Choose, Flow, Repeat
from whet.tasks.price import Estimate, Evidence, cheaper_together, no_evidence
from whet.tasks.steps import Plan
from whet.tasks.task import Task

if TYPE_CHECKING:
    from whet.build.kernels import KernelMaker
    from whet.core.caching import FileCache
    from whet.graph.graph import Graph

KIND = "loops"


@dataclass(frozen=True)
class LoopsTarget:
    """The interpreter as a machine."""

    kind: ClassVar[str] = KIND
    name: str = "loops"
    steps_per_second: float = 1e6

    @property
    def key(self) -> str:
        return digest_text(self.to_json())

    def constant(self, name: str) -> float:
        raise KeyError(name)

    def roofline(self, operations: float, nbytes: int, threads: int) -> float:
        return operations / self.steps_per_second

    def to_json(self) -> str:
        return json.dumps({"kind": KIND, **dataclasses.asdict(self)})


class Plain(Sketch[Task, LoopsTarget]):
    """The program before any schedule step, in two ways that are the same to the interpreter."""

    name = "plain_loops"
    numeric = "exact"
    machine = KIND

    def fits(self, task: Task) -> Task | None:
        try:
            naive_program(task)
        except ScheduleError:
            return None
        return task

    def space(self, form: Task, target: LoopsTarget, threads: int) -> Population:
        return {"way": np.array([1, 2])}

    def costs(self, form: Task, target: LoopsTarget, threads: int, population: Population) -> Array:
        return form.operations * population["way"] * 1e9 / target.steps_per_second

    def lower(self, form: Task, holes: Mapping[str, int], name: str) -> Kernel:
        return Kernel(naive_program(form, name), form.inputs, form.outputs)


@dataclass(frozen=True, eq=False)
class LoopsPrice:
    """What the sketches say; values between kernels cost nothing."""

    controls: ClassVar[bool] = True
    run: ClassVar[int] = 1

    target: LoopsTarget
    evidence: Evidence = no_evidence

    def __call__(self, task: Task) -> Estimate | None:
        found = draft(task, self.target, 1)
        return None if found is None else Estimate(found.nanoseconds / 1e9, "analytic", 0.0)

    def joins(self, kinds: tuple[str, ...]) -> bool:
        return False

    def between(self, nbytes: int) -> float:
        return 0.0

    def prefers(self, together: Task, apart: Sequence[Task], nbytes: int) -> bool:
        return cheaper_together(self, together, apart, nbytes)

    def kernel(self, task: Task, name: str) -> Kernel:
        return default_kernel(task, self.target, 1, name)


class LoopsGenerator:
    """The text of programs."""

    language = "loops"

    def source(self, program: Program, limits: Mapping[Buffer, int] | None = None) -> Source:
        return Source(str(program), has_status=False)

    def job(self, text: str) -> dict[str, str]:
        return {"text": text}

    def objects(self, texts: Sequence[str], cache: FileCache) -> list[bytes]:
        return [text.encode() for text in texts]

    def listing(self, text: str) -> str:
        return text


# ------------------------------------------------------------------------------------- segments
@dataclass(frozen=True, eq=False)
class LoopsImage:
    """A plan with a place for everything."""

    plan: Plan
    bound: BoundPlan

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(c.kernel.symbol for c in kernel_calls(self.bound.calls))

    @property
    def arena_bytes(self) -> int:
        return self.bound.arena_bytes

    @property
    def constant_bytes(self) -> int:
        return self.bound.constants.size


@dataclass(frozen=True, eq=False)
class LoopsSegment:
    """Runs an image, one call after the other, in memory that is new every time."""

    image: LoopsImage

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        plan, bound = self.image.plan, self.image.bound
        types = [v.tensor_type for v in plan.graph.outputs]
        results = [np.empty(t.shape, t.dtype.numpy) for t in types] if out is None else list(out)
        memory = _Memory(bound)
        memory.run(plan, bound.calls, [_bytes(a) for a in (*inputs, *results)])
        return tuple(results)


class _Memory:
    """What one call of a segment works on; an address is all bytes from there on."""

    def __init__(self, bound: BoundPlan) -> None:
        self.bound = bound
        self.arena = np.zeros(bound.arena_bytes, np.uint8)
        self.shared = list(bound.shared.values())

    def at(self, slot: Slot, arrays: Sequence[Array]) -> Array:
        match slot.kind:
            case "arena":
                return self.arena[slot.at :]
            case "constant":
                return self.bound.constants[slot.at :]
            case "shared":
                return self.shared[slot.at]
            case kind:
                assert kind == "array"
                return arrays[slot.at]

    def run(self, plan: Plan, calls: Sequence[AnyCall], arrays: Sequence[Array]) -> None:
        for call in calls:
            found = [self.at(self.bound.slot(plan, s), arrays) for s in call.storages]
            if isinstance(call, Call):
                _run_kernel(call.kernel.kernel.program, found)
                continue

            def body(number: int, taken: Mapping[int, Array], call: Any = call) -> None:
                inner = [taken.get(n, self.arena[:0]) for n in range(max(taken, default=-1) + 1)]
                self.run(call.step.bodies[number], call.bodies[number], inner)

            _run_flow(call.step.flow, found, body)


def _run_kernel(program: Program, memory: Sequence[Array]) -> None:
    """The interpreter makes its own outputs and working memory."""
    given = len(program.inputs)
    results = run(program, [_view(b, m) for b, m in zip(program.inputs, memory)])
    for buffer, place, result in zip(program.outputs, memory[given:], results):
        _view(buffer, place)[...] = result


def _view(buffer: Buffer, memory: Array) -> Array:
    size = buffer.dtype.itemsize
    flat = memory[: memory.size // size * size].view(buffer.dtype.numpy)
    return as_strided(flat[buffer.offset :], buffer.shape,
                      [s * size for s in buffer.element_strides])  # fmt: skip


def _bytes(array: Array) -> Array:
    made = np.ascontiguousarray(array)
    return made.reshape(-1).view(np.uint8)


def _run_flow(flow: Flow, memory: Sequence[Array], body: Any) -> None:
    """Loops and branches as `whet.tasks.flow` describes them."""

    def at(address: Address, more: int = 0) -> Array:
        return memory[address.parameter][address.offset + more :]

    if isinstance(flow, Choose):
        chosen = 0 if at(flow.condition)[0] else 1
        body(chosen, {p.array: at(p.base) for p in flow.pieces[chosen]})
        return
    states = {s: at(s.initial) for s in flow.states}
    rounds = flow.rounds if isinstance(flow, Repeat) else None
    going, number = isinstance(flow, Repeat) or bool(at(flow.going)[0]), 0
    while going:
        taken = {s.taken: place for s, place in states.items()}
        states = {s: at(s.turns[number % 2]) for s in flow.states}
        taken |= {s.given: place for s, place in states.items()}
        for p in flow.pieces:
            turn = number if rounds is None or not p.backward else rounds - 1 - number
            taken[p.array] = at(p.base, turn * p.stride)
        if not isinstance(flow, Repeat):
            taken[flow.flag] = at(flow.next_going)
        body(0, taken)
        number += 1
        going = number < flow.rounds if isinstance(flow, Repeat) else bool(taken[flow.flag][0])
    for s, place in states.items():
        at(s.final)[: s.nbytes] = place[: s.nbytes]


class LoopsAssembler:
    """Keeps nothing: a plan is made again in no time."""

    def assemble(self, plan: Plan, maker: KernelMaker, cache: FileCache, key: str) -> LoopsSegment:
        return LoopsSegment(LoopsImage(plan, bind_plan(plan, maker, cache)))

    def load(self, graph: Graph, cache: FileCache, key: str) -> None:
        return None


# ------------------------------------------------------------------------------------ measuring
class LoopsRunner:
    """Measures that the second way is four times as fast as the first."""

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: LoopsTarget
    ) -> Iterator[Measured]:
        for c in candidates:
            yield Measured(c, Outcome.OK, (self._seconds(task, c),) * 8, checked=True)

    def compare(
        self, task: Task, candidate: Candidate, incumbent: Candidate, threads: int,
        target: LoopsTarget,
    ) -> Comparison:  # fmt: skip
        a, b = self._seconds(task, candidate), self._seconds(task, incumbent)
        return Comparison(a < b, a / b, a / b, a / b, (a,) * 8, (b,) * 8)

    def _seconds(self, task: Task, candidate: Candidate) -> float:
        return task.operations * 1e-6 / candidate.holes["way"] ** 2

    def close(self) -> None:
        pass


class LoopsBackend(Backend[LoopsTarget]):
    """All of it."""

    kind = KIND
    can_tune = True
    names = ("loops",)

    def named_target(self, name: str) -> LoopsTarget:
        return LoopsTarget()

    def read_target(self, fields: Mapping[str, Any]) -> LoopsTarget:
        return LoopsTarget(fields["name"], fields["steps_per_second"])

    def holds(self, dtype: DType) -> bool:
        return dtype.name in ("f32", "i64", "i32", "bool")

    def price(
        self,
        target: LoopsTarget,
        threads: int,
        numerics: str,
        evidence: Evidence,
        weight_bytes: int | None = None,
    ) -> LoopsPrice:
        return LoopsPrice(target, evidence)

    def generator(self, target: LoopsTarget) -> LoopsGenerator:
        return LoopsGenerator()

    def assembler(self, target: LoopsTarget, threads: int, cache: FileCache) -> LoopsAssembler:
        return LoopsAssembler()

    def runner(self) -> LoopsRunner:
        return LoopsRunner()
