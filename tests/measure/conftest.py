"""The sketch with faults, for the tests that ask for it and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.measure.planted import Planted, plant, uproot
from whet.schedule.space.registry import SKETCHES


@pytest.fixture
def planted_sketch() -> Iterator[None]:
    """The sketch is there during the test, and afterwards only if it was before."""
    before = Planted.name in SKETCHES
    plant()
    yield
    if not before:
        uproot()
