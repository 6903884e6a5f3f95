"""Example inputs that lie on a GPU: models are read for copies of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

import whet
from tests.build.cuda.foreign import WithCapsule, WithInterface, WithTable, on_device
from tests.build.cuda.recorded_driver import RecordedDriver
from tests.build.cuda.segments import normal
from whet.api.arguments import examples_here
from whet.build.cpu.backend import CpuBackend
from whet.build.cuda.foreign_arrays import adopted
from whet.codegen.cuda import bindings
from whet.core.cpu import detect
from whet.core.errors import UsageError
from whet.core.gpu import PRESETS


@pytest.mark.parametrize("library", [WithInterface, WithCapsule, WithTable, lambda view: view])
def test_examples_on_the_gpu_are_copied(
    library: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, x = RecordedDriver(), normal(2, 3)
    monkeypatch.setattr(bindings, "cuda_driver", lambda: driver)
    given = {"x": library(on_device(driver, x)), "y": x, "z": (3, 4)}
    found = examples_here(given, PRESETS["cuda-sm_90a"])
    assert list(found) == ["x", "y", "z"]
    assert type(found["x"]) is np.ndarray
    np.testing.assert_array_equal(found["x"], x)
    assert (found["y"] is x, found["z"]) == (True, (3, 4))


def test_examples_on_a_gpu_that_the_target_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    value = WithCapsule(on_device(RecordedDriver(), normal(2, 3)))

    def nothing() -> RecordedDriver:
        raise UsageError("WH1010", "there is no NVIDIA GPU here")

    monkeypatch.setattr(bindings, "cuda_driver", nothing)
    for target in (None, detect(), PRESETS["cuda-sm_90a"]):
        with pytest.raises(UsageError, match=r"WH3003 input 'x' lies on a device") as caught:
            examples_here({"x": value}, target)
        assert caught.value.hint == "copy it to the CPU first"


def test_compile_takes_copies_of_examples_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose shapes depend on a value that the processor cannot read where it lies."""
    driver = RecordedDriver()
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        "g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }"
    )
    shape = WithCapsule(on_device(driver, np.array([3, 2])))
    adopt = lambda self, values, names: adopted(values, names, driver)
    monkeypatch.setattr(CpuBackend, "adopt", adopt)
    f = whet.compile(model, {"s": shape}, note=lambda message: None)
    assert f.outputs[0].shape == (3, 2)
