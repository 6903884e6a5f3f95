"""OutliersError in an image: where Winograd spreads them, and what keeps them in their place."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import whet
from tests.build.guard_pages import GuardedMemory
from tests.schedule.windows import Windows, native
from tests.special.engines import on_every_target
from tests.targets import HOST
from whet.api.guarded import MESSAGE
from whet.build.native import NO_CACHE, NativeExecutable, build
from whet.core.cpu import CpuTarget
from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.export import export_model
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ops.activation import Relu
from whet.ops.base import Numeric
from whet.ops.conv import Conv
from whet.ops.host import NonZero
from whet.runtime.executable import OutliersError
from whet.schedule.families.winograd.lower import lower_winograd
from whet.schedule.families.winograd.match import WinogradTiling, find_winograd
from whet.schedule.families.winograd.outliers import LIMIT

SHAPE = (1, 16, 14, 15)
NAN, INF = np.nan, np.inf
OUTLIERS = [NAN, -NAN, INF, -INF, 1e30, LIMIT, -LIMIT]


def layered() -> Graph:
    """Two convolutions that are transformed, with a function between."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", TensorType(SHAPE, f32))
    value = x
    for channels in (20, 24):
        w = rng.standard_normal((channels, value.tensor_type.shape[1], 3, 3)) / 12
        value = b.one(Conv((1, 1), (1,) * 4, (1, 1)), value, b.constant(w.astype(np.float32)))
        value = b.one(Relu(), value)
    return Graph((x,), (value,), ("y",))


def image(seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def with_outlier(value: float, at: tuple[int, ...] = (0, 3, 5, 6)) -> Array:
    x = image()
    x[at] = value
    return x


def expected(graph: Graph, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(interpret(graph, (x,))[0])


def near(got: Array, want: Array) -> None:
    """Equal in class, and near by the largest number that the window of an output may see."""
    huge = np.abs(np.where(np.isfinite(want), want, 0)).max() > 1e20
    seen = np.abs(want) > 1e20 if huge else np.zeros(want.shape, bool)
    np.testing.assert_allclose(got[~seen], want[~seen], rtol=1e-4, atol=1e-4)
    # Where large numbers cancel, what is left has the error of the large ones.
    cancelled = 1e-7 * np.abs(np.where(np.isfinite(want), want, 0)).max()
    np.testing.assert_allclose(got[seen], want[seen], rtol=1e-4, atol=cancelled)


# -------------------------------------------------------------------------------- native code
@on_every_target
def test_real_numerics_spread_and_exact_ones_do_not(target: CpuTarget) -> None:
    graph = layered()

    def run(numerics: Numeric, x: Array) -> Array:
        return build(graph, target, 1, NO_CACHE, numerics=numerics)([x])[0]

    for value in (NAN, 1e30):
        x = with_outlier(value)
        want = expected(graph, x)
        near(run("exact", x), want)
        with pytest.raises(AssertionError):
            near(run("real", x), want)


def guarded(target: CpuTarget, threads: int = 1) -> NativeExecutable:
    return build(layered(), target, threads, NO_CACHE, numerics="guarded")


@on_every_target
def test_guarded_kernels_tell_of_outliers_wherever_they_are(target: CpuTarget) -> None:
    run = guarded(target)
    plain = build(layered(), target, 1, NO_CACHE)
    np.testing.assert_array_equal(run([image()])[0], plain([image()])[0])
    rng = np.random.default_rng(2)
    corners = [(0, c, h, w) for c in (0, 15) for h in (0, 13) for w in (0, 14)]
    inside = [tuple(int(rng.integers(d)) for d in SHAPE) for _ in range(6)]
    for number, at in enumerate([*corners, *inside] * 2):
        with pytest.raises(OutliersError):
            run([with_outlier(OUTLIERS[number % len(OUTLIERS)], at)])
    np.testing.assert_array_equal(run([image()])[0], plain([image()])[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_large_numbers_that_are_no_outliers_pass(threads: int) -> None:
    run = guarded(HOST, threads)
    x = np.full(SHAPE, LIMIT / 7, np.float32) * np.sign(image())
    want = expected(layered(), x)
    np.testing.assert_allclose(run([x])[0], want, atol=1e-4 * np.abs(want).max())


@on_every_target
@pytest.mark.parametrize(
    ("case", "block"),
    [
        (Windows((9, 11), 5, 16), 0),
        (Windows((9, 11), 5, 16), 2),
        (Windows((13, 13), 16, 16, dilation=3, pad=3), 0),
        (Windows((20,), 12, 16, kernel=3), 3),
        (Windows((4, 9, 9), 8, 16), 0),
        (Windows((10, 10), 16, 32, groups=2), 0),
    ],
    ids=["phases", "blocks", "dilated", "1-D", "3-D", "groups"],
)
def test_every_pixel_is_watched(case: Windows, block: int, target: CpuTarget) -> None:
    w = find_winograd(dataclasses.replace(case.task, guarded=True))
    assert w is not None
    kernel = lower_winograd(w, WinogradTiling(2, 2, 1, 4, block), "k")
    assert kernel.alarm is not None
    library = native(kernel, target)

    def alarm() -> int:
        bound = case.bind(kernel, library, GuardedMemory(at_end=True))
        table, _ = bound.keep
        table[-1][...] = 0
        bound.call()
        return int(table[-1][0])

    assert alarm() == 0
    pixels = case.arrays[case.x]
    places = np.random.default_rng(0).choice(pixels.size, 40, replace=False)
    for number in (0, pixels.size - 1, *map(int, places)):
        old = pixels.reshape(-1)[number]
        pixels.reshape(-1)[number] = NAN if number % 2 else -LIMIT
        assert alarm() == 1, np.unravel_index(number, pixels.shape)
        pixels.reshape(-1)[number] = old
    assert alarm() == 0


# ------------------------------------------------------------------------------------- models
@pytest.fixture
def notes() -> list[str]:
    return []


def compiled(notes: list[str], threads: int = 1) -> whet.CompiledModel:
    return whet.compile(layered(), threads=threads, numerics="guarded", note=notes.append)


@pytest.mark.parametrize("value", OUTLIERS)
def test_a_call_with_outliers_is_answered_by_exact_kernels(value: float, notes: list[str]) -> None:
    model = compiled(notes)
    graph = layered()
    assert "not needed so far" in model.describe()[-1]
    near(model(image()), expected(graph, image()))
    assert not notes
    near(model(with_outlier(value)), expected(graph, with_outlier(value)))
    near(model(with_outlier(value)), expected(graph, with_outlier(value)))
    assert notes == [MESSAGE]
    assert "in use" in model.describe()[-1]
    near(model(image()), expected(graph, image()))


def test_outliers_that_come_up_inside_are_found(notes: list[str]) -> None:
    """The first convolution makes them of numbers that pass."""
    model, x = compiled(notes), np.full(SHAPE, LIMIT / 8, np.float32)
    want = expected(layered(), x)
    near(model(x), want)
    assert notes == [MESSAGE]


def test_results_in_arrays_of_the_caller(notes: list[str]) -> None:
    model, graph = compiled(notes), layered()
    x = with_outlier(NAN)
    out = np.empty(graph.outputs[0].tensor_type.shape, np.float32)
    assert model(x, out=out) is out
    near(out, expected(graph, x))
    kept = x.copy()
    strided = np.empty((*out.shape, 2), np.float32)[..., 0]
    model(x, out=strided)
    near(strided, expected(graph, x))
    np.testing.assert_array_equal(x, kept)


def test_calls_from_several_threads(notes: list[str]) -> None:
    model, graph = compiled(notes, threads=2), layered()
    cases = [(x, expected(graph, x)) for x in (image(), with_outlier(INF), image(7))]

    def call(number: int) -> None:
        x, want = cases[number % len(cases)]
        near(model(x), want)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(60)))
    assert notes == [MESSAGE]


def test_an_artifact_keeps_the_guard(tmp_path: Path, notes: list[str]) -> None:
    compiled(notes).save(tmp_path / "model.whet")
    model = whet.load(tmp_path / "model.whet", 1, note=notes.append)
    assert model.numerics == "guarded"
    near(model(with_outlier(NAN)), expected(layered(), with_outlier(NAN)))
    assert notes == [MESSAGE]


def test_the_file_of_a_model_is_not_needed_again(tmp_path: Path, notes: list[str]) -> None:
    graph, path = layered(), tmp_path / "model.onnx"
    onnx.save(export_model(graph), path)
    stored = tmp_path / "model.whet"
    from_file = whet.compile(path, threads=1, numerics="guarded", note=notes.append)
    from_file.save(stored)
    from_artifact = whet.load(stored, 1, note=notes.append)
    path.unlink()
    stored.unlink()
    for model in (from_file, from_artifact):
        near(model(with_outlier(NAN)), expected(graph, with_outlier(NAN)))
    assert notes == [MESSAGE] * 2


def test_outliers_in_a_loop_are_found(notes: list[str]) -> None:
    """A loop around a convolution, as often as the caller says."""
    w = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
    state = helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, SHAPE)
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["go_on"]),
            helper.make_node("Conv", ["s", "w"], ["t"], pads=[1] * 4),
        ],
        "body",
        [
            helper.make_tensor_value_info("n", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("going", onnx.TensorProto.BOOL, []),
            state,
        ],
        [
            helper.make_tensor_value_info("go_on", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, SHAPE),
        ],
        [numpy_helper.from_array(w, "w")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["times", "", "s"], ["y"], body=body)],
        "model",
        [helper.make_tensor_value_info("times", onnx.TensorProto.INT64, []), state],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, SHAPE)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    guarded, exact = (
        whet.compile(model, threads=1, numerics=n, note=notes.append) for n in ("guarded", "exact")
    )
    for times in (1, 3):
        for x in (image(), with_outlier(NAN)):
            near(guarded(np.array(times), x), exact(np.array(times), x))
    assert notes == [MESSAGE]


def test_parts_of_a_model_that_are_not_native(notes: list[str]) -> None:
    """Positions of what is not zero come from the host between two native parts."""
    graph = layered()
    b = GraphBuilder()
    found = b.one(NonZero(), graph.outputs[0])
    model = whet.compile(
        Graph(graph.inputs, (found,), ("places",)), threads=1, numerics="guarded",
        note=notes.append,
    )  # fmt: skip
    for x in (image(), with_outlier(NAN)):
        want = np.stack(np.nonzero(expected(graph, x)))
        np.testing.assert_array_equal(model(x), want)
    assert MESSAGE in notes


def test_models_without_such_kernels_have_no_guard(notes: list[str]) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((3, 5), f32))
    graph = Graph((x,), (b.one(Relu(), x),), ("y",))
    model = whet.compile(graph, numerics="guarded", note=notes.append)
    got = model(np.full((3, 5), NAN, np.float32))
    assert np.isnan(got).all()
    assert not notes
