"""A sample of ONNX's own node tests; `make conformance` runs all of them."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

from tools.conformance import node_cases, run_case
from whet.api.engines import default_engine


@pytest.mark.parametrize(
    ("native", "share", "floor"), [(False, 4, 440), (True, 8, 205)], ids=["interpreter", "native"]
)
def test_a_sample_of_the_node_tests(native: bool, share: int, floor: int) -> None:
    """One test in so many, chosen by name so that the sample is always the same."""
    counts: Counter[str] = Counter()
    problems = []
    for case in node_cases():
        if zlib.crc32(case.name.encode()) % share == 0:
            status, detail = run_case(case, default_engine() if native else None)
            counts[status] += 1
            if status not in ("pass", "refused", "deliberate"):
                problems.append(f"{status} {case.name}: {detail}")
    assert not problems
    assert counts["pass"] >= floor, counts
