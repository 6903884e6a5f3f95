"""The moment at which a kernel lets the next one in: any value gives the same results."""

from __future__ import annotations

import pytest

from tests.targets import HOST
from whet.core.gpu import PRESETS
from whet.schedule.program.triggers import AT_END, AT_START, NEVER, other_triggers

TARGET = PRESETS["cuda-sm_90a"]


@pytest.mark.parametrize("value", [AT_START, AT_END, NEVER])
def test_the_other_values_are_all_that_changes(value: int) -> None:
    holes = {"bm": 64, "trigger": value}
    found = other_triggers(holes, TARGET)
    assert {h["trigger"] for h in found} | {value} == {AT_START, AT_END, NEVER}
    assert len(found) == 2
    assert all(h["bm"] == 64 and len(h) == 2 for h in found)


def test_there_are_none_where_nothing_is_launched_early() -> None:
    holes = {"bm": 64, "trigger": NEVER}
    assert not other_triggers(holes, PRESETS["cuda-sm_80"])
    assert not other_triggers(holes, HOST)
    assert not other_triggers({"bm": 64}, TARGET)
    assert not other_triggers({"bm": 64, "trigger": 77}, TARGET)
