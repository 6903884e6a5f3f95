"""Whether a kernel's results are right."""

from __future__ import annotations

import numpy as np

from whet.core.types import Array

RELATIVE, ABSOLUTE = 1e-3, 2e-5
"""What rounding may change in single precision: by the element, and by the largest of all."""


def difference(got: Array, want: Array, *, exact: bool) -> str | None:
    """The difference between the results and what is expected; None if they agree."""
    if want.dtype.kind in "iub":
        apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
        wrong = got != want if exact or want.dtype.kind == "b" else apart > 1
    else:
        wrong = _wrong_floats(got, want, exact=exact)
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    at = tuple(int(n) for n in np.argwhere(wrong)[0])
    return (
        f"{count} of {want.size} elements are wrong, "
        f"the first at {list(at)}: {got[at]} instead of {want[at]}"
    )


def _wrong_floats(got: Array, want: Array, *, exact: bool) -> Array:
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if exact:
            return ~same
        step = _step(want)
        finite = np.isfinite(b)
        largest = float(np.abs(b[finite]).max(initial=0.0))
        near = np.abs(a - b) <= step * (RELATIVE * np.abs(b) + ABSOLUTE * largest)
        return ~(same | (near & finite))


def _step(array: Array) -> float:
    """The precision of the type by that of single precision."""
    if array.dtype in (np.float32, np.float64):
        return 1.0
    return {"float16": 16.0, "bfloat16": 64.0}.get(array.dtype.name, 512.0)
