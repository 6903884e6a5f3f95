"""Time budgets as users write them."""

from __future__ import annotations

import math
import numbers
import re

from whet.core.errors import UsageError, fail

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_budget(budget: float | str) -> float:
    """Seconds, from a number or from text such as `30s`, `10m` or `1.5h`."""
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smh]?)\s*", budget)
        if found is None:
            fail("WH1002", f"'{budget}' is not a time budget",
                 hint="write seconds, or a number with s, m or h: 30s, 10m, 1h",
                 kind=UsageError)  # fmt: skip
        return float(found[1]) * _UNITS[found[2]]
    if isinstance(budget, bool) or not isinstance(budget, numbers.Real):
        fail("WH1002", f"'budget' must be seconds or a text such as '10m', got {budget!r}",
             hint="0 for no search", kind=UsageError)  # fmt: skip
    seconds = float(budget)
    if not (math.isfinite(seconds) and seconds >= 0):
        fail("WH1002", f"a budget of {seconds} seconds makes no sense", kind=UsageError)
    return seconds
