"""Fitted models in the database: LightGBM's own text under a header, checked by its digest.

    {"base": "analytic", "columns": "5f3a...", "digest": "9c0e...", "rows": "programs",
     "trials": 3120}
    tree
    version=v4
    ...

No code is loaded, only numbers; a model of other features than today's is no model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from whet.core.digest import digest_bytes, digest_text
from whet.core.errors import check
from whet.core.target import Target
from whet.db.store import Database
from whet.tune.features.program import column_names
from whet.tune.models.analytic import Analytic
from whet.tune.models.boosting import Ensemble
from whet.tune.models.protocol import Trials
from whet.tune.models.samples import FEATURES, FEWEST_TASKS
from whet.tune.models.trees import CorrectionLearner, SummedTrees, good_trials

KIND = "correction"
FEWEST_KEPT = 256
"""Trials from which on a model is worth keeping."""


def keep_model(database: Database, target: Target, model: SummedTrees, trials: int) -> None:
    """Keeps a model that corrects the analytic one and was taught by so many trials."""
    check(isinstance(model.base, Analytic), "WH4102",
          "only a model on top of the analytic one can be kept")  # fmt: skip
    text = model.trees.text.encode()
    header = {"base": "analytic", "columns": _columns(), "digest": digest_bytes(text),
              "rows": model.rows, "trials": trials}  # fmt: skip
    first = json.dumps(header, sort_keys=True).encode()
    database.add_model(target, KIND, first + b"\n" + text)


def kept_model(database: Database, target: Target) -> SummedTrees | None:
    """The newest model that was kept for the target, unless features have changed since."""
    found = _read(database, target)
    return None if found is None else found[0]


def keep_if_wiser(database: Database, target: Target, trials: Sequence[Trials]) -> bool:
    """Keeps what trials teach, if they are enough and more than taught the model that is there."""
    tasks = {t.batch.task.key for t in trials}
    good = good_trials(trials)
    if database.read_only or len(tasks) < FEWEST_TASKS or good < FEWEST_KEPT:
        return False
    found = _read(database, target)
    if found is not None and found[1] >= good:
        return False
    model = CorrectionLearner().fit(trials)
    if not isinstance(model, SummedTrees):
        return False
    keep_model(database, target, model, good)
    return True


def _read(database: Database, target: Target) -> tuple[SummedTrees, int] | None:
    """The newest model and how many trials taught it."""
    data = database.model(target, KIND)
    if data is None:
        return None
    first, _, text = data.partition(b"\n")
    try:
        header = json.loads(first)
        digest, columns, rows = header["digest"], header["columns"], header["rows"]
        trials = int(header["trials"])
    except (ValueError, KeyError, TypeError):
        digest, columns, rows, trials = None, None, None, 0
    check(digest == digest_bytes(text), "WH4101", "the cost model in the database is damaged")
    if columns != _columns() or rows not in FEATURES:
        return None
    return SummedTrees(Ensemble(text.decode()), rows, Analytic()), trials


@lru_cache(maxsize=1)
def _columns() -> str:
    return digest_text(*column_names())
