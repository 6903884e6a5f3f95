"""A sample of ONNX's own node tests; `make conformance` runs all of them."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tools.conformance import Recording, node_cases, run_case
from whet.api.engines import default_engine

SHARE, FLOOR = 4, 440
"""One test in so many is run, and so many of them pass."""
WHOLE = 390
"""How many of them leave nothing to the interpreter."""

Outcome = tuple[str, str]
"""The status of a test and what happened."""


def sample() -> Iterator[Any]:
    """Tests chosen by name, so that the sample is always the same."""
    return (case for case in node_cases() if zlib.crc32(case.name.encode()) % SHARE == 0)


def check_sample(run: Callable[[Any], Outcome]) -> None:
    counts: Counter[str] = Counter()
    problems = []
    for case in sample():
        status, detail = run(case)
        counts[status] += 1
        if status not in ("pass", "refused", "deliberate"):
            problems.append(f"{status} {case.name}: {detail}")
    assert not problems
    assert counts["pass"] >= FLOOR, counts


def test_the_interpreter() -> None:
    check_sample(run_case)


def test_native_code(configured: Callable[..., None]) -> None:
    configured(CACHE_ENABLED=0)
    whole = 0

    def run(case: Any) -> Outcome:
        nonlocal whole
        engine = Recording(default_engine())
        outcome = run_case(case, engine)
        whole += outcome[0] == "pass" and not engine.left
        return outcome

    check_sample(run)
    assert whole >= WHOLE
