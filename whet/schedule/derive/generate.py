"""All sketches of a task: every way to apply the rules from the output backwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from whet.schedule.derive.dag import dag_of
from whet.schedule.derive.rules import RULES, SketchRule
from whet.schedule.derive.state import State
from whet.schedule.derive.trees import sized_buffer, trees_of
from whet.schedule.program.primitives import naive_program
from whet.tasks.task import Task

MOST_SKETCHES = 24
"""More than typical tasks have (the paper: fewer than ten).  Stages that may be computed in several
places multiply; then those come first to which most rules were applied."""


def first_state(task: Task, cores: int) -> State:
    """The naive program of a task, with its last node to look at."""
    program = naive_program(task)
    dag = dag_of(program)
    buffers = [*program.inputs, *program.outputs, *program.workspace]
    storage = {b.name: sized_buffer(b) for b in buffers}
    return State(dag, cores, trees_of(program), storage, len(dag.nodes) - 1)


def sketches(task: Task, cores: int, rules: Sequence[SketchRule] | None = None) -> list[State]:
    """The finished states, in the order of the rules, without repetitions."""
    waiting = deque([first_state(task, cores)])
    found: dict[str, State] = {}
    while waiting and len(found) < MOST_SKETCHES:
        state = waiting.popleft()
        if state.position < 0:
            steps = [str(m.step) for m in state.moves]
            found.setdefault("\n".join([*steps, *sorted(state.factored)]), state)
            continue
        successors: list[State] = []
        for rule in RULES if rules is None else rules:
            more = rule.apply(state)
            successors += more
            if more and rule.is_exclusive:
                break
        # Depth first: the first sketches found are those to which most rules were applied.
        waiting.extendleft(reversed(successors))
    return list(found.values())
