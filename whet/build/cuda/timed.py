"""The kernels of a plan as a network that is timed as a whole, with one candidate or another.

It is laid out as its segment is, but no constant is made: kernels take the time that they take on
any numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from whet.build.calls import Call, array_number, place_calls
from whet.build.constants import ConstantStore
from whet.build.cuda.image import STATUS_BYTES
from whet.build.kernels import KernelMaker, NativeKernel
from whet.build.memory import Arena
from whet.codegen.cuda.launch import Launch, in_turn, launches_of, lets_next_in
from whet.codegen.generator import Generator
from whet.core.caching import FileCache
from whet.core.digest import digest_text
from whet.core.dtypes import i64, u8
from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.measure.binding import kernel_of
from whet.measure.cuda.network_jobs import NetworkCall, NetworkJob, Piece
from whet.measure.cuda.runner import CudaRunner
from whet.measure.kernel_process import Loadable
from whet.measure.networks import Choices
from whet.measure.results import Candidate, Comparison
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.tasks.places import Storage
from whet.tasks.steps import ControlStep, LoopStep, Plan, Step
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class _Ready:
    """A kernel with all that is known about it whatever is around it."""

    kernel: NativeKernel
    launches: tuple[Launch, ...]
    lets_in: bool
    cubin: str
    """The name that its code is held under."""


@dataclass(eq=False)
class CudaNetwork:
    """A plan for a GPU; see `whet.measure.networks.TimedNetwork`."""

    plan: Plan
    target: GpuTarget
    numerics: Numeric
    generator: Generator
    runner: CudaRunner
    cache: FileCache
    kernels: dict[tuple[str, str], _Ready] = field(default_factory=dict)
    """By step and candidate."""
    cubins: dict[str, Array] = field(default_factory=dict)
    """By the names that they are held under."""
    constants: ConstantStore = field(default_factory=ConstantStore)
    last: dict[str, Loadable] = field(default_factory=dict)
    """The networks of the last comparison: one of them is part of the next."""

    def compare(self, new: Choices, old: Choices, seconds: float) -> Comparison:
        keys = [_choices_key(choices) for choices in (new, old)]
        pair = [
            self.last.get(key) or self.loadable(choices)
            for key, choices in zip(keys, (new, old), strict=True)
        ]
        self.last = dict(zip(keys, pair, strict=True))
        return self.runner.compare_networks(self.plan.key, pair[0], pair[1], seconds)

    def build_ahead(self, wanted: Iterable[tuple[Task, Candidate]]) -> None:
        self.runner.build_ahead(wanted, self.target)

    def loadable(self, choices: Choices) -> Loadable:
        """The network with these candidates."""
        made: dict[str, _Ready] = {}
        for step in self.plan.steps:
            assert not isinstance(step, ControlStep), "a plan for a GPU is flat"
            made[step.key] = self._ready(step, choices)
        self._compile({r.cubin: r.kernel.source.text for r in made.values()})
        placed = place_calls(
            self.plan, lambda step: made[step.key].kernel, self.constants, shares_borders=False
        )
        memory = _Memory(self.plan, placed.arena, {s: r.key for s, r in placed.recipes.items()})
        calls: list[NetworkCall] = []
        flat = [call for call in placed.calls if isinstance(call, Call)]
        ordered = in_turn((made[c.step.key].launches, made[c.step.key].lets_in) for c in flat)
        for call, launches in zip(flat, ordered, strict=True):
            places = [memory.place(s) for s in call.storages]
            if call.kernel.source.has_status:
                places.append(memory.status())
            cubin = made[call.step.key].cubin
            calls += (NetworkCall(x, cubin, tuple(places)) for x in launches)
        job = NetworkJob(memory.pieces(), tuple(calls), self.target.has_dependent_launch)
        return Loadable(job, b"", {r.cubin: self.cubins[r.cubin] for r in made.values()})

    def _ready(self, step: Step | LoopStep, choices: Choices) -> _Ready:
        candidate = choices[step.key] if isinstance(step, Step) else None
        place = (step.key, "" if candidate is None else candidate.key)
        if place not in self.kernels:

            def lowered(task: Task, symbol: str) -> Kernel:
                assert candidate is not None
                return kernel_of(candidate, task, symbol, {})[0]

            kernel = KernelMaker(self.generator, lowered, self.numerics).make(step)
            name = f"cubin.{digest_text(kernel.source.text)}"
            program = kernel.kernel.program
            self.kernels[place] = _Ready(kernel, launches_of(program), lets_next_in(program), name)
        return self.kernels[place]

    def _compile(self, texts: Mapping[str, str]) -> None:
        missing = {name: text for name, text in texts.items() if name not in self.cubins}
        made = self.generator.objects(list(missing.values()), self.cache)
        for name, cubin in zip(missing, made, strict=True):
            self.cubins[name] = np.frombuffer(cubin, np.uint8)


def _choices_key(choices: Choices) -> str:
    return digest_text(*(f"{key} {choices[key].key}" for key in sorted(choices)))


class _Memory:
    """The pieces behind the storages of a network, numbered as they are first used."""

    ARENA, STATUS = 0, 1

    def __init__(self, plan: Plan, arena: Arena, constants: dict[Storage, str]) -> None:
        self.plan, self.arena, self.constants = plan, arena, constants
        self.numbers: dict[Piece, int] = {}
        """Of what networks share; arena and statuses are in front."""
        self.statuses = 1
        """With the alarm, which is the first."""

    def place(self, s: Storage) -> tuple[int, int]:
        """The piece that a storage is in, and where."""
        if s.kind == "arena":
            return self.ARENA, self.arena.offsets[s]
        if s.kind == "alarm":
            return self.STATUS, 0
        if s.kind == "constant":
            key, nbytes = self.constants[s], s.nbytes
        else:
            kind = s.value.tensor_type
            key, nbytes = f"array {array_number(self.plan, s)}", kind.nbytes
        piece = Piece(key, nbytes, s.dtype.name)
        return 2 + self.numbers.setdefault(piece, len(self.numbers)), 0

    def status(self) -> tuple[int, int]:
        """The place of another status."""
        self.statuses += 1
        return self.STATUS, STATUS_BYTES * (self.statuses - 1)

    def pieces(self) -> tuple[Piece, ...]:
        own = (
            Piece("", self.arena.nbytes, u8.name),
            Piece("", STATUS_BYTES * self.statuses, i64.name),
        )
        return (*own, *self.numbers)
