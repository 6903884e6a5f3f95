"""JSON from files that may be damaged or hostile."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from whet.runtime.damage import refuse, require


def parse_json_object(data: bytes | memoryview, what: str) -> dict[str, Any]:
    """The object that the bytes spell: UTF-8, no duplicate keys, no NaN; else `WH3001`."""
    try:
        value = json.loads(
            str(bytes(data), "utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        # ValueError covers malformed text, bad UTF-8, duplicates and absurdly long integers.
        refuse(f"{what} cannot be read as JSON")
    require(isinstance(value, dict), f"{what} is not an object")
    found: dict[str, Any] = value
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)
