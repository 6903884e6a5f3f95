"""Fitted models in the database: LightGBM's own text under a header, checked by its digest.

    {"base": "analytic", "columns": "5f3a...", "digest": "9c0e...", "rows": "programs"}
    tree
    version=v4
    ...

No code is loaded, only numbers; a model of other features than today's is no model.
"""

from __future__ import annotations

import json
from functools import lru_cache

from whet.core.digest import digest_bytes, digest_text
from whet.core.errors import check
from whet.core.target import Target
from whet.db.store import Database
from whet.tune.features.program import column_names
from whet.tune.models.analytic import Analytic
from whet.tune.models.boosting import Ensemble
from whet.tune.models.samples import FEATURES
from whet.tune.models.trees import SummedTrees

KIND = "correction"


def keep_model(database: Database, target: Target, model: SummedTrees) -> None:
    """Keeps a model that corrects the analytic one, for the target."""
    check(isinstance(model.base, Analytic), "WH4102",
          "only a model on top of the analytic one can be kept")  # fmt: skip
    text = model.trees.text.encode()
    header = {
        "base": "analytic",
        "columns": _columns(),
        "digest": digest_bytes(text),
        "rows": model.rows,
    }
    first = json.dumps(header, sort_keys=True).encode()
    database.add_model(target, KIND, first + b"\n" + text)


def kept_model(database: Database, target: Target) -> SummedTrees | None:
    """The newest model that was kept for the target, unless features have changed since."""
    data = database.model(target, KIND)
    if data is None:
        return None
    first, _, text = data.partition(b"\n")
    try:
        header = json.loads(first)
        digest, columns, rows = header["digest"], header["columns"], header["rows"]
    except (ValueError, KeyError, TypeError):
        digest = columns = rows = None
    check(digest == digest_bytes(text), "WH4101", "the cost model in the database is damaged")
    if columns != _columns() or rows not in FEATURES:
        return None
    return SummedTrees(Ensemble(text.decode()), rows, Analytic())


@lru_cache(maxsize=1)
def _columns() -> str:
    return digest_text(*column_names())
