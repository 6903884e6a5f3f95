"""The engines of this process: native code where it can be generated, else the interpreter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from whet.api.engine import Engine
from whet.api.failures import Failure, attempt
from whet.api.interpreter import Interpreter
from whet.api.native import Native
from whet.api.programs import Note
from whet.build.backend import backend_of, find_target, named_target
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.cpu import HERE
from whet.core.errors import UsageError
from whet.core.memory import require_memory
from whet.core.precision import STRICT, find_precision
from whet.core.types import TensorType
from whet.graph.graph import Graph
from whet.runtime.executable import Executable


class _Process:
    """The findings of this process, by the names of the target and of the precision."""

    lock = threading.Lock()
    engines: ClassVar[dict[str, dict[str, Engine]]] = {}


def default_engine(
    note: Note | None = None, target: str | None = None, precision: str | None = None
) -> Engine:
    """The best engine for a target that this installation and this machine allow.

    The target is the one that settings name, else this machine, unless another is asked for, and
    so is the precision, else strict.  The first call on a machine measures it, unless settings
    forbid that, and tells `note`.
    """
    name, kind = target_name(target), precision_name(precision)
    with _Process.lock:
        known = _Process.engines.setdefault(name, {})
        if kind not in known:
            known[kind] = _best_engine(name, kind, note)
        return known[kind]


def target_name(asked: str | None, stored: str = HERE) -> str:
    """The name of the target to use: as asked for, as configured, or as stored."""
    return asked or process_config().target or stored


def precision_name(asked: str | None) -> str:
    """The name of the precision to use: as asked for or as configured; `UsageError` if there is
    none of that name."""
    return find_precision(asked or process_config().precision or STRICT).name


def _best_engine(name: str, precision: str, note: Note | None) -> Engine:
    config = process_config()
    cache = FileCache(config.cache)
    try:
        target = find_target(name, cache) if config.calibrate else named_target(name)
    except UsageError as error:
        if name != HERE:
            raise
        return Interpreter(error.message)  # a processor that code generation does not know
    backend = backend_of(target)
    target = backend.in_precision(target, precision)
    unavailable = backend.unavailable()
    if unavailable is not None:
        return Interpreter(unavailable)
    if config.calibrate:
        try:
            target = backend.calibrated(target, cache, note)
        except MemoryError:
            if note is not None:
                note("not enough memory to measure this machine: a typical one is assumed")
    return Native(target, cache, config.check_accesses)


def require_room(graph: Graph) -> None:
    """`WH1005` if no memory holds the graph's inputs and outputs."""
    known = [v.type for v in (*graph.inputs, *graph.outputs) if isinstance(v.type, TensorType)]
    require_memory(sum(t.nbytes for t in known), "the model's inputs and outputs")


def prepare_or_interpret(
    prepare: Callable[[], Executable], graph: Graph, options: Mapping[str, Any], warn: Note
) -> Executable:
    """The result of `prepare`, or the graph in the interpreter where whet itself fails.

    Slow is better than nothing, but never in silence: there is a warning and a report, and
    `describe` says so too.
    """
    require_room(graph)
    found = attempt(prepare, graph, options)
    if not isinstance(found, Failure):
        return found
    warn(found.warning("compile the model, which runs in the interpreter, slowly"))
    reason = f"because whet failed to compile them: {found.text}\n{found.hint}"
    return Interpreter(reason).prepare(graph, 1)
