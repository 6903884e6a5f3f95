"""Indices from data that lie outside their tensors: how calls end that met some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from whet.core.errors import OperatorError, fail


def refuse_outside(names: Sequence[str]) -> NoReturn:
    """`WH1302` for the kernels of these names."""
    fail("WH1302", f"{', '.join(names)}: an index that the model computes or is given is "
         "outside its tensor", kind=OperatorError)  # fmt: skip
