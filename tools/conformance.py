"""Run ONNX's own node tests through whet:  python tools/conformance.py [--native] [SUBSTRING ...]

With --native they run as native code, otherwise in the interpreter.
Prints one line per test that does not pass, then the counts.  Without arguments all tests run
and the exit status is 1 if fewer pass than the committed floor or any answer is wrong.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx import TensorProto
    from onnx.backend.test.loader import load_model_tests

from whet.api.engine import Engine, default_engine
from whet.core.errors import UnsupportedError, WhetError
from whet.frontend.onnx.external import ExternalData
from whet.frontend.onnx.tensors import read_tensor
from whet.integrate.onnx_backend import run_model

FLOOR = 1834
"""How many tests must pass."""

DELIBERATE = (
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)
"""Tests whose expected values no engine gives: these put the last position beside the last one,
where ONNX Runtime, PyTorch and whet keep corners on corners."""

BFLOAT16_RTOL = 2.0**-6
"""What ONNX's own runner allows for this type: two units in the last place."""

NATIVE_ROUNDING = {"float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Native code sums in another order, and stores halves between kernels."""

RANDOM = ("test_bernoulli", "test_training_dropout", "test_random")
"""Tests whose expected output is random: they pass if shapes and types agree."""


def node_cases(parts: Sequence[str] = ()) -> Iterator[Any]:
    """The node tests whose name contains one of the parts (all without parts)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    for case in cases:
        if not parts or any(part in case.name for part in parts):
            yield case


def run_case(case: Any, engine: Engine | None = None) -> tuple[str, str]:
    """('pass' | 'unsupported' | 'deliberate' | 'wrong' | 'error' | 'crash', what happened)"""
    try:
        for inputs, expected in case.data_sets:
            got = run_model(case.model, [_array(v) for v in inputs], engine=engine)
            for a, b in zip(got, map(_array, expected), strict=True):
                _compare(case, a, b, native=engine is not None)
    except UnsupportedError as error:
        return "unsupported", "; ".join(error.details) or error.message
    except WhetError as error:
        return "error", str(error).replace("\n", " | ")
    except AssertionError as error:
        status = "deliberate" if case.name in DELIBERATE else "wrong"
        return status, str(error).replace("\n", " ")[:200]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "crash", f"{type(error).__name__}: {error} @ {where.filename}:{where.lineno}"
    return "pass", ""


def _array(value: Any) -> Any:
    """Types that NumPy does not have come as protos."""
    return read_tensor(value, ExternalData(None)) if isinstance(value, TensorProto) else value


def _compare(case: Any, got: Any, expected: Any, *, native: bool = False) -> None:
    if isinstance(expected, (list, tuple)):
        assert isinstance(got, list), f"{type(got).__name__} for a sequence"
        assert len(got) == len(expected), f"{len(got)} items for {len(expected)}"
        for a, b in zip(got, expected):
            _compare(case, a, b, native=native)
        return
    if expected is None or got is None:
        assert got is expected, f"{got} for {expected}"
        return
    expected = np.asarray(expected)
    assert got.shape == expected.shape, f"shape {got.shape} for {expected.shape}"
    assert got.dtype == expected.dtype, f"{got.dtype} for {expected.dtype}"
    if case.name.startswith(RANDOM):
        return
    name = got.dtype.name
    rtol, atol = max(case.rtol, BFLOAT16_RTOL) if name == "bfloat16" else case.rtol, case.atol
    if got.dtype.kind in "fV":
        got, expected = got.astype("f8"), expected.astype("f8")
    if native and expected.size:
        # Sums in another order: an error relative to the largest number, not to each.
        largest = np.abs(expected)[np.isfinite(expected)].max(initial=0)
        atol = max(atol, NATIVE_ROUNDING.get(name, 0) * float(largest))
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


def main() -> int:
    counts: Counter[str] = Counter()
    parts = [a for a in sys.argv[1:] if a != "--native"]
    engine = default_engine() if "--native" in sys.argv else None
    for case in node_cases(parts):
        status, detail = run_case(case, engine)
        counts[status] += 1
        if status != "pass":
            print(f"{status:12s}{case.name}: {detail}"[:300])
    print(dict(counts))
    whole = not parts
    return int(whole and (counts["pass"] < FLOOR or counts["wrong"] > 0 or counts["crash"] > 0))


if __name__ == "__main__":
    sys.exit(main())
