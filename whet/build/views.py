"""Kernels of a graph from the task to the assembly, for looking at."""

from __future__ import annotations

from dataclasses import dataclass

from whet.build.backend import backend_of
from whet.build.kernels import KernelMaker, NativeKernel, Schedule
from whet.codegen.generator import Generator
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.graph.passes import expand_composites
from whet.ir.tensor import describe
from whet.ops.base import Numeric
from whet.schedule.program.show import show_program, show_task
from whet.schedule.space.registry import choices
from whet.tasks.plan import plan_graph
from whet.tasks.price import Evidence, no_evidence
from whet.tasks.steps import LoopStep, Step, inner_steps


@dataclass(frozen=True, eq=False)
class KernelView:
    """One kernel and the calls that use it."""

    kernel: NativeKernel
    step: Step | LoopStep
    names: tuple[str, ...]
    """What the model calls the nodes that it computes, one per call."""
    generator: Generator
    target: Target
    threads: int
    numerics: Numeric

    @property
    def task(self) -> str:
        if isinstance(self.step, LoopStep):
            return f"loops of {self.step.nodes[0].op}"
        return describe(*self.step.task.outputs)

    @property
    def stages(self) -> str:
        """The DAG of the task as TVM's auto-scheduler prints it."""
        return self.task if isinstance(self.step, LoopStep) else show_task(self.step.task)

    @property
    def loops(self) -> str:
        """The program without what it computes."""
        return show_program(self.kernel.kernel.program)

    @property
    def program(self) -> str:
        return str(self.kernel.kernel.program)

    @property
    def assembly(self) -> str:
        return self.generator.listing(self.kernel.source.text)

    def costs(self) -> list[str]:
        """The best candidate of each sketch that fits, cheapest first, by the analytic model."""
        if isinstance(self.step, LoopStep):
            return ["an operator's own loops: there is nothing to choose"]
        found = list(choices(self.step.task, self.target, self.threads, self.numerics))
        found.sort(key=lambda c: c.nanoseconds)
        return [f"{c.nanoseconds / 1e3:.1f} us {c.sketch.name} {c.holes}" for c in found]

    def text(self) -> str:
        parts = {
            "calls": ", ".join(self.names),
            "task": self.task,
            "stages": self.stages,
            "estimates": "\n".join(self.costs()),
            "loops": self.loops,
            "program": self.program,
            self.generator.language: self.kernel.source.text,
            "assembly": self.assembly,
        }
        return "\n".join(f"--- {title}\n{text.rstrip()}\n" for title, text in parts.items())


def kernel_views(
    graph: Graph,
    target: Target,
    threads: int,
    numerics: Numeric = "real",
    *,
    schedule: Schedule | None = None,
    evidence: Evidence = no_evidence,
) -> tuple[KernelView, ...]:
    """The kernels of a graph in the order of their first call; the default ones, unless a schedule
    and what is known about partitions say otherwise, as in `build`."""
    graph = expand_composites(graph)
    backend = backend_of(target)
    generator = backend.generator(target)
    price = backend.price(target, threads, numerics, evidence, graph.constant_bytes)
    maker = KernelMaker(generator, schedule or price.kernel, numerics)
    plans = plan_graph(graph, price, backend.holds).plans
    steps = [s for plan in plans.values() for step in plan.steps for s, _ in inner_steps(step)]
    names: dict[str, list[str]] = {}
    for step in steps:
        names.setdefault(step.key, []).append(step.name)
    first = {step.key: step for step in reversed(steps)}
    return tuple(
        KernelView(
            maker.make(first[key]), first[key], tuple(found), generator, target, threads, numerics
        )
        for key, found in names.items()
    )
