"""Layers of networks on GPUs, one by one: their tasks, and kernels to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.gpu_kernels import Shape
from harness.gpu_networks import BUILDERS
from whet.api.compiler import Options
from whet.api.engines import default_engine
from whet.build.tasks import graph_steps
from whet.core.gpu import GpuTarget
from whet.core.precision import find_precision
from whet.frontend.onnx import import_model
from whet.graph.graph import Node
from whet.measure.results import Candidate
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.schedule.families.contraction.match import find_contraction
from whet.schedule.program.triggers import AT_START, HOLE, NEVER
from whet.tasks.task import Task
from whet.tune.space import Table, make_space


@dataclass(frozen=True, eq=False)
class GpuLayer:
    """A convolution or a product with weights, with what it is one kernel with."""

    task: Task
    node: Node
    shape: Shape
    count: int
    """How often the network has it."""

    @property
    def name(self) -> str:
        kernel = self.node.inputs[1].tensor_type.shape[2:]
        op = self.node.op
        stride = f"/{op.strides[0]}" if isinstance(op, Conv) and op.strides[0] > 1 else ""
        taps = "x".join(map(str, kernel)) + stride if isinstance(op, Conv) else "product"
        return f"{taps} {self.shape.rows}x{self.shape.columns}x{self.shape.depth}"


def layers_of(network: str, target: str, precision: str) -> tuple[GpuTarget, list[GpuLayer]]:
    """The distinct layers of a network as it is compiled, in the order in which they run."""
    engine = default_engine(None, target, precision)
    options = Options(engine, 1, "real", find_precision(precision), lambda _: None, lambda _: None)
    graph = options.optimize(import_model(BUILDERS[network]()).graph)
    gpu: GpuTarget = engine.target  # type: ignore[attr-defined]
    found: dict[str, GpuLayer] = {}
    for step, times in graph_steps(graph, gpu, 1, "real")[0]:
        nodes = [n for n in step.nodes if isinstance(n.op, Conv | MatMul)]
        form = find_contraction(step.task)
        if form is None or len(nodes) != 1 or form.batch > 1 or not form.b_is_constant:
            continue
        before = found[step.key].count if step.key in found else 0
        depth = int(np.prod([k.extent for k in form.k_axes]))
        shape = Shape(form.rows, form.columns, depth)
        found[step.key] = GpuLayer(step.task, nodes[0], shape, before + times)
    return gpu, list(found.values())


# ------------------------------------------------------------------------------------ candidates
def tables_of(task: Task, target: GpuTarget) -> list[Table]:
    """The spaces of contractions."""
    tables: Sequence[Table] = make_space(task, target, 1).tables
    return [t for t in tables if HOLE in t.names and "splits" in t.names]


def first_ones(tables: Sequence[Table], count: int) -> list[Candidate]:
    """The candidates that are expected to be the fastest of all."""
    ranked = sorted(
        (float(cost), number, row)
        for number, table in enumerate(tables) for row, cost in enumerate(table.costs)
    )  # fmt: skip
    return [tables[number].candidate(row) for _, number, row in ranked[:count]]


def any_ones(
    tables: Sequence[Table], count: int, target: GpuTarget, rng: np.random.Generator
) -> Iterator[Candidate]:
    """Candidates by chance, as many of each table: those that let others in early also as they are
    when they do not, so that what that brings can be told."""
    for table in tables:
        early = target.has_dependent_launch and set(table.holes[HOLE].tolist()) != {NEVER}
        for row in rng.permutation(len(table.matrix))[:count]:
            made = table.candidate(int(row))
            for trigger in (AT_START, NEVER) if early else (NEVER,):
                yield Candidate(made.sketch, {**made.holes, HOLE: trigger})
