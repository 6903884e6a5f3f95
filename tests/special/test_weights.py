"""Weights that are infinite or NaN: zero padding times them is NaN, in every sketch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.special.engines import assert_agree, on_every_target
from tests.targets import HOST
from whet.build.native import NO_CACHE, build
from whet.core.cpu import CpuTarget
from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ops.base import Op
from whet.ops.conv import Conv, ConvTranspose
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import choices
from whet.schedule.space.sketch import Choice
from whet.tasks.task import Task

CASES: dict[str, tuple[Op, tuple[int, ...], tuple[int, ...]]] = {
    "dense": (Conv((1, 1), (1,) * 4, (1, 1), 1), (1, 16, 13, 14), (20, 16, 3, 3)),
    "far apart": (Conv((1, 1), (6,) * 4, (6, 6), 1), (1, 8, 7, 9), (20, 8, 3, 3)),
    "depthwise": (Conv((1, 1), (1,) * 4, (1, 1), 17), (1, 17, 9, 37), (17, 1, 3, 3)),
    "strided depthwise": (Conv((2, 2), (2,) * 4, (1, 1), 16), (1, 16, 7, 35), (16, 1, 5, 5)),
    "transposed": (ConvTranspose((2, 2), (1,) * 4, (1, 1), (1, 1)), (1, 6, 7, 8), (6, 20, 3, 3)),
}


def convolution(case: str, *values: float) -> tuple[Graph, Array]:
    """The graph, with these among the weights of every fourth filter, and an image."""
    op, image, filters = CASES[case]
    rng = np.random.default_rng(len(case))
    w = rng.standard_normal(filters).astype(np.float32)
    for n, value in enumerate(values):
        w[n::4, :, 0, 1] = value
    b = GraphBuilder()
    x = b.input("x", TensorType(image, f32))
    graph = Graph((x,), (b.one(op, x, b.constant(w)),), ("y",))
    return graph, rng.standard_normal(image).astype(np.float32)


class Chooser:
    """Schedules every task by the sketch of a name, where it fits; remembers which ones do."""

    def __init__(self, target: CpuTarget, name: str = "") -> None:
        self.target, self.name = target, name
        self.fitting: set[str] = set()

    def __call__(self, task: Task, symbol: str) -> Kernel:
        found = list(choices(task, self.target, 1, "real"))
        self.fitting |= {c.sketch.name for c in found}

        def rank(c: Choice) -> tuple[bool, float]:
            return c.sketch.name != self.name, c.nanoseconds

        return min(found, key=rank).kernel(symbol)


@on_every_target
@pytest.mark.parametrize("case", CASES)
def test_padding_times_weights(case: str, target: CpuTarget) -> None:
    graph, x = convolution(case, np.inf, np.nan, -np.inf)
    with np.errstate(all="ignore"):
        (want,) = interpret(graph, (x,))
    assert np.isnan(want).any()
    assert np.isfinite(want).any()
    first = Chooser(target)
    build(graph, target, 1, NO_CACHE, schedule=first)
    assert "winograd" not in first.fitting
    for name in sorted(first.fitting):
        (got,) = build(graph, target, 1, NO_CACHE, schedule=Chooser(target, name))([x])
        assert_agree(got, want, f"{case} by {name}", relative=1e-4, absolute=1e-4)


def test_what_is_left_out_depends_on_the_weights() -> None:
    """Finite weights leave all sketches a choice, so that the test above tests something."""
    fitting = {}
    for case in ("dense", "depthwise"):
        for values in ((1.0,), (np.inf,)):
            graph, _ = convolution(case, *values)
            chooser = Chooser(HOST)
            build(graph, HOST, 1, NO_CACHE, schedule=chooser)
            fitting[case, values] = chooser.fitting
    assert "winograd" in fitting["dense", (1.0,)]
    assert "winograd" not in fitting["dense", (np.inf,)]
    lost = fitting["depthwise", (1.0,)] - fitting["depthwise", (np.inf,)]
    assert lost & {"sliding", "planar"}
