"""The place of this user's database."""

from __future__ import annotations

from pathlib import Path

from whet.core.config import process_config
from whet.core.errors import RecordsError, fail
from whet.db.connection import ELSEWHERE


def records_path(given: Path | None = None) -> Path:
    """The given file, or the one that settings name."""
    path = given or process_config().db.path
    if path is None:
        fail("WH4102", "there is no home folder to keep tuning records in", hint=ELSEWHERE,
             kind=RecordsError)  # fmt: skip
    return path
