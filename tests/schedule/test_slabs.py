"""The slab sketch: a contraction that converts slab by slab means the task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from tests.schedule.small_tasks import arrays_for, check_native, make_task
from tests.schedule.test_family_nests import shape_of
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.types import Shape
from whet.ir.expr import call
from whet.ir.program import SCRATCH_LIMIT_BYTES
from whet.ir.tensor import Compute, compute, placeholder, reduce_axis, sum_
from whet.ops.conv import Conv
from whet.schedule.default import default_choice
from whet.schedule.families.contraction.match import Tiling
from whet.schedule.families.slabs.lower import lower_slabs
from whet.schedule.families.slabs.match import find_slabs
from whet.schedule.families.slabs.nests import slab_nests
from whet.schedule.families.slabs.price import slab_costs, slab_holes
from whet.schedule.space.statements import program_nests
from whet.tasks.expressions import inline_stages, nothing
from whet.tasks.task import Task


def convolution(
    images: int, groups: int, members: int, results: int, size: Shape, window: Shape,
    stride: int = 1, dilation: int = 1, pads: Sequence[int] | None = None,
) -> Task:  # fmt: skip
    """relu(conv(x, w) + bias), all in rows."""
    rank = len(size)
    x = placeholder((images, groups * members, *size), f32, "x0")
    w = placeholder((groups * results, members, *window), f32, "x1")
    bias = placeholder((groups * results,), f32, "x2")
    op = Conv((stride,) * rank, tuple(pads or (0,) * 2 * rank), (dilation,) * rank, groups)
    y = op.compute(x, w)
    z = compute(y.shape, lambda *i: call("max", y[i] + bias[i[1]], 0.0), "s0")
    (made,) = inline_stages([z], nothing)
    return make_task(made, constants=[w, bias])


@given(
    st.integers(2, 4),
    st.integers(1, 3),
    st.tuples(st.integers(4, 20), st.integers(4, 20)),
    st.lists(st.integers(5, 19), min_size=1, max_size=2),
    st.tuples(st.integers(2, 3), st.integers(1, 3)),
    st.tuples(*[st.integers(1, 2)] * 2),
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_any_tiling_means_the_task(
    images: int, groups: int, channels: Shape, size: list[int], window: Shape, steps: Shape,
    pads: list[int], seed: int,
) -> None:  # fmt: skip
    rank = len(size)
    task = convolution(
        images, groups, *channels, tuple(size), window[:rank], *steps, pads[: 2 * rank]
    )
    assume(min(task.outputs[0].shape) >= 1)
    s = find_slabs(task)
    assume(s is not None)  # results may be too few for a tile
    assert s is not None
    assert s.count == images * groups
    population = slab_holes(s, HOST, 2)
    row = np.random.default_rng(seed).integers(len(population["mr"]))
    holes = {hole: int(column[row]) for hole, column in population.items()}
    check_native(lower_slabs(s, Tiling(**holes), "k"), task, arrays_for(task, seed), HOST)
    costs = slab_costs(s, HOST, 2, population)
    assert np.isfinite(costs).all()
    assert (costs > 0).all()


def transposed(task: Task) -> Compute:
    """The task's stage with images and channels exchanged."""
    (stage,) = task.outputs
    order = (1, 0, 2, 3)
    return Compute("s0", tuple(stage.axes[n] for n in order), stage.body)


def test_what_slabs_are_not_for() -> None:
    fits = convolution(4, 1, 16, 16, (9, 9), (3, 3))
    assert find_slabs(fits) is not None
    assert find_slabs(convolution(1, 1, 16, 16, (9, 9), (3, 3))) is None  # nothing to share out
    assert find_slabs(convolution(4, 16, 1, 1, (9, 9), (3, 3))) is None  # no channels to turn
    assert find_slabs(convolution(4, 1, 16, 2, (9, 9), (3, 3))) is None
    assert find_slabs(make_task(transposed(fits), constants=fits.inputs[1:])) is None
    assert find_slabs(make_task(*fits.outputs)) is None  # weights must be constant


@pytest.mark.parametrize(("side", "expected"), [(40, True), (200, False)])
def test_slabs_stay_in_the_cache(side: int, expected: bool) -> None:
    s = find_slabs(convolution(2, 1, 16, 16, (side, side), (3, 3)))
    assert (s is not None) == expected
    assert s is None or s.source.near.type.nbytes <= SCRATCH_LIMIT_BYTES


@pytest.mark.parametrize("preset", ["x86-64-v3", "x86-64-v4"])
def test_nests_are_those_of_programs(preset: str) -> None:
    rng, target = np.random.default_rng(0), PRESETS[preset]
    for task in (convolution(2, 1, 16, 20, (9, 11), (3, 3), 1, 1, (1, 0, 0, 2)),
                 convolution(3, 2, 8, 24, (17,), (5,), 2, 1, (2, 2))):  # fmt: skip
        s = find_slabs(task)
        assert s is not None
        population = slab_holes(s, target, 2)
        nests = slab_nests(s, target, 2, population)
        for row in rng.integers(0, len(population["mr"]), 12):
            holes = {hole: int(column[row]) for hole, column in population.items()}
            program = lower_slabs(s, Tiling(**holes), "k").program
            known = {shape_of(n, 0) for n in program_nests(program)}
            found = [shape_of(n, int(at)) for n in nests for at in np.flatnonzero(n.rows == row)]
            assert len(found) == 2
            assert set(found) <= known


def test_a_sum_of_weights_times_a_scalar_is_no_slab() -> None:
    """y[j] = sum(w[e, j] * x for e): the factor that is given has no axes."""
    w, x, e = placeholder((2, 4), f32, "w"), placeholder((), f32, "x"), reduce_axis(2, "e")
    y = compute((4,), lambda j: sum_(w[e, j] * x[()], e), "y")
    task = make_task(y, constants=[w])
    assert find_slabs(task) is None
    check_native(default_choice(task, HOST, 1).kernel("k"), task, arrays_for(task), HOST)
