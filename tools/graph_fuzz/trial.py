"""One case from start to verdict."""

from __future__ import annotations

import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import whet
from tools.graph_fuzz.calls import OutsideError, SharedError, all_calls, results_of
from tools.graph_fuzz.case import Case, count_nodes, draw_variant
from tools.graph_fuzz.evaluate import Run, noisy_runs, reference_runs, rounded_run
from tools.graph_fuzz.judge import Expectation, Mismatch
from tools.graph_fuzz.memory import fenced_arenas
from tools.graph_fuzz.model import grow_model
from tools.graph_fuzz.peer import AVAILABLE, NoAnswer, peer_results
from tools.graph_fuzz.targets import compiling_for, public_name
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.errors import NoCodeError, ScheduleError, WhetError
from whet.core.types import Array
from whet.frontend.onnx import import_model
from whet.frontend.onnx.imported import ImportedModel

NOISY_RUNS = 3
MORE_RUNS = 24
"""Before a result is called wrong, so many more runs with more noise say what it may be."""
MANY_RUNS = 160
"""After these: among many numbers that are the same but for rounding, each place of an order has an
index at random, and it takes long until a certain one was there; and what is large where a few
roundings fall together (near the pole of a tangent) is rarely seen."""

Stage = Callable[[str], None]
FAILURES = ("wrong", "error", "outside", "shared", "peer", "crash", "hang")
"""Outcomes that must not be; `peer` is another opinion, which may be the peer's mistake."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    kind: str
    """ok, refused, invalid, or one of FAILURES."""
    detail: str = ""
    loose: float = 0.0
    """The share of elements of which the comparison says little."""
    excused: bool = False
    """Whether results were accepted only after a closer look at rounding."""
    fallbacks: tuple[str, ...] = ()
    """What did not become native code, and why."""
    refusals: tuple[str, ...] = ()
    """Nodes that the front end refused while the model grew."""
    peer: str = ""
    """agrees, differs, or why there is no answer."""
    target: str = ""
    style: str = ""
    nodes: int = 0
    operators: tuple[str, ...] = field(default=())

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES


def make_case(seed: int, index: int, target: str | None = None) -> tuple[Case, Outcome]:
    """The case of that number, and what is known of it before it runs."""
    grown = grow_model(seed, index)
    nodes = count_nodes(grown.model.graph)
    variant = draw_variant(seed, index, target, grown.style, nodes)
    case = Case(grown.model, grown.inputs, variant)
    known = Outcome(
        "ok",
        refusals=tuple(f"{op}: {plain_reason(reason)}" for op, reason in grown.refusals),
        target=variant.target,
        style=grown.style,
        nodes=nodes,
        operators=tuple(sorted({n.op_type for n in grown.model.graph.node})),
    )
    return case, known


def run_case(case: Case, stage: Stage = lambda name: None, *, peer: bool = True) -> Outcome:
    """Compiles and calls the model of a case and judges its results."""
    stage("import")
    try:
        imported = import_model(case.model, case.inputs)
        flat = imported.flatten([case.inputs[p.name] for p in imported.arguments])
    except WhetError as error:
        return Outcome("refused", _reason(error))
    except Exception as error:
        return _error(error)
    stage("reference")
    try:
        runs = reference_runs(imported, flat)
        runs += noisy_runs(imported, flat, NOISY_RUNS, seed=case.size)
        judge = _Judge(imported, flat, runs)
    except WhetError as error:
        return Outcome("invalid", _reason(error))
    except Exception as error:
        return _error(error)
    found = _run_native(case, judge, stage)
    if found.kind == "ok" and peer and AVAILABLE:
        stage("peer")
        found = _with_peer(case, judge, found)
    return replace(found, loose=judge.expected.loose(), excused=judge.excused)


class _Judge:
    """Compares results, and looks closer at rounding before it calls one wrong."""

    def __init__(self, imported: ImportedModel, flat: Sequence[Array], runs: list[Run]) -> None:
        self.imported, self.flat, self.runs = imported, flat, runs
        self.expected = Expectation.of(runs)
        self.excused = False
        self.looks = 0

    def mismatch(self, results: Sequence[Array], roughly: bool = False) -> Mismatch | None:
        found = self.expected.mismatch(results, roughly)
        while found is not None and found.size and self._look_closer():
            found = self.expected.mismatch(results, roughly)
            self.excused = found is None
        return found

    def _look_closer(self) -> bool:
        """Adds runs with more noise; False where these would say nothing new."""
        counts = (MORE_RUNS, MANY_RUNS)
        if self.looks >= len(counts):
            return False
        if not self.looks:
            self.runs.append(rounded_run(self.imported, self.flat))
        self.runs += noisy_runs(self.imported, self.flat, counts[self.looks], 1, amplitude=12.0,
                                everywhere=True)  # fmt: skip
        self.looks += 1
        self.expected = Expectation.of(self.runs)
        return True


def _run_native(case: Case, judge: _Judge, stage: Stage) -> Outcome:
    fallbacks: tuple[str, ...] = ()
    try:
        with fenced_arenas(pages=case.variant.pages) as arenas, _compiled(case, stage) as compiled:
            fallbacks = tuple(_fallbacks(compiled.describe()))
            arrays = [np.array(case.inputs[p.name]) for p in compiled.signature.arguments]
            for a in arrays:
                a.flags.writeable = False
            for way, results in all_calls(compiled, arrays, case.variant.layout,
                                          pages=case.variant.pages, stage=stage):  # fmt: skip
                mismatch = judge.mismatch(results)
                if mismatch is not None:
                    return Outcome("wrong", f"{way}: {mismatch}", fallbacks=fallbacks)
            if any(f.damage() for f in arenas):
                return Outcome("outside", "bytes outside of working memory have changed")
    except OutsideError as error:
        return Outcome("outside", str(error), fallbacks=fallbacks)
    except SharedError as error:
        return Outcome("shared", str(error), fallbacks=fallbacks)
    except (NoCodeError, ScheduleError) as error:  # the planner should have known
        return _error(error)
    except WhetError as error:
        return Outcome("refused", _reason(error), fallbacks=fallbacks)
    except Exception as error:
        return _error(error)
    return Outcome("ok", fallbacks=fallbacks)


def silent(message: str) -> None:
    """Messages to users are no part of what is compared."""


@contextmanager
def _compiled(case: Case, stage: Stage) -> Iterator[Any]:
    """The model compiled in the way of its variant."""
    v = case.variant
    with tempfile.TemporaryDirectory(prefix="whet-fuzz-") as folder:
        cache = FileCache(CacheConfig(enabled=v.way == "cached", dir=Path(folder) / "cache"))
        with compiling_for(v.target, cache, checked=v.checked):
            stage("compile")
            model = case.model.SerializeToString()

            def compiled() -> Any:
                return whet.compile(model, dict(case.inputs), v.threads, numerics=v.numerics,
                                    target=public_name(v.target), note=silent)  # fmt: skip

            made = compiled()
            if v.way == "cached":
                stage("compile again")
                results_of(made, [case.inputs[p.name] for p in made.signature.arguments])
                made = compiled()
            elif v.way == "artifact":
                stage("store and load")
                path = Path(folder) / "model.whet"
                try:
                    made.save(path)
                except WhetError as error:
                    if error.code != "WH3006":  # shapes depend on data: not for artifacts
                        raise
                else:
                    made = whet.load(path, v.threads, note=silent)
            yield made


def _fallbacks(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith("not native: "):
            found = re.search(r"\((\w+)\): (.*)$", line)
            yield f"{found[1]}: {plain_reason(found[2])}" if found else plain_reason(line)


def _with_peer(case: Case, judge: _Judge, found: Outcome) -> Outcome:
    try:
        results = peer_results(case)
    except NoAnswer as reason:
        return replace(found, peer=plain_reason(str(reason)))
    dtypes = [a.dtype.numpy for a in judge.expected.outputs]
    results = tuple(_in_bits(np.asarray(r), d) for r, d in zip(results, dtypes))
    mismatch = judge.mismatch(results, roughly=True)
    if mismatch is None:
        return replace(found, peer="agrees")
    return replace(found, kind="peer", detail=f"ONNX Runtime: {mismatch}", peer="differs")


def _in_bits(array: Array, dtype: Any) -> Array:
    """Types that NumPy does not have come as integers of their size."""
    is_raw = array.dtype != dtype and array.dtype.kind == "u" and dtype.kind == "V"
    return array.view(dtype) if is_raw and array.dtype.itemsize == dtype.itemsize else array


def _reason(error: WhetError) -> str:
    shown = "; ".join([error.message, *error.details])
    return f"{error.code} {plain_reason(shown)}"


def plain_reason(text: str) -> str:
    """A reason without names and numbers, so that equal ones can be counted."""
    text = re.sub(r"'[^']*'", "'...'", text.split("\n")[0])
    text = re.sub(r"\[[^\]]*\]", "[...]", text)
    return re.sub(r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?", "N", text)[:160]


def _error(error: Exception) -> Outcome:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
    return Outcome("error", f"{type(error).__name__}: {str(error)[:200]} ({where})")
