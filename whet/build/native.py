"""A model as native code: segments of kernels, with lone operators between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whet.build.bodies import with_compiled_body
from whet.build.constants import ConstantStore
from whet.build.kernels import KernelMaker
from whet.build.plan import AnyStep, Plan, Step, make_plan
from whet.build.report import BuildReport
from whet.build.segment import NativeSegment, bind_kernel
from whet.build.segments import NativePiece, Piece, cut
from whet.build.split import split_stages
from whet.codegen.llvm.support import has_code
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import NoCodeError
from whet.core.target import Target
from whet.core.types import Array, TensorType
from whet.graph.graph import Constant, Graph, Node, Value
from whet.graph.passes import expand_composites
from whet.ops.base import Op
from whet.ops.scan import Scan
from whet.runtime.executable import own_results


def build(
    graph: Graph, target: Target, threads: int, cache: FileCache | None = None
) -> NativeExecutable:
    """The graph as native code for this machine."""
    builder = _Builder(target, threads, cache or FileCache(process_config().cache))
    return builder.build(expand_composites(graph))


class _Builder:
    """Builds graphs that share a target."""

    def __init__(self, target: Target, threads: int, cache: FileCache) -> None:
        self.target, self.threads, self.cache = target, threads, cache

    def build(self, graph: Graph) -> NativeExecutable:
        reasons = {n: r for n in graph.nodes for r in [why_not_native(n)] if r is not None}
        maker = KernelMaker(self.target, self.threads)
        pieces, plans, refused = self.plan(graph, reasons, maker)
        while refused:
            # What has no code runs on its own, and what is around it is planned anew.
            reasons |= refused
            pieces, plans, refused = self.plan(graph, reasons, maker)
        constants = ConstantStore()
        steps: list[NativeStep | LoneStep] = []
        for piece in pieces:
            if isinstance(piece, NativePiece):
                plan = plans[piece]
                calls = [bind_kernel(maker.make(step), step, constants) for step in plan.steps]
                segment = NativeSegment(plan, calls, constants, maker, self.cache)
                steps.append(NativeStep(segment, piece.inputs, piece.outputs))
            else:
                op = with_compiled_body(piece.node, self.compile_body)
                steps.append(LoneStep(op, piece.node))
        return NativeExecutable(graph, tuple(steps), reasons, constants, maker)

    def plan(
        self, graph: Graph, reasons: Mapping[Node, str], maker: KernelMaker
    ) -> tuple[tuple[Piece, ...], dict[NativePiece, Plan], dict[Node, str]]:
        """The pieces of the graph, the plans of the native ones, and nodes without code."""
        pieces = cut(graph, lambda node: node not in reasons)
        plans: dict[NativePiece, Plan] = {}
        refused: dict[Node, str] = {}
        for piece in pieces:
            if not isinstance(piece, NativePiece):
                continue
            plan = make_plan(piece.graph)
            steps: list[AnyStep] = []
            for step in plan.steps:
                try:
                    steps += possible_steps(step, maker)
                except NoCodeError as error:
                    if not step.nodes:
                        raise
                    refused.update({piece.origin[n]: error.message for n in step.nodes})
            plans[piece] = replace(plan, steps=tuple(steps))
        return pieces, plans, refused

    def compile_body(self, graph: Graph) -> NativeExecutable:
        return self.build(expand_composites(graph))


def possible_steps(step: AnyStep, maker: KernelMaker) -> list[AnyStep]:
    """The step if it has a kernel, else its stages one by one; NoCodeError if these have none."""
    try:
        maker.make(step)
        return [step]
    except NoCodeError:
        parts = split_stages(step) if isinstance(step, Step) else []
        if len(parts) < 2:
            raise
    for part in parts:
        maker.make(part)
    return [*parts]


def why_not_native(node: Node) -> str | None:
    """Why a node cannot be part of a native segment, or None if it can."""
    if node.op.host:
        return "the shape of its result depends on data"
    if isinstance(node.op, Scan):
        return "its body is native code, which runs once per step"
    if node.op.compute is None and node.op.program is None:
        return "it has neither tensor expressions nor loops"
    types = [v.type for v in (*node.inputs, *node.results)]
    for t in types:
        if not has_code(t.dtype):
            return f"the type {t.dtype} only stores"
        if isinstance(t, TensorType) and t.size == 0:
            return "a tensor without elements"
    return None


@dataclass(frozen=True, eq=False)
class NativeStep:
    """A segment between values of the graph."""

    segment: NativeSegment
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class LoneStep:
    """A node that runs on its own."""

    op: Op
    node: Node


class NativeExecutable:
    """A graph as native code; see `whet.runtime.executable.Executable`."""

    def __init__(
        self,
        graph: Graph,
        steps: tuple[NativeStep | LoneStep, ...],
        reasons: dict[Node, str],
        constants: ConstantStore,
        maker: KernelMaker,
    ) -> None:
        self.graph, self.steps, self.constants = graph, steps, constants
        self.reasons, self.kernels = reasons, tuple(maker.made.values())
        self.segments = tuple(s.segment for s in steps if isinstance(s, NativeStep))
        self._single = self.segments[0] if len(steps) == 1 and self.segments else None

    @property
    def report(self) -> BuildReport:
        return BuildReport(
            segments=len(self.segments),
            kernels=len(self.kernels),
            calls=sum(len(s.calls) for s in self.segments),
            arena_bytes=sum(s.arena.nbytes for s in self.segments),
            constant_bytes=sum(a.nbytes for a in self.constants.arrays.values()),
            reference={
                self.graph.names.get(node, node.op.name): f"{node.op.name}: {reason}"
                for node, reason in self.reasons.items()
            },
        )

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        if out is None:
            return self._single(inputs) if self._single else self._run(inputs)
        if self._single and _are_separate(out, inputs):
            return self._single(inputs, out)
        for target, result in zip(out, self(inputs), strict=True):
            np.copyto(target, result, casting="no")
        return tuple(out)

    def _run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """All steps in order, for graphs that are not one native segment."""
        env: dict[Value, Array] = dict(zip(self.graph.inputs, inputs, strict=True))

        def read(v: Value) -> Array:
            return v.array if isinstance(v, Constant) else env[v]

        for step in self.steps:
            if isinstance(step, NativeStep):
                env.update(zip(step.outputs, step.segment([read(v) for v in step.inputs])))
            else:
                results = step.op.run_reference(tuple(read(v) for v in step.node.inputs))
                env.update(zip(step.node.results, results))
        return own_results([read(v) for v in self.graph.outputs], inputs)


def _are_separate(out: Sequence[Array], inputs: Sequence[Array]) -> bool:
    """True when results can be written where they belong while the inputs are being read."""
    for number, array in enumerate(out):
        if not (array.flags.c_contiguous and array.flags.aligned):
            return False
        if any(np.may_share_memory(array, a) for a in (*inputs, *out[:number])):
            return False
    return True
