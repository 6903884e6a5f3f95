"""Real models, as their packages ship them, match ONNX Runtime.

`make setup` installs the packages (without what they depend on) for their model files alone.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.frontend.small_models import call
from whet.core.types import Array
from whet.frontend.onnx import import_model

onnxruntime = pytest.importorskip("onnxruntime")

TOLERANCE = 1e-4
"""Largest error, as a part of the range of an output."""


def shipped(package: str, *parts: str) -> Path:
    """A file inside an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)), *parts)


def assert_matches(path: Path, **inputs: Array) -> None:
    """The model's results equal those of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    imported = import_model(path, inputs)
    for got, wanted in zip(call(imported, **inputs), expected, strict=True):
        assert got.shape == wanted.shape
        assert got.dtype == wanted.dtype
        error = np.abs(got - wanted).max() / np.ptp(wanted)
        assert error <= TOLERANCE


def image(*shape: int) -> Array:
    return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("ch_PP-OCRv4_det_infer.onnx", (1, 3, 160, 224)),
        ("ch_PP-OCRv4_rec_infer.onnx", (2, 3, 48, 128)),
        ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
    ],
)
def test_text_recognition(name, shape):
    assert_matches(shipped("rapidocr_onnxruntime", "models", name), x=image(*shape))


def speech(rate: int = 16000) -> dict[str, Array]:
    """Eight clips, from silent to loud: the output is one probability per clip."""
    rng = np.random.default_rng(2)
    loudness = np.linspace(0, 1, 8)[:, None]
    samples = rng.uniform(-1, 1, (8, 576 * rate // 16000)) * loudness
    return {
        "input": samples.astype(np.float32),
        "state": rng.normal(size=(2, 8, 128)).astype(np.float32),
        "sr": np.array(rate),
    }


@pytest.mark.parametrize(
    "name", ["silero_vad_16k_op15.onnx", "silero_vad_op18_ifless.onnx", "silero_vad.onnx"]
)
def test_speech_detection(name):
    assert_matches(shipped("silero_vad", "data", name), **speech())


def test_the_sampling_rate_selects_the_network_inside_a_speech_model():
    path = shipped("silero_vad", "data", "silero_vad.onnx")
    assert_matches(path, **speech(8000))
