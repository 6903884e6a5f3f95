"""Reports as files, so that an interrupted verification goes on where it was.

One file per group of forms, named by a digest of all that its report depends on: the claims, the
seed, the solver and the laws.  A file from another state of these is never read.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whet.core.digest import digest_text
from whet.superopt.rules.rule import Certificate, Rule, Variable
from whet.superopt.verify.axioms import digest, laws
from whet.superopt.verify.lemmas import LEMMAS
from whet.superopt.verify.report import Report
from whet.superopt.verify.solver import SOLVER


@functools.cache
def _state() -> str:
    """A digest of the laws and the solver."""
    known = {**laws(), **LEMMAS}
    return digest_text(SOLVER, *(digest(known[name]) for name in sorted(known)))


def path_of(folder: Path, forms: Sequence[Rule], seed: int) -> Path:
    """The place of the report on these forms."""
    marks = (f"{form.name} {form.core} {form.hash}" for form in forms)
    return folder / f"proof-{digest_text(_state(), str(seed), *marks)[:24]}.json"


def store(path: Path, report: Report) -> None:
    """Write the report; a half-written file never has the final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(dataclasses.asdict(report), indent=1) + "\n")
    partial.rename(path)


def load(path: Path) -> Report | None:
    """The report that is kept there, if there is one."""
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    return Report(
        _rule(found["rule"]),
        found["outcome"],
        tuple((gate, answer) for gate, answer in found["gates"]),
        found["counterexample"],
        found["hint"],
        tuple(found["added_guards"]),
        found["proving"],
    )


def _rule(found: dict[str, Any]) -> Rule:
    proof = found["certificate"]
    if proof is not None:
        lists = {k: tuple(v) for k, v in proof.items() if isinstance(v, list)}
        proof = Certificate(**{**proof, **lists})
    return Rule(
        found["name"],
        tuple(Variable(**v) for v in found["variables"]),
        tuple(found["lhs"]),
        tuple(found["rhs"]),
        tuple(found["when"]),
        found["numeric"],
        proof,
        found["core"],
    )
