"""A step as one step per stage: the way out when no sketch fits a task as a whole."""

from __future__ import annotations

from whet.ir.affine import rebuild
from whet.ir.expr import Expr, Read
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Placeholder, Tensor, producers, stages
from whet.tasks.places import Storage
from whet.tasks.steps import Step
from whet.tasks.task import Task


def split_stages(step: Step) -> list[Step]:
    """The same computation with every stage stored; one step means that nothing can be split.

    t[i] = sum(x[i, k] for k in 9); y[i, j] = x[i, j] / t[i]     (one step)
        ->   t[i] = sum(x[i, k] for k in 9)                      (first step, t in the arena)
             y[i, j] = x[i, j] / t[i]                            (second step)
    """
    task = step.task
    buffers, storages = dict(task.buffers), dict(step.storages)
    found = [t for t in stages(task.outputs) if isinstance(t, Compute)]
    for stage in found:
        if stage not in buffers:
            buffers[stage] = Buffer(stage.name, stage.shape, stage.dtype)
            value = step.storages[task.outputs[0]].value
            storages[stage] = Storage("arena", stage.type.size, stage.dtype, value)
    return [_alone(step, stage, buffers, storages) for stage in found]


def _alone(
    step: Step, stage: Compute, buffers: dict[Tensor, Buffer], storages: dict[Tensor, Storage]
) -> Step:
    """The step of one stage, whose inputs are named x0, x1, ... in order of use."""
    own: dict[Tensor, Tensor] = {
        t: Placeholder(f"x{n}", t.shape, t.dtype, not isinstance(t, Placeholder) or t.finite)
        for n, t in enumerate(producers(stage))
    }

    def visit(e: Expr) -> Expr:
        children = [visit(c) for c in e.children()]
        if isinstance(e, Read):
            return Read(own[e.tensor], tuple(children))
        return rebuild(e, children) if children else e

    alone = Compute("s0", stage.axes, visit(stage.body))
    own[stage] = alone
    task = Task(
        (alone,),
        {
            new: Buffer(new.name, old.shape, old.dtype, buffers[old].strides, buffers[old].offset)
            for old, new in own.items()
        },
        frozenset(own[t] for t in step.task.constants if t in own),
        {own[t]: border for t, border in step.task.borders.items() if t in own},
        frozenset(own[t] for t in step.task.given if t in own),
    )
    return Step(task, {new: storages[old] for old, new in own.items()}, step.name, step.nodes)
