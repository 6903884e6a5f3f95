"""ONNX's own node tests through whet, each in a process that may crash.

python tools/conformance.py                       in the interpreter
python tools/conformance.py --native              as native code for this machine
python tools/conformance.py --target x86-64-v2    as native code for a target that runs here
python tools/conformance.py SUBSTRING ...         only tests with such a name

Prints one line per test that does not pass, why tests are refused or run in the interpreter in
part, and the counts.  The exit status is 1 if fewer pass than the committed floor, or if an
answer is wrong, a process dies or hangs, or something unexpected is raised.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx import TensorProto
    from onnx.backend.test.loader import load_model_tests

from tools.isolated import Died, each_isolated
from whet.api.engine import Engine
from whet.api.engines import default_engine
from whet.core.errors import UnsupportedError, WhetError
from whet.frontend.onnx.external import ExternalData
from whet.frontend.onnx.tensors import read_tensor
from whet.graph.graph import Graph
from whet.integrate.onnx_backend import run_model
from whet.ops.base import Numeric
from whet.runtime.executable import Executable
from whet.runtime.schedules import StoredSchedule

FLOOR, NATIVE_FLOOR = 1834, 1830
"""How many tests must pass, in the interpreter and as native code."""

SECONDS = 120.0
"""A test that takes longer hangs."""

BAD = ("wrong", "error", "exception", "crash", "hang")
"""Ways for a test to end that are mistakes of whet."""

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
    """('pass' | 'refused' | 'deliberate' | 'wrong' | 'error' | 'exception', what happened)"""
    try:
        for inputs, expected in case.data_sets:
            got = run_model(case.model, [_array(v) for v in inputs], engine=engine)
            for a, b in zip(got, map(_array, expected), strict=True):
                _compare(case, a, b, native=engine is not None)
    except UnsupportedError as error:
        return "refused", "; ".join(error.details) or error.message
    except WhetError as error:
        return "error", str(error).replace("\n", " | ")
    except AssertionError as error:
        status = "deliberate" if case.name in DELIBERATE else "wrong"
        return status, str(error).replace("\n", " ")[:200]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "exception", f"{type(error).__name__}: {error} @ {where.filename}:{where.lineno}"
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


class Recording:
    """An engine that notes what it leaves to the interpreter."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.name = engine, engine.name
        self.left: set[str] = set()

    def prepare(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric = "real",
        stored: Sequence[StoredSchedule] = (),
    ) -> Executable:
        made = self.engine.prepare(graph, threads, numerics, stored)
        self.left.update(line for line in made.describe() if line.startswith("not native: "))
        return made


def run_in_child(case: Any, target: str | None) -> dict[str, Any]:
    """The outcome of a test, with what ran outside native code, as JSON."""
    engine = Recording(default_engine(target=target)) if target else None
    status, detail = run_case(case, engine)
    left = sorted({line.split("): ", 1)[-1] for line in engine.left}) if engine else []
    return {"status": status, "detail": detail, "left": left}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--native", action="store_true", help="native code for this machine")
    parser.add_argument("--target", metavar="NAME", help="native code for a target by name")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("parts", nargs="*", metavar="SUBSTRING", help="tests to run")
    given = parser.parse_args()
    target = given.target or ("cpu" if given.native else None)
    cases = list(node_cases(given.parts))
    found = each_isolated(
        lambda case: run_in_child(case, target), cases, processes=given.processes, seconds=SECONDS
    )
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    left: Counter[str] = Counter()
    for number, answer in found:
        if isinstance(answer, Died):
            answer = {**asdict(answer), "left": []}
        status, detail = answer["status"], answer["detail"]
        outcomes[status][detail] += 1
        left.update(answer["left"])
        if status != "pass":
            print(f"{status:12s}{cases[number].name}: {detail}"[:300], flush=True)
    counts = {status: by_reason.total() for status, by_reason in outcomes.items()}
    show("refused", outcomes["refused"])
    show("in part in the interpreter", left)
    print(f"{target or 'interpreter'}: {counts.get('pass', 0)} of {len(cases)} pass, {counts}")
    floor = NATIVE_FLOOR if target else FLOOR
    good = counts.get("pass", 0) >= floor or bool(given.parts)
    return int(not good or any(counts.get(status) for status in BAD))


def show(title: str, reasons: Counter[str]) -> None:
    """How often each reason was given."""
    if reasons:
        print(f"\n{title}:")
        for reason, count in reasons.most_common():
            print(f"{count:6d}  {reason}"[:200])


if __name__ == "__main__":
    sys.exit(main())
