"""Precisions: what numbers of single precision may be computed with, beside `numerics`.

`fp32` is what the model says.  Others allow less, where a kind of machine has something faster:
products of rounded factors, or half precision for all that lies in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.dtypes import DType, bf16, f16
from whet.core.errors import UsageError, fail


@dataclass(frozen=True)
class Precision:
    """One way to compute with numbers of single precision."""

    name: str
    meaning: str
    tolerance: float
    """The largest error of a network's results, as a part of their range, that is no surprise."""
    storage: DType | None = None
    """What numbers of single precision become, if that is another type."""


STRICT = "fp32"

PRECISIONS: dict[str, Precision] = {
    made.name: made
    for made in (
        Precision(STRICT, "single precision as the model says", 1e-4),
        Precision("fp32x3", "factors in two parts, three products by tensor cores", 1e-4),
        Precision("tf32", "factors of products rounded to 10 bits", 5e-3),
        Precision("fp16", "numbers in f16, sums in f32", 5e-3, f16),
        Precision("bf16", "numbers in bf16, sums in f32", 4e-2, bf16),
    )
}


def find_precision(name: str) -> Precision:
    """The precision of that name; `UsageError` if there is none."""
    if name not in PRECISIONS:
        fail("WH1002", f"there is no precision '{name}'", hint=", ".join(PRECISIONS),
             kind=UsageError)  # fmt: skip
    return PRECISIONS[name]
