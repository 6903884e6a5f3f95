"""Arguments of the Python interface, looked at before anything is done with them."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from whet.build.backend import backend_of
from whet.core.config import process_config
from whet.core.errors import UsageError, check, fail
from whet.core.processors import usable_cores
from whet.core.target import Target
from whet.runtime.arrays import as_numpy
from whet.runtime.pool import MAX_THREADS


def given_inputs(inputs: Any) -> Mapping[str, Any]:
    """Values or shapes given for the inputs, by name."""
    if inputs is None:
        return {}
    check(isinstance(inputs, Mapping), "WH2007",
          f"'inputs' must be a dictionary, got {type(inputs).__name__}",
          hint="inputs={'x': (1, 3, 224, 224)}, or an example array for each name",
          kind=UsageError)  # fmt: skip
    found: Mapping[str, Any] = inputs
    return found


def examples_here(given: Mapping[str, Any], target: Target | None) -> dict[str, Any]:
    """The given values with arrays of any library as NumPy arrays: those on the target's device as
    copies, the others as they lie."""
    found = dict(given)
    if target is not None:
        there = backend_of(target).adopt(list(given.values()), list(given))
        found |= {n: np.asarray(a) for n, a in zip(given, there) if a is not None}
    return {n: as_numpy(v, n) if hasattr(v, "__dlpack__") else v for n, v in found.items()}


def thread_count(threads: Any) -> int:
    """The number of threads to use: as asked, as configured, or one per core that this process
    may use."""
    if threads is None:
        threads = process_config().threads or min(usable_cores(), MAX_THREADS)
    try:
        count = operator.index(threads)
    except TypeError:
        fail("WH1002", f"'threads' must be a whole number, got {threads!r}", kind=UsageError)
    check(1 <= count <= MAX_THREADS and not isinstance(threads, bool), "WH1002",
          f"{threads} threads are not between 1 and {MAX_THREADS}", kind=UsageError)  # fmt: skip
    return count


def as_path(value: Any, purpose: str) -> Path:
    """The path of a file."""
    check(isinstance(value, (str, os.PathLike)), "WH3006" if purpose == "write" else "WH3001",
          f"the file to {purpose} must be given by its path, got {type(value).__name__}",
          kind=UsageError)  # fmt: skip
    text = os.fspath(value)
    check(isinstance(text, str) and "\0" not in text, "WH3001",
          f"{text!r} is not the name of a file", kind=UsageError)  # fmt: skip
    return Path(text)
