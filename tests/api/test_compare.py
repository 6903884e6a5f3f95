"""How differences are measured."""

from __future__ import annotations

import numpy as np
import pytest

from whet.api.compare import Tolerance, compare


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_errors_are_measured() -> None:
    d = compare("y", f32(0, 10, 2.5), np.array([0.0, 10.0, 2.0]), Tolerance(0.1))
    assert (d.max_abs, d.max_rel, d.of_range) == (0.5, 0.25, 0.05)
    assert d.within
    assert not compare("y", f32(0, 10, 2.5), np.array([0.0, 10.0, 2.0]), Tolerance(0.01)).within


def test_a_constant_output_is_measured_by_its_size() -> None:
    assert compare("y", f32(2), f32(4), Tolerance()).of_range == 0.5
    assert compare("y", f32(1e-9), f32(0), Tolerance()).of_range == pytest.approx(1e-9)


def test_elementwise_tolerance() -> None:
    a, b = f32(1.0, 100.0), f32(1.0, 101.0)
    assert compare("y", a, b, Tolerance(rtol=0.01)).within
    assert not compare("y", a, b, Tolerance(atol=0.5)).within


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (f32(np.nan), f32(1)),
        (f32(1), f32(np.nan)),
        (f32(np.inf), f32(-np.inf)),
        (f32(1), f32(np.inf)),
        (f32(1, 2), f32(1)),
        (f32(1), np.array([1])),
    ],
)
def test_what_cannot_be_measured_is_never_within(got: np.ndarray, expected: np.ndarray) -> None:
    d = compare("y", got, expected, Tolerance(max_error=1e9))
    assert not d.within
    assert d.problem


def test_special_values_in_the_same_places_are_fine() -> None:
    values = f32(np.nan, np.inf, -np.inf, 1)
    assert compare("y", values, values.astype(np.float64), Tolerance()).within


def test_integers_must_be_equal() -> None:
    a, b = np.array([0, 10**9]), np.array([1, 10**9])
    d = compare("y", a, b, Tolerance())
    assert d.problem == "1 of 2 elements differ"
    assert not d.within
    assert compare("y", a, b, Tolerance(atol=1)).within
    assert compare("y", np.array([True]), np.array([True]), Tolerance()).within


def test_empty_arrays_are_equal() -> None:
    assert compare("y", np.zeros((0, 3)), np.zeros((0, 3)), Tolerance()).within
