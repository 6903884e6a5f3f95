"""Failures that nobody foresaw, while a model is compiled: a report, and how to go on.

Such a failure is a bug.  It ends in the interpreter, which runs every graph, with a warning that
cannot be overlooked and a report file that shows where it happened; it never ends in silence.
"""

from __future__ import annotations

import base64
import json
import platform
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.digest import digest_array, digest_text
from whet.core.dtypes import dtype_of, parse_dtype
from whet.core.errors import InternalError, NoCodeError, ScheduleError, WhetError, WhetWarning
from whet.core.types import Array
from whet.core.version import VERSION
from whet.graph.graph import Graph
from whet.graph.text import parse_graph, print_graph, stored_arrays

T = TypeVar("T")

KEPT_REPORTS = 20
"""Reports that are kept; beyond it the oldest is removed."""
SMALL_BYTES = 4096
"""Arrays of this size are part of a report; larger ones, which are weights, are not."""


def is_unforeseen(error: Exception) -> bool:
    """Whether an error while a sound graph is compiled is a bug.

    A schedule that does not fit and an expression without code are dealt with where they are
    expected.
    """
    if isinstance(error, MemoryError) or process_config().strict:
        return False
    return not isinstance(error, WhetError) or isinstance(error, (NoCodeError, ScheduleError))


def describe_failure(error: Exception) -> str:
    """The error and its place in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f", {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}{place}"


def keep_report(error: Exception, graph: Graph | None, options: Mapping[str, Any]) -> Path | None:
    """Writes a report to the cache folder; its path, or None where nothing can be kept."""
    document = {
        "whet": VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "options": dict(options),
        "traceback": traceback.format_exception(error),
        **({} if graph is None else _described(graph)),
    }
    text = json.dumps(document, indent=1)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{digest_text(text)[:8]}.json"
    cache = FileCache(process_config().cache)
    return cache.keep("report", name, text.encode(), newest=KEPT_REPORTS)


def _described(graph: Graph) -> dict[str, Any]:
    """The text of a graph and its arrays, large ones replaced by random numbers."""
    text, arrays = print_graph(graph), {}
    for seed, (digest, array) in enumerate(stored_arrays(graph).items()):
        described = _describe_array(array, seed)
        name = digest_array(_array(described))
        text, arrays[name] = text.replace(digest, name), described
    return {"graph": text, "arrays": arrays}


def _describe_array(array: Array, seed: int) -> dict[str, Any]:
    described = {"dtype": dtype_of(array).name, "shape": list(array.shape)}
    if array.nbytes <= SMALL_BYTES:
        return described | {"data": base64.b64encode(array.tobytes()).decode()}
    if dtype_of(array).is_float:
        return described | {"seed": seed}
    # Integers are often indices: others may lie outside of what they index.
    return described | {"seed": seed, "low": int(array.min()), "high": int(array.max())}


def _array(described: Mapping[str, Any]) -> Array:
    """The array that a report describes."""
    shape, dtype = tuple(described["shape"]), parse_dtype(described["dtype"]).numpy
    if "data" in described:
        return np.frombuffer(base64.b64decode(described["data"]), dtype).reshape(shape)
    rng = np.random.default_rng(described["seed"])
    if "low" not in described:
        return rng.standard_normal(shape, np.float32).astype(dtype)
    return rng.integers(described["low"], described["high"], shape, endpoint=True).astype(dtype)


def reported_graph(document: Mapping[str, Any]) -> Graph:
    """The graph of a report, to look for its failure again."""
    arrays = {name: _array(described) for name, described in document["arrays"].items()}
    return parse_graph(document["graph"], arrays)


def report_hint(report: Path | None) -> str:
    if report is None:
        return "no report could be written: set WHET_STRICT=1 to see where it comes from"
    return f"please report it, with {report} (weights are not in it)"


class Failure(NamedTuple):
    """A failure and the place of its report."""

    text: str
    hint: str

    def warning(self, what: str) -> str:
        """A line about it; `what` says what failed and what happens instead."""
        return f"whet failed to {what} ({self.text}); {self.hint}"


def attempt(do: Callable[[], T], graph: Graph, options: Mapping[str, Any]) -> T | Failure:
    """The result of the function; where it fails in a way that nobody foresaw, a report is kept."""
    try:
        return do()
    except Exception as error:
        if not is_unforeseen(error):
            raise
        report = keep_report(error, graph, options)
        return Failure(describe_failure(error), report_hint(report))


def internal_error(error: Exception, doing: str, options: Mapping[str, Any]) -> InternalError:
    """The error to raise where nothing else can run the model."""
    report = keep_report(error, None, options)
    return InternalError(
        "WH1007", f"whet failed while {doing}", details=(describe_failure(error),),
        hint=report_hint(report),
    )  # fmt: skip


def python_warning(message: str) -> None:
    """Shows a message where nobody takes notes."""
    warnings.warn(message, WhetWarning, stacklevel=2)
