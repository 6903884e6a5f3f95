"""A sample of ONNX's own node tests; `make conformance` runs all of them."""

from __future__ import annotations

import zlib
from collections import Counter

from tools.conformance import node_cases, run_case

SHARE = 4
"""One test in this many, chosen by name so that the sample is always the same."""
FLOOR = 440


def test_a_sample_of_the_node_tests():
    counts: Counter[str] = Counter()
    problems = []
    for case in node_cases():
        if zlib.crc32(case.name.encode()) % SHARE == 0:
            status, detail = run_case(case)
            counts[status] += 1
            if status not in ("pass", "unsupported", "deliberate"):
                problems.append(f"{status} {case.name}: {detail}")
    assert not problems
    assert counts["pass"] >= FLOOR, counts
