"""NaN and infinities among the inputs of every operator: both engines agree where they come out."""

from __future__ import annotations

import contextlib
from typing import Literal

import numpy as np
import pytest

from tests.special.engines import Both, assert_agree, both, graph_of
from tests.targets import HOST
from whet.core.dtypes import f64
from whet.core.errors import WhetError
from whet.core.types import Array, type_of
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.ops.arithmetic import Pow
from whet.ops.base import REGISTRY, Numeric, Sample
from whet.ops.roi import RoiAlign
from whet.ops.shared.elementwise import Elementwise

NAN, INF = np.nan, np.inf
NOT_PROMISED = {
    "batch_norm": "parameters that are infinite",
    "conv_transpose": "padding times weights that are no constants",
    "det": "infinite matrices",
    "dft": "infinities are spread by both engines, in their own ways",
    "max_roi_pool": "boxes that have no size",
    "roi_align": "boxes that have no size",
}
PLAIN = {"conv": (1,)}
"""Inputs that stay numbers: padding times weights that are no constants may be left out."""
NATIVE = [
    name
    for name, cls in sorted(REGISTRY.items())
    if not (cls.host or name in NOT_PROMISED or issubclass(cls, Elementwise)) and cls.deterministic
]
"""Those that are not element-wise, which have a test of their own."""


def with_special(array: Array, values: list[float], rng: np.random.Generator) -> Array:
    if array.dtype.kind != "f" or not array.size:
        return array
    changed = array.copy()
    places = rng.choice(array.size, max(1, array.size // 8), replace=False)
    changed.reshape(-1)[places] = np.array(values)[rng.integers(0, len(values), len(places))]
    return changed


def classes(array: Array) -> Array:
    """0 for numbers, 1 for NaN, 2 and 3 for infinities."""
    wide = array.astype(np.float64)
    return np.where(np.isnan(wide), 1, np.where(np.isinf(wide), 2 + np.signbit(wide), 0))


def check(sample: Sample, rng: np.random.Generator) -> None:
    graph = graph_of(sample.op, *sample.types)
    run = Both(graph, HOST)
    for values in ([NAN], [INF], [-INF], [NAN, INF, -INF, -0.0]):
        plain = PLAIN.get(sample.op.name, ())
        arrays = [
            a if n in plain else with_special(a, values, rng)
            for n, a in enumerate(sample.arrays(rng))
        ]
        for got, want in run(*arrays):
            what = f"{sample.op} on {', '.join(map(str, sample.types))} with {values}"
            if want.dtype.kind not in "fV":
                np.testing.assert_array_equal(got, want, what)
                continue
            np.testing.assert_array_equal(classes(got), classes(want), what)
            numbers = classes(want) == 0
            a, b = got[numbers].astype(np.float64), want[numbers].astype(np.float64)
            step = 1e-9 if want.dtype == f64.numpy else 1e-4 if want.dtype.kind == "f" else 0
            step = 5e-3 if want.dtype == np.float16 else step
            scale = max(1.0, float(np.abs(b).max(initial=0.0)))
            np.testing.assert_allclose(a, b, rtol=step, atol=step * scale, err_msg=what)


@pytest.mark.parametrize("name", NATIVE)
def test_engines_agree(name: str) -> None:
    cls = REGISTRY[name]
    rng = np.random.default_rng(sum(name.encode()))
    for sample in (*cls.samples(), cls.sample(rng)):
        check(sample, rng)


@pytest.mark.parametrize("name", sorted(NOT_PROMISED))
def test_what_is_not_promised_still_ends(name: str) -> None:
    """A result or an error of whet's own, in both engines."""
    cls = REGISTRY[name]
    rng = np.random.default_rng(1)
    for sample in cls.samples():
        run = Both(graph_of(sample.op, *sample.types), HOST)
        for values in ([NAN], [INF, -INF]):
            arrays = [with_special(a, values, rng) for a in sample.arrays(rng)]
            with contextlib.suppress(WhetError):  # a box that is too large, or of no image
                run(*arrays)


def power_graph(x: Array, exponent: float) -> Graph:
    b = GraphBuilder()
    base = b.input("x", type_of(x))
    power = b.one(Pow(), base, b.constant(np.array(exponent, x.dtype)))
    return Graph((base,), (power,), ("y",))


@pytest.mark.parametrize("numerics", ["real", "exact"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [0.5, 2.0, -1.0, 1.0, 3.0])
def test_known_powers(exponent: float, dtype: type, numerics: Numeric) -> None:
    """What becomes of a power whose exponent is a constant, signs of zeros included."""
    x = np.resize(np.array([NAN, INF, -INF, 0.0, -0.0, -8.0, 1e-45, 2.5], dtype), 61)
    graph = power_graph(x, exponent)
    ((_, want),) = Both(graph, HOST)(x)
    for form in (graph, optimize(graph, numerics=numerics)):
        ((got, _),) = Both(form, HOST, numerics)(x)
        np.testing.assert_allclose(got, want, rtol=1e-6)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("numerics", ["real", "exact"])
@pytest.mark.parametrize("exponent", [0.5, 2.0, -1.0])
def test_known_powers_are_rounded_correctly(exponent: float, numerics: Numeric) -> None:
    """As results in double precision are that are rounded once more, in both engines."""
    x = np.random.default_rng(0).uniform(0.1, 9.0, 4096).astype(np.float32)
    want = (x.astype(np.float64) ** exponent).astype(np.float32)
    assert np.array_equal(Pow().reference(x, np.full_like(x, exponent)), want)
    graph = power_graph(x, exponent)
    for form in (graph, optimize(graph, numerics=numerics)):
        for found in Both(form, HOST, numerics)(x)[0]:
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_points_outside_of_an_image_are_nothing(mode: Literal["avg", "max"], value: float) -> None:
    """Also where the nearest element of the image is no number."""
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    x[..., 5, :] = x[..., :, 0] = value
    boxes = np.array([[-9, 1, -3, 4], [1, 7, 4, 11], [-4, -4, 9, 9], [1, 1, 4, 4]], np.float32)
    arrays = [x, boxes, np.zeros(4, np.int64)]
    graph = graph_of(RoiAlign((2, 3), 2, mode=mode), *map(type_of, arrays))
    for got, want in both(graph, arrays, HOST):
        assert_agree(got, want, mode, relative=1e-5)
        assert not got[:2].any()
