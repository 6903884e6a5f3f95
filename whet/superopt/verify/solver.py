"""Z3 on one problem, in a context of its own.

What a solver does depends on the order in which its terms were made.  So that a proof depends on
the rule alone, not on what the same process proved before, the formulas are copied into a fresh
context, where they are all that there is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import z3

Key = TypeVar("Key", bound=Hashable)

SOLVER = f"z3 {z3.get_version_string()}"


@dataclass(frozen=True)
class Answer(Generic[Key]):
    """Assumptions that contradict the rest, if some were found.

    `exhausted` says that there was nothing left to try, not that the limit was reached.
    """

    core: list[Key] | None
    exhausted: bool = True


class Problem(Generic[Key]):
    """Formulas that are given, alternatives of which one is given too, and named assumptions."""

    def __init__(
        self,
        given: Sequence[Any],
        alternatives: Sequence[Any],
        assumptions: Mapping[Key, Iterable[Any]],
    ) -> None:
        self._context = z3.Context()
        self._given = self._copied(given)
        self._alternatives = self._copied(alternatives)
        self._keys = [key for key, formulas in assumptions.items() for _ in formulas]
        self._formulas = self._copied([f for some in assumptions.values() for f in some])

    def _copied(self, formulas: Sequence[Any]) -> list[Any]:
        vector = z3.AstVector()
        for formula in formulas:
            vector.push(formula)
        return list(vector.translate(self._context))

    def core(self, resources: int, chosen: Iterable[Key], alternative: int) -> list[Key] | None:
        """Some of the chosen assumptions that contradict the rest; None if none were found."""
        return self.answer(resources, chosen, alternative).core

    def answer(self, resources: int, chosen: Iterable[Key], alternative: int) -> Answer[Key]:
        """The same, with whether everything was tried.

        Model-based instantiation is off, so that "no" is answered fast instead of never;
        `resources` are steps of the solver, since a clock would give other answers on another or
        a busy machine.
        """
        solver = z3.SimpleSolver(ctx=self._context)
        solver.set("rlimit", resources)
        solver.set("auto_config", False)
        solver.set("mbqi", False)
        solver.set("random_seed", 0)
        wanted = frozenset(chosen)
        labels: dict[str, Key] = {}
        for n, (key, formula) in enumerate(zip(self._keys, self._formulas, strict=True)):
            if key in wanted:
                label = f"assumption {n}"
                labels[label] = key
                solver.assert_and_track(formula, z3.Bool(label, self._context))
        solver.add(*self._given, self._alternatives[alternative])
        found = solver.check()
        if found != z3.unsat:
            # Everything that laws can be applied to has been tried, or the steps were used up.
            return Answer(None, found == z3.sat or "quantifiers" in solver.reason_unknown())
        return Answer(list(dict.fromkeys(labels[str(c)] for c in solver.unsat_core())))
