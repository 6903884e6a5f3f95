"""Tuning a model from the outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from whet.api.arguments import thread_count
from whet.api.budget import parse_budget
from whet.api.compiler import compile
from whet.api.engine import tuned_target
from whet.api.engines import default_engine
from whet.api.programs import Note
from whet.api.storage import load
from whet.build.backend import backend_of
from whet.core.errors import UsageError, check
from whet.joint.tuning import tune_graphs
from whet.ops.base import Numeric
from whet.runtime.artifact import is_artifact
from whet.tune.policies import find_policy
from whet.tune.report import Report, Watch
from whet.tune.tuner import Budget


def tune_model(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    threads: int | None = None,
    budget: float | str = "1m",
    *,
    trials: int | None = None,
    target: str | None = None,
    numerics: str = "real",
    precision: str | None = None,
    policy: str = "default",
    cost_model: str | None = None,
    note: Note | None = None,
    watch: Watch | None = None,
) -> list[Report]:
    """Searches for faster kernels of a model; every later `compile` uses what was found.

    `model`, `inputs`, `threads`, `target`, `numerics` and `precision` are those of `compile`, and
    `model` may also be the path of an artifact, which has its own.  The search ends after `budget`
    or so many `trials`, whichever comes first; what it finds is kept at once, so it may be stopped
    at any time.  `policy` names how candidates are chosen, and `cost_model` the learner of a policy
    that learns.  `watch` is told how it is going after each round.  The result says of every task
    what was gained.
    """
    check(trials is None or (type(trials) is int and trials > 0), "WH1002",
          f"'trials' must be a positive number, got {trials!r}", kind=UsageError)  # fmt: skip
    limit, count = Budget(parse_budget(budget), trials), thread_count(threads)
    chosen = find_policy(policy, cost_model)
    if isinstance(model, (str, os.PathLike)) and is_artifact(model):
        compiled = load(model, threads, target, note=note)
    else:
        compiled = compile(model, inputs, threads, target=target, numerics=numerics,
                           precision=precision, note=note)  # fmt: skip
    found = tuned_target(default_engine(note, compiled.target, compiled.precision))
    kind: Numeric = "exact" if compiled.numerics == "exact" else "real"
    used = backend_of(found).used_threads(count)
    return tune_graphs([compiled.graph], found, used, limit, numerics=kind, watch=watch,
                       policy=chosen)  # fmt: skip
