"""Probes that are kernels: how much a register tile feels of waits for the caches behind L1.

Rates alone do not say that.  Whether a panel that streams in from the second cache, or from beyond
it, arrives while a tile computes depends on how far the core looks ahead, on its own prefetching,
and on what asking for lines ahead of time costs.  So kernels that the analytic models price are
run where their operands lie near, in the second cache, beyond it, and in memory, and the constants
are what makes the models right about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from whet.build.cpu.probes import Probe
from whet.build.native import NO_CACHE, build
from whet.core.cpu import MIB, CpuTarget
from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, make_input
from whet.ir.program import Buffer
from whet.ir.tensor import Tensor, compute, placeholder, reduce_axis, sum_
from whet.ops.matmul import MatMul
from whet.schedule.cost.arrival import awaited
from whet.schedule.cost.numbers.caches import STEADY_TILES
from whet.schedule.families.contraction.match import Contraction, find_contraction
from whet.schedule.families.contraction.price import contraction_costs, contraction_holes
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import SKETCHES
from whet.tasks.task import Task

NEAR_DEPTH, DEPTH, PAGE_DEPTH = 96, 1008, 1024
"""Terms of sums whose panels stay in the first cache, of those whose panels do not, and of those
whose rows lie a page apart."""
NEAR_TILES, TILES, APART_TILES = 64, 12, 2
"""Tiles that use a panel; those of one from far away are few, so that it is used up fast."""
FAR = 3
"""How many times what the second cache holds the weights are that lie beyond it."""
LEAST_IN_MEMORY, MOST_IN_MEMORY = 64 * MIB, 96 * MIB
"""Bytes of weights that come from memory: more than the last cache holds, but what any machine can
bear.  Larger caches are those of many cores, and not for one model alone."""
WAY = {
    ("l3", False): ("l3_bytes_per_ns", "far_felt"),
    ("l3", True): ("l3_bytes_per_ns", "hinted_felt"),
    ("memory", False): ("core_memory_bytes_per_ns", "memory_felt"),
    ("memory", True): ("core_memory_bytes_per_ns", "memory_hinted_felt"),
}
"""How fast weights arrive from somewhere and which part of the wait is felt, by whether they were
asked for."""


WAITS = ("l2_felt", "far_felt", "hinted_felt", "memory_felt", "memory_hinted_felt", "hint_ns",
         "apart_ns")  # fmt: skip
"""The constants that these probes show."""


@dataclass(frozen=True, eq=False)
class TileProbe:
    """A matrix product with constant weights, and the candidate that computes it."""

    rows: int
    columns: int
    depth: int
    holes: Mapping[str, int]
    constant: bool = True
    source: Literal["near", "l3", "memory"] = "near"
    """Where every call reads the weights from."""

    def expected(self, target: CpuTarget) -> float:
        """Nanoseconds that the analytic model expects on one thread."""
        columns = {name: np.array([value]) for name, value in self.holes.items()}
        costs = contraction_costs(self.form, target, 1, columns)
        if self.source != "near":
            rate, felt = WAY[self.source, bool(self.holes["prefetch"])]
            arrival = self.columns * self.depth * f32.itemsize / target.constant(rate)
            hinted = bool(self.holes["prefetch"])
            costs = awaited(costs, arrival, STEADY_TILES, hinted, target.constant(felt))
        return float(costs[0])

    @property
    def form(self) -> Contraction:
        return _form(self.rows, self.columns, self.depth, constant=self.constant)

    def probe(self, target: CpuTarget) -> Probe:
        """A call of the kernel."""

        def schedule(task: Task, name: str) -> Kernel:
            sketch = SKETCHES["contraction"]
            return sketch.lower(sketch.fits(task), self.holes, name)

        executable = build(self.graph, target, 1, NO_CACHE, schedule=schedule)
        inputs = [np.ones(v.tensor_type.shape, np.float32) for v in self.graph.inputs]
        out = list(executable(inputs))

        def call() -> None:
            executable(inputs, out)

        return Probe(call, 1.0)

    @cached_property
    def graph(self) -> Graph:
        b = GraphBuilder()
        left = make_input("a", TensorType((self.rows, self.depth), f32))
        if not self.constant:
            right = make_input("b", TensorType((self.depth, self.columns), f32))
            return Graph((left, right), (b.one(MatMul(), left, right),), ("y",))
        weights = b.constant(np.ones((self.depth, self.columns), np.float32))
        return Graph((left,), (b.one(MatMul(), left, weights),), ("y",))


def _form(rows: int, columns: int, depth: int, *, constant: bool = True) -> Contraction:
    """The product as the sketch sees it."""
    a, b = placeholder((rows, depth), f32, "a"), placeholder((depth, columns), f32, "b")
    k = reduce_axis(depth, "k")
    y = compute((rows, columns), lambda i, j: sum_(a[i, k] * b[k, j], k), "y")
    buffers: dict[Tensor, Buffer] = {t: Buffer(t.name, t.shape, t.dtype) for t in (a, b, y)}
    found = find_contraction(Task((y,), buffers, frozenset({b} if constant else ()), {}))
    assert found is not None
    return found


def tile_probes(target: CpuTarget) -> dict[str, TileProbe]:
    """The probes by name: near, from the second cache, from beyond it, from memory; without and
    with hints."""
    mr, nv, lanes = _best_tile(target)
    width = nv * lanes
    panel_bytes = DEPTH * width * f32.itemsize
    many = min(max(LEAST_IN_MEMORY, target.l3_bytes * 3 // 2), MOST_IN_MEMORY)

    def one(tiles: int, together: int, panels: int, depth: int, prefetch: int = 0) -> TileProbe:
        holes = {
            "mr": mr, "nv": nv, "lanes": lanes, "tiles_per_block": together,
            "panels_per_chunk": panels, "pack_b": 0, "prefetch": prefetch, "terms": 0, "skip": 0,
        }  # fmt: skip
        return TileProbe(tiles * mr, panels * width, depth, holes)

    def away(source: Literal["l3", "memory"], nbytes: int, prefetch: int) -> TileProbe:
        made = one(STEADY_TILES, STEADY_TILES, max(2, nbytes // panel_bytes), DEPTH, prefetch)
        return replace(made, source=source)

    apart = one(APART_TILES, APART_TILES, -(-PAGE_DEPTH // width), PAGE_DEPTH)
    apart = replace(apart, columns=PAGE_DEPTH, constant=False)
    return {
        "tile_call": one(1, 1, 1, 2),
        "tile_near": one(NEAR_TILES, 1, 2, NEAR_DEPTH),
        "tile_l2": one(TILES, TILES, 1, DEPTH),
        "tile_l2_hinted": one(TILES, TILES, 1, DEPTH, prefetch=1),
        "tile_far": away("l3", FAR * target.l2_bytes, 0),
        "tile_far_hinted": away("l3", FAR * target.l2_bytes, 1),
        "tile_memory": away("memory", many, 0),
        "tile_memory_hinted": away("memory", many, 1),
        "tile_apart": apart,
    }


def _best_tile(target: CpuTarget) -> tuple[int, int, int]:
    """Rows, vectors and lanes of the register tile that the model prefers."""
    form = _form(96, 12 * target.lanes(f32.bits), NEAR_DEPTH)
    holes = contraction_holes(form, target, 1)
    best = int(np.argmin(contraction_costs(form, target, 1, holes)))
    mr, nv, lanes = (int(holes[name][best]) for name in ("mr", "nv", "lanes"))
    return mr, nv, lanes


def slowed_down(target: CpuTarget, ns: Mapping[str, float]) -> float:
    """How many times as long a tile takes, all of whose operands are near, as its operations do.

    On a machine that others use as well, it may be much: a neighbour on the same core takes more of
    the caches than of the multiply-adds.
    """
    calm = target.calibrated(**dict.fromkeys(WAITS, 0.0))
    return (ns["tile_near"] - ns["tile_call"]) / tile_probes(target)["tile_near"].expected(calm)


def felt_constants(target: CpuTarget, ns: Mapping[str, float]) -> dict[str, float]:
    """The constants with which the model gives these times, relative to that of the near tile.

    `target` has the rates of the machine.  What a call from Python takes is no part of a kernel.
    """
    unit = max(1.0, slowed_down(target, ns))
    ns = {name: t - ns["tile_call"] for name, t in ns.items() if name.startswith("tile_")}
    probes = tile_probes(target)
    calm = target.calibrated(**dict.fromkeys(WAITS, 0.0))

    def excess(name: str, known: CpuTarget) -> float:
        """Nanoseconds that a probe takes longer than the model expects."""
        return ns[name] / unit - probes[name].expected(known)

    def felt(name: str, constant: str, known: CpuTarget) -> float:
        """The constant that explains a probe's excess: its time grows with it, mostly linearly."""
        more = probes[name].expected(known.calibrated(**{constant: 1.0}))
        slope = more - probes[name].expected(known)
        return excess(name, known) / slope if slope > 0 else 0.0

    found = {"l2_felt": max(0.0, felt("tile_l2", "l2_felt", calm))}
    known = calm.calibrated(**found)
    found["hint_ns"] = max(0.0, felt("tile_l2_hinted", "hint_ns", known))
    known = known.calibrated(**found)
    away = {
        "far_felt": "tile_far", "hinted_felt": "tile_far_hinted", "memory_felt": "tile_memory",
        "memory_hinted_felt": "tile_memory_hinted", "apart_ns": "tile_apart",
    }  # fmt: skip
    found |= {name: max(0.0, felt(probe, name, known)) for name, probe in away.items()}
    return found
