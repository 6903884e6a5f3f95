"""Models as graphs whose rewrites are searched for, for the commands that show or store them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whet.api.compiler import read_model
from whet.api.engines import default_engine
from whet.cli.console import Reporter
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import UsageError, check, fail
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.ops.base import NUMERICS, Numeric
from whet.runtime.artifact import is_artifact

if TYPE_CHECKING:
    from whet.frontend.onnx.imported import ImportedModel


@dataclass(frozen=True, eq=False)
class Opened:
    """A model as it was imported, and its graph after all passes, as the search begins with it."""

    imported: ImportedModel
    graph: Graph
    numerics: Numeric


def open_graph(
    model: str, inputs: Mapping[str, Any], numerics: str | None, reporter: Reporter
) -> Opened:
    """The graph of an ONNX model."""
    chosen = numerics or "real"
    check(chosen in NUMERICS, "WH1002", f"there is no numerics '{chosen}'",
          hint=", ".join(NUMERICS), kind=UsageError)  # fmt: skip
    check(not is_artifact(model), "WH3007", f"'{model}' is an artifact, whose graph was rewritten",
          hint="give the ONNX model that it was compiled from", kind=UsageError)  # fmt: skip
    with reporter.working(f"reading {model}"):
        imported = read_model(model, inputs, reporter.note)
        graph = optimize(imported.graph, numerics=NUMERICS[chosen])
    return Opened(imported, graph, NUMERICS[chosen])


def searched_target(target: str | None, reporter: Reporter) -> tuple[Target, FileCache]:
    """The machine that rewrites are priced for, and where results of searches are kept."""
    engine = default_engine(reporter.note, target)
    found = engine.target
    if found is None:
        fail("WH3007", "rewrites are priced for native code, and there is none here",
             engine.reason, kind=UsageError)  # fmt: skip
    return found, FileCache(process_config().cache)
