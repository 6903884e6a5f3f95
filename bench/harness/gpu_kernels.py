"""Kernels of contractions that were measured on a GPU, as the law of contractions sees them.

A file has a JSON object in every line, `.xz` or plain:

    {"kind": "simt", "name": "l3_3x3", "BM": 32, "BN": 64, "BK": 32, "TM": 4, "TN": 4, "STG": 3,
     "S": 8, "nt": 128, "regs": 80, "smem": 39936, "us": 11.9, "pdl": 14.1, ...}

`kind` is the leaf and `name` the layer; `WM` and `WN` warps in place of tiles of threads; `us` and
`pdl` microseconds of a kernel that follows itself, launched when the one before it has ended or
while it runs.  Rows with `bad`, and kernels on leaves that whet does not have, are left out: those
of wgmma have rows of exactly 128 bytes in shared memory.  Of candidates that were measured several
times the median counts.  Rows of whet's own kernels (`own_rows`, written by `gpu_layers.py`) bring
the shape of their layer along: `rows`, `columns`, `depth`, `network`.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from whet.core.dtypes import f16, f32
from whet.core.gpu import PRESETS
from whet.core.types import Array
from whet.ir.program import Buffer
from whet.ir.tensor import placeholder
from whet.measure.results import Measured
from whet.ops.matmul import MatMul
from whet.schedule.families.gpu_contraction.estimate import Work
from whet.schedule.families.gpu_contraction.match import (
    FFMA,
    FP32X3,
    MMA,
    TF32,
    GpuContraction,
    Leaf,
    find_gpu_contraction,
)
from whet.schedule.families.gpu_contraction.resources import registers_of, shared_bytes, threads_of
from whet.schedule.families.gpu_contraction.space import HOLES, gpu_holes
from whet.schedule.program.triggers import AT_START, NEVER
from whet.schedule.space.sketch import Population
from whet.tasks.task import Task

TARGET = PRESETS["cuda-sm_90a"]
LEAVES = {"simt": FFMA, "f16": MMA, "tf32": TF32, "3xtf32": FP32X3}
"""By what files call them."""
SIZES = ("BM", "BN", "TM", "TN", "BK", "STG", "S")
WAYS = {"us": NEVER, "pdl": AT_START}
"""Times by the way of launching, and what that is as a hole."""
BERT = {"qkv": (2304, 768), "proj": (768, 768), "ffn1": (3072, 768), "ffn2": (768, 3072)}
"""Columns and depth of products with 128 rows."""


@dataclass(frozen=True)
class Shape:
    """A layer as a product of matrices."""

    rows: int
    columns: int
    depth: int


@dataclass(frozen=True, eq=False)
class Layer:
    """The kernels of one leaf for one layer, a row each."""

    leaf: Leaf
    name: str
    network: str
    shape: Shape
    sizes: Array
    """[kernels, holes but the trigger]"""
    times: Mapping[str, Array]
    """Nanoseconds, by the way of launching; not a number where that was not measured."""
    registers: Array
    shared: Array
    is_own: bool = False
    """Whether the kernels are whet's, and not others of the same kind."""

    def __len__(self) -> int:
        return len(self.sizes)

    def holes(self, launch: str) -> Population:
        columns = dict(zip(HOLES, self.sizes.T))
        return {**columns, "trigger": np.full(len(self), WAYS[launch])}

    def measured(self, launch: str) -> Layer:
        """The kernels that were measured in this way."""
        known = np.isfinite(self.times[launch])
        times = {way: found[known] for way, found in self.times.items()}
        return replace(self, sizes=self.sizes[known], times=times,
                       registers=self.registers[known], shared=self.shared[known])  # fmt: skip

    def offered(self) -> Array:
        """Which of them are candidates of whet's."""
        space = gpu_holes(form_of(self.leaf, self.shape), TARGET)
        mine = {tuple(row) for row in np.stack([space[h] for h in HOLES[:-1]], axis=1).tolist()}
        return np.array([tuple(row) in mine for row in self.sizes.tolist()])

    def work(self, launch: str, registers: Array) -> Work:
        """What the kernels do; their registers are estimated by who asks."""
        s, count = self.shape, len(self)
        bm, bn, tm, tn, bk, _, splits = self.sizes.T
        size = 2 if self.leaf.types == MMA.types else 4
        return Work(
            blocks=-(-s.rows // bm) * -(-s.columns // bn) * splits,
            cluster=splits,
            threads=(bm // tm) * (bn // tn) * self.leaf.lanes,
            shared=self.shared,
            registers=registers,
            steps=-(-s.depth // (bk * splits)),
            stage_bytes=(bm + bn) * bk * size,
            far_bytes=np.full(count, s.columns * s.depth * size),
            result_bytes=np.full(count, s.rows * s.columns * size),
            early=np.full(count, launch == "pdl"),
        )


def form_of(leaf: Leaf, shape: Shape) -> GpuContraction:
    """The layer as a task of whet's."""
    dtype = f16 if leaf is MMA else f32
    a = placeholder((shape.rows, shape.depth), dtype, "a")
    b = placeholder((shape.depth, shape.columns), dtype, "b")
    y = MatMul().compute(a, b)
    buffers = {t: Buffer(n, t.shape, t.dtype) for t, n in ((a, "a"), (b, "b"), (y, "y"))}
    found = find_gpu_contraction(Task((y,), buffers, frozenset({b}), {}), leaf)
    assert found is not None
    return found


def read_kernels(*paths: Path) -> dict[str, list[Layer]]:
    """The layers of every leaf, by its name."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
        rows += map(json.loads, text.splitlines())
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if "bad" not in row and row["kind"] in LEAVES and not _by_wgmma(row):
            found[row["kind"], row["name"]].append(row)
    layers: dict[str, list[Layer]] = {leaf.name: [] for leaf in LEAVES.values()}
    for (kind, name), kernels in sorted(found.items()):
        layers[LEAVES[kind].name].append(_layer(kind, name, kernels))
    return layers


def _by_wgmma(row: Mapping[str, Any]) -> bool:
    if row["kind"] == "simt" or "rows" in row:
        return False
    size = 2 if row["kind"] == "f16" else 4
    ring = row["STG"] * (row["BM"] + row["BN"]) * (row["BK"] * size + 16)
    sums = row["BM"] * (row["BN"] + 8) * 4 if row["S"] > 1 else 0
    return bool(row["smem"] != max(ring, sums))


def _layer(kind: str, name: str, rows: Sequence[dict[str, Any]]) -> Layer:
    for row in rows:
        if "WM" in row:
            row["TM"], row["TN"] = row["BM"] // row["WM"], row["BN"] // row["WN"]
    equal: dict[tuple[int, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        equal[tuple(row[size] for size in SIZES)].append(row)
    kernels = sorted(equal.items())

    def column(key: str) -> Array:
        found = [[row[key] for row in same if key in row] for _, same in kernels]
        return np.array([float(np.median(values)) if values else np.nan for values in found])

    if "rows" in rows[0]:
        shape = Shape(*(int(rows[0][size]) for size in ("rows", "columns", "depth")))
        network = rows[0]["network"]
    else:
        shape, network = shapes(kind)[name]
    return Layer(
        LEAVES[kind], name, network, shape, np.array([sizes for sizes, _ in kernels], np.int64),
        {launch: 1000 * column(launch) for launch in WAYS},
        column("regs").astype(np.int64), column("smem").astype(np.int64), "rows" in rows[0],
    )  # fmt: skip


def own_rows(
    name: str, network: str, form: GpuContraction, trials: Sequence[Measured]
) -> Iterator[dict[str, Any]]:
    """Lines of a file for whet's kernels of a layer on one leaf, with the times of the ways of
    launching in which they were measured."""
    c, kind = form.contraction, next(k for k, leaf in LEAVES.items() if leaf is form.leaf)
    times: dict[tuple[int, ...], dict[int, float]] = defaultdict(dict)
    for trial in trials:
        if trial.ok:
            sizes = tuple(trial.candidate.holes[hole] for hole in HOLES[:-1])
            times[sizes][trial.candidate.holes[HOLES[-1]]] = 1e6 * trial.seconds
    for sizes, found in times.items():
        known = {way: found[n] for way, n in WAYS.items() if n in found}
        if not known:
            continue
        holes = {hole: np.array([size]) for hole, size in zip(HOLES, sizes)}
        yield {
            "kind": kind, "name": name, "network": network, "rows": c.rows, "columns": c.columns,
            "depth": form.depth, **dict(zip(SIZES, sizes)),
            "nt": int(threads_of(form.leaf, holes)[0]),
            "regs": int(registers_of(form.leaf, form.dtype.itemsize, holes)[0]),
            "smem": int(shared_bytes(form, holes)[0]), **known,
        }  # fmt: skip


def shapes(kind: str) -> dict[str, tuple[Shape, str]]:
    """Shapes and networks of layers by name, as they were measured: of images with channels filled
    up to whole copies, of MobileNet-V2 with channels filled up to multiples of 32."""
    found = {name: (Shape(128, n, k), "BERT-base") for name, (n, k) in BERT.items()}
    found |= {name: (shape, "ResNet-50") for name, shape in _resnet(kind)}
    return found | {name: (shape, "MobileNet-V2") for name, shape in _mobilenet(kind)}


def _resnet(kind: str) -> Iterator[tuple[str, Shape]]:
    channels = 8 if kind == "f16" else 4
    yield "conv1", Shape(112 * 112, 64, 7 * (7 if kind == "simt" else 8) * channels)
    first = {"64_64": (64, 64), "3x3": (64, 9 * 64), "64_256": (256, 64), "256_64": (64, 256)}
    for name, (columns, depth) in first.items():
        yield f"l1_{name}", Shape(56 * 56, columns, depth)
    for stage, (side, wide) in {2: (28, 512), 3: (14, 1024), 4: (7, 2048)}.items():
        narrow, rows = wide // 4, side * side
        yield f"l{stage}_in", Shape(4 * rows, narrow, wide // 2)
        yield f"l{stage}_ds", Shape(rows, wide, wide // 2)
        yield f"l{stage}_up", Shape(rows, wide, narrow)
        yield f"l{stage}_down", Shape(rows, narrow, wide)
        for name in ("3x3", "3x3s2"):
            yield f"l{stage}_{name}", Shape(rows, narrow, 9 * narrow)


def _mobilenet(kind: str) -> Iterator[tuple[str, Shape]]:
    channels = 8 if kind == "f16" else 4
    yield "stem", Shape(112 * 112, 32, 3 * (3 if kind == "simt" else 4) * channels)
    yield "head", Shape(7 * 7, 1280, 320)
    wider = {"112_16_96", "56_24_144", "28_32_192", "14_64_384", "14_96_576", "7_160_960"}
    narrower = {
        "112_32_16_0", "56_96_24_0", "56_144_24_1", "28_144_32_0", "28_192_32_1", "14_192_64_0",
        "14_384_64_1", "14_384_96_0", "14_576_96_1", "7_576_160_0", "7_960_160_1", "7_960_320_0",
    }  # fmt: skip
    for name in sorted({f"e{n}" for n in wider} | {f"p{n}" for n in narrower}):
        side, depth, columns = (int(n) for n in name[1:].split("_")[:3])
        filled = [-(-n // 32) * 32 for n in (columns, depth)]
        yield name, Shape(side * side, *filled)
