"""The gates' report on a rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from whet.superopt.rules.rule import Rule

Outcome = Literal["proved", "refuted", "unproved", "alarm"]


@dataclass(frozen=True)
class Report:
    """The findings of the gates.

    `rule` is the rule as it stands now: with its certificate if it was proved, and with the
    guards that were added.  `gates` says what each gate answered; `proving` is the processor time
    that the prover took.
    """

    rule: Rule
    outcome: Outcome
    gates: tuple[tuple[str, str], ...]
    counterexample: str = ""
    hint: str = ""
    added_guards: tuple[str, ...] = ()
    proving: float = field(default=0.0, compare=False)
