"""Refusing files that are not what whet wrote."""

from __future__ import annotations

from typing import NoReturn

from whet.core.errors import ArtifactError, fail


def refuse(problem: str) -> NoReturn:
    """Raise the error of a damaged artifact."""
    fail("WH3001", problem, kind=ArtifactError)


def require(condition: bool, problem: str) -> None:
    """Refuse unless the condition holds."""
    if not condition:
        refuse(problem)
