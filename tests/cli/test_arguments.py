"""What `--input` accepts and refuses."""

from __future__ import annotations

import re

import pytest

from whet.cli.arguments import parse_inputs
from whet.core.errors import UsageError


def test_shapes_and_values() -> None:
    found = parse_inputs(["image=1x3x8x8", "scale=scalar", "rate:=16000"])
    assert found["image"] == (1, 3, 8, 8)
    assert found["scale"] == ()
    assert found["rate"] == 16000
    assert parse_inputs(None) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["image"], "WH3007 'image' is not NAME=VALUE"),
        (["=1x3"], "WH3007 '=1x3' is not NAME=VALUE"),
        (["a=1x3", "a=1x4"], "WH3007 input 'a' is given twice"),
    ],
)
def test_mistakes_are_named(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_inputs(options)
