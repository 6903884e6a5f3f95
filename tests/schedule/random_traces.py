"""Random legal traces: steps are proposed blindly and kept when the primitive accepts them."""

from __future__ import annotations

import numpy as np

from whet.core.errors import ScheduleError
from whet.ir.program import Allocate, Loop, Program, walk
from whet.schedule.program.primitives import PRIMITIVES, naive_program
from whet.schedule.space.trace import Argument, Hole, Trace, TransformStep, apply_step
from whet.tasks.task import Task

MAX_STATEMENTS = 120
"""Programs stay small: the definition runs one scalar at a time."""


class Proposer:
    """Proposes steps for a program; sizes become holes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.holes: dict[str, int] = {}

    def pick(self, items: list[str]) -> str:
        return items[int(self.rng.integers(len(items)))] if items else "none"

    def hole(self, name: str, value: int) -> Hole:
        unique = f"{name}.{len(self.holes)}"
        self.holes[unique] = value
        return Hole(unique)

    def propose(self, program: Program) -> TransformStep:
        statements = list(walk(program.body))
        loops = [s.var.name for s in statements if isinstance(s, Loop)]
        inner = [s.buffer.name for s in statements if isinstance(s, Allocate)]
        own = [b.name for b in program.workspace]
        buffers = [*own, *inner, *(b.name for b in (*program.inputs, *program.outputs))]
        kind = self.pick([k for k in PRIMITIVES if k != "register_tile"] + ["split"] * 3)
        loop = self.pick(loops)
        arguments: dict[str, Argument] = {}
        match kind:
            case "split":
                factor = self.hole(f"{loop}.size", int(self.rng.integers(1, 6)))
                tail = self.pick(["guard", "peel", "overlap", "perfect"])
                arguments = {"loop": loop, "factor": factor, "tail": tail}
            case "fuse" | "reorder":
                pair = self.nested_pair(program, loop)
                names = ("outer", "inner")
                arguments = dict(zip(names, pair)) if kind == "fuse" else {"order": pair[::-1]}
            case "compute_at":
                arguments = {"buffer": self.pick(own), "loop": loop}
            case "inline":
                arguments = {"buffer": self.pick(own)}
            case "cache_write":
                scope = self.pick(["memory", "register"])
                arguments = {"buffer": self.pick(buffers), "loop": loop, "scope": scope}
            case "cache_read":
                arguments = {"buffer": self.pick(buffers), "loop": self.pick([*loops, "none"])}
                if arguments["loop"] == "none":
                    arguments["loop"] = None
            case "rfactor":
                arguments = {"loop": loop, "variant": self.pick(["local", "stage"])}
            case _:
                arguments = {"loop": loop}
        return TransformStep(kind, **arguments)

    def nested_pair(self, program: Program, loop: str) -> tuple[str, str]:
        """A loop and the first loop inside it."""
        for s in walk(program.body):
            if isinstance(s, Loop) and s.var.name == loop:
                inside = [x for x in s.body if isinstance(x, Loop)]
                return loop, inside[0].var.name if inside else loop
        return loop, loop


def random_trace(task: Task, rng: np.random.Generator, tries: int = 14) -> tuple[Trace, Program]:
    """A trace of some of the proposed steps, and its program."""
    proposer = Proposer(rng)
    steps: list[TransformStep] = []
    program = naive_program(task)
    for _ in range(tries):
        step = proposer.propose(program)
        try:
            made = apply_step(program, step, proposer.holes, task, {})
        except ScheduleError:
            continue
        if sum(1 for _ in walk(made.body)) <= MAX_STATEMENTS:
            steps, program = [*steps, step], made
    used = {a.name for s in steps for _, a in s.arguments if isinstance(a, Hole)}
    return Trace(tuple(steps), {n: v for n, v in proposer.holes.items() if n in used}), program
