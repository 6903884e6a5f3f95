"""Features of whole populations: against brute force, against single candidates, by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.schedule.small_tasks import TASKS, make_task, matmul_relu
from tests.schedule.windows import Windows
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.types import Array
from whet.ir.expr import call
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.program.primitives import naive_program
from whet.schedule.space.registry import SKETCHES
from whet.schedule.space.statements import Access, Statement, program_nests
from whet.tasks.task import Task
from whet.tune.features.ansor import COUNT, POSITIONS, add_statement, interpolate, reuse_of
from whet.tune.features.autotvm import curve_features, itervar_features, knob_features
from whet.tune.features.columns import Columns
from whet.tune.features.geometry import geometry_of
from whet.tune.features.machine import traffic
from whet.tune.features.program import column_names, features_of, statements_of, summary_of
from whet.tune.models.protocol import Batch

TARGET = PRESETS["x86-64-v3"]
LINE = 64


def batches(task: Task, threads: int = 2) -> list[Batch]:
    found = []
    for sketch in (s for s in SKETCHES.values() if s.machine == "cpu" and s.drafts_default):
        form = sketch.fits(task)
        if form is not None:
            holes = sketch.space(form, TARGET, threads)
            if len(next(iter(holes.values()))):
                found.append(Batch(task, sketch, form, TARGET, threads, holes))
    return found


def addresses(s: Statement, access: Access, row: int, level: int) -> Array:
    """Everything that an access touches within a level, by walking through its loops."""
    steps = [np.arange(n) * k for n, k in zip(s.loops[row, level:], access.strides[row, level:])]
    return np.array([sum(map(int, at)) for at in product(*steps)])


def cross(extents: Array, strides: Array) -> bool:
    """Whether loops may come to one element in several ways: some step is within the reach of
    smaller ones."""
    reach = 0
    for step, extent in sorted(zip(np.abs(strides).tolist(), extents.tolist())):
        if step and extent > 1:
            if step <= reach:
                return True
            reach += step * (extent - 1)
    return False


# ------------------------------------------------------------------------------------ footprints
@pytest.mark.parametrize("task", [matmul_relu(6, 32, 5), Windows((5, 6), 4, 16).task])
def test_footprints_are_what_is_touched(task: Task) -> None:
    rng, compared = np.random.default_rng(0), 0
    for batch in batches(task):
        for s in statements_of(batch):
            row = int(rng.integers(len(s.rows)))
            if s.loops[row].prod() > 40_000:
                continue
            g = geometry_of(s, LINE)
            for access in s.accesses:
                t = next(t for t in g.touched if np.array_equal(t.strides.T, access.strides)
                         and t.buffer_bytes[row] == access.buffer_bytes[row])  # fmt: skip
                for level in range(s.depth + 1):
                    touched = addresses(s, access, row, level)
                    elements = len(np.unique(touched))
                    lines = len(np.unique(touched * access.element_bytes // LINE))
                    most = access.buffer_bytes[row] / access.element_bytes
                    assert t.elements[level, row] >= min(elements, most) * 0.999
                    # Strides that cross each other make the closed form an upper bound: a window of
                    # 3 taps over 5 pixels touches 7, not 15.
                    crossing = cross(s.loops[row, level:], access.strides[row, level:])
                    assert t.elements[level, row] <= (2.5 * elements + 1 if crossing else elements)
                    assert t.lines[level, row] <= 2.0 * lines + 1
                    assert t.lines[level, row] >= 0.45 * min(lines, most * 4 / LINE)
                    compared += 1
    assert compared > 50


def test_a_product_by_hand() -> None:
    """y[i, j] += a[i, k] * b[k, j] with loops i 6, j 8, k 5."""
    _, s, _ = program_nests(naive_program(matmul_relu(6, 8, 5)))
    g = geometry_of(s, LINE)
    a, b = (t for t in g.touched if t.writes == 0)
    assert a.elements[:, 0].tolist() == [30, 5, 5, 1]
    assert b.elements[:, 0].tolist() == [40, 40, 5, 1]
    count, distance, far = reuse_of(a, g)
    assert (count[0], distance[0]) == (8, 5)  # along j, every 5 executions
    assert far[0] == (5 + 5 + 1) * 4  # a's row, b's column and one y
    count, distance, _ = reuse_of(b, g)
    assert (count[0], distance[0]) == (6, 40)


def test_traffic_of_a_small_cache() -> None:
    """With room for a row of a and all of b nothing is read twice; with less, b is."""
    _, s, _ = program_nests(naive_program(matmul_relu(64, 64, 64)))
    g = geometry_of(s, LINE)
    everything = float(sum(t.lines[0, 0] for t in g.touched)) * LINE
    large, _ = traffic(g, 1e6, LINE)
    small, held = traffic(g, 8 << 10, LINE)
    assert large[0] == pytest.approx(everything)
    assert held[0] == 64  # one dot product
    assert small[0] > 30 * large[0]


def test_interpolation() -> None:
    x, y = np.array([[8.0], [3.0], [3.0], [0.0]]), np.array([[10.0], [5.0], [4.0], [1.0]])
    values = [float(interpolate(x, y, np.array([at]))[0]) for at in (0.0, 1.5, 5.5, 8.0, 99.0)]
    assert values == pytest.approx([1.0, 2.5, 7.5, 10.0, 10.0])


# --------------------------------------------------------------------------------------- columns
def test_there_are_164_columns_of_a_statement() -> None:
    _, s, _ = program_nests(naive_program(matmul_relu(6, 8, 5)))
    to = Columns(1)
    add_statement(to, s, geometry_of(s, LINE), TARGET, 2, frozenset())
    assert len(to.names) == len(set(to.names)) == COUNT == 164
    values = dict(zip(to.names, to.matrix()[0]))
    assert values["float_mad"] == pytest.approx(np.log2(1 + 6 * 8 * 5))
    assert values["loops"] == 3
    assert values["vector at none"] == values["parallel at none"] == 1


def test_positions_of_annotations() -> None:
    task = matmul_relu(13, 40, 24)
    (batch,) = (b for b in batches(task) if b.sketch.name == "contraction")
    rows = features_of(batch)
    update = next(s for s in statements_of(batch) if s.name == "update")
    at = [rows.names.index(f"vector at {p}") for p in POSITIONS]
    first = rows.matrix[: len(update.rows)]
    assert first[:, at].sum(axis=1).tolist() == [1.0] * len(update.rows)
    assert (first[:, rows.names.index("vector at inner spatial")] == 1).all()


@pytest.mark.parametrize("name", sorted(TASKS))
def test_candidates_do_not_depend_on_their_neighbours(name: str) -> None:
    rng = np.random.default_rng(1)
    for batch in batches(TASKS[name](9, 20, 11)):
        rows = features_of(batch)
        assert rows.matrix.dtype == np.float32
        assert np.isfinite(rows.matrix).all()
        assert set(rows.owners) == set(range(len(batch)))
        assert rows.names == column_names()
        for describe in (summary_of, features_of):
            every = describe(batch)
            for one in rng.integers(0, len(batch), 3):
                alone = describe(batch.take(np.array([one])))
                own = every.matrix[every.owners == one]
                np.testing.assert_allclose(
                    np.sort(own, axis=0), np.sort(alone.matrix, axis=0), rtol=1e-4, atol=1e-4
                )


def test_statements_without_loops_have_features() -> None:
    """The sum of everything is factored into parts; the last statement joins few numbers."""
    x, i, j = placeholder((48, 64), f32, "x"), reduce_axis(48, "i"), reduce_axis(64, "j")
    task = make_task(compute((), lambda: call("sqrt", sum_(x[i, j] * x[i, j], i, j)), "y"))
    sketch = SKETCHES["derived"]
    form = sketch.fits(task)
    batch = Batch(task, sketch, form, TARGET, 2, sketch.space(form, TARGET, 2))
    assert any(s.loops.shape[1] == 0 for s in statements_of(batch))
    for describe in (summary_of, features_of):
        assert np.isfinite(describe(batch).matrix).all()


@pytest.mark.parametrize("describe", [knob_features, itervar_features, curve_features])
def test_rows_of_whole_candidates(describe: object) -> None:
    widths = set()
    for batch in batches(Windows((7, 7), 8, 16, epilogue=True).task):
        matrix = describe(batch)  # type: ignore[operator]
        assert len(matrix) == len(batch)
        assert np.isfinite(matrix).all()
        assert len(batch) < 4 or len(np.unique(matrix, axis=0)) > 1
        widths.add(matrix.shape[1])
    assert len(widths) == 1 or describe is knob_features
