"""Precisions, and targets that differ in them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from whet.core.cpu import PRESETS as CPUS
from whet.core.errors import UsageError, WhetError
from whet.core.gpu import PRESETS, gpu_from_fields
from whet.core.precision import PRECISIONS, STRICT, find_precision
from whet.ir.functions import tf32

GPU = PRESETS["cuda-sm_90a"]


def test_each_precision_is_a_target_of_its_own() -> None:
    made = [replace(GPU, precision=name) for name in PRECISIONS]
    assert len({t.key for t in made}) == len(PRECISIONS)
    for target in made:
        assert gpu_from_fields(json.loads(target.to_json())) == target
        assert str(target).endswith(target.precision)
    assert GPU.precision == STRICT


def test_cpus_know_nothing_of_it() -> None:
    assert all("precision" not in json.loads(target.to_json()) for target in CPUS.values())


def test_unknown_precisions_are_refused() -> None:
    fields = json.loads(GPU.to_json()) | {"precision": "fp8"}
    with pytest.raises(WhetError, match="an unknown precision 'fp8'") as error:
        gpu_from_fields(fields)
    assert error.value.code == "WH1003"
    with pytest.raises(UsageError, match="there is no precision 'fp8'") as error:
        find_precision("fp8")
    assert error.value.hint == "fp32, fp32x3, tf32, fp16, bf16"


def test_less_precision_has_more_tolerance() -> None:
    tolerances = [PRECISIONS[name].tolerance for name in ("fp32", "fp32x3", "tf32", "bf16")]
    assert tolerances == sorted(tolerances)


def test_rounding_to_tf32() -> None:
    unit = np.float32(2**-10)
    exact = np.array([0, -0.0, 1, 1 + unit, -3, 2.0**-130, np.inf, -np.inf], np.float32)
    assert tf32(exact).tobytes() == exact.tobytes()
    between = np.array([1 + unit / 2, -1 - unit / 2, 1 + unit * 0.49, np.nan], np.float32)
    np.testing.assert_array_equal(tf32(between), [1 + unit, -1 - unit, 1, np.nan])
    numbers = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert np.abs(tf32(numbers) / numbers - 1).max() <= unit / 2
