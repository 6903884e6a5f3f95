"""Optimal extraction as an integer program, solved by HiGHS.

TenSAT (Yang et al., MLSys'21, section 5.1) has a variable for every e-node, and keeps choices
acyclic by an order of the classes or by an e-graph without circles.  Here circles are cut where
they occur:

    classes S that are chosen in a circle   ->   one of them is taken from an option that needs
                                                 none of S

as subtours are in routing.  Whatever acyclic choice there is keeps to it, so the first optimum
without a circle is the optimum.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from whet.core.errors import WhetError
from whet.superopt.saturate.problem import Choice, Problem

GAP = 1e-4
"""The share by which an optimum may be missed: prices are not better known, and ties take long."""


def optimal(problem: Problem, seconds: float) -> Choice | None:
    """The cheapest acyclic choice, up to `GAP`; None if none was found in this time.

    Raises: `WhetError` if SciPy is not installed.
    """
    until = time.perf_counter() + seconds
    if not problem.wanted:
        return {}
    program = _Program(problem)
    while (left := until - time.perf_counter()) > 0:
        choice = program.solved(left)
        if choice is None:
            return None
        circles = circles_of(problem, choice)
        if not circles:
            return choice
        for circle in circles:
            program.cut(circle)
    return None


class _Program:
    """The rows of the integer program, each a sum that must be at least a number."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.givers = problem, problem.givers()
        self.entries: list[tuple[int, int, float]] = []
        self.least: list[float] = []
        self.integral: list[int] = [1] * len(problem.options)
        self.takes: dict[tuple[int, int], int] = {}
        """The variable that says that a class is taken from an option."""
        for n, option in enumerate(problem.options):
            given = tuple(dict.fromkeys(option.gives))
            for c in given:
                self.takes[n, c] = n if len(given) == 1 else self._variable(integral=True)
        self.needed = [self._variable(integral=False) for _ in range(problem.classes)]
        self._state()

    def _variable(self, integral: bool) -> int:
        self.integral.append(int(integral))
        return len(self.integral) - 1

    def _at_least(self, least: float, *terms: tuple[int, float]) -> None:
        self.entries += [(len(self.least), column, value) for column, value in terms]
        self.least.append(least)

    def _state(self) -> None:
        """A class that is wanted is needed, one that is needed is taken from exactly one option,
        and an option that is taken needs its inputs."""
        problem = self.problem
        for c in problem.wanted:
            self._at_least(1.0, (self.needed[c], 1.0))
        for c, givers in enumerate(self.givers):
            taken = [(self.takes[n, c], 1.0) for n in givers]
            self._at_least(0.0, *taken, (self.needed[c], -1.0))
            self._at_least(-1.0, *((column, -1.0) for column, _ in taken))
        for n, option in enumerate(problem.options):
            for c in set(option.needs):
                self._at_least(0.0, (self.needed[c], 1.0), (n, -1.0))
        for (n, _), column in self.takes.items():
            if column != n:
                self._at_least(0.0, (n, 1.0), (column, -1.0))
        for circle in short_circles(problem):
            self.cut(circle)

    def cut(self, circle: Collection[int]) -> None:
        """Forbids that every class of the circle is taken from an option that needs another."""
        inside = set(circle)
        taken = [
            (self.takes[n, c], -1.0)
            for c in circle
            for n in self.givers[c]
            if inside.intersection(self.problem.options[n].needs)
        ]
        self._at_least(1.0 - len(circle), *taken)

    def solved(self, seconds: float) -> Choice | None:
        """An optimum of the rows so far, which may have circles."""
        optimize, sparse = _solver()
        rows, columns, values = zip(*self.entries)
        shape = (len(self.least), len(self.integral))
        matrix = sparse.csr_array((values, (rows, columns)), shape=shape)
        scale = max(o.cost for o in self.problem.options) or 1.0
        costs = np.zeros(len(self.integral))
        costs[: len(self.problem.options)] = [o.cost / scale for o in self.problem.options]
        found = optimize.milp(
            costs,
            integrality=np.array(self.integral),
            bounds=optimize.Bounds(0.0, 1.0),
            constraints=optimize.LinearConstraint(matrix, np.array(self.least), np.inf),
            options={"time_limit": seconds, "mip_rel_gap": GAP},
        )
        if found.x is None or found.status != 0:
            return None
        return {c: n for (n, c), column in self.takes.items() if found.x[column] > 0.5}


def _solver() -> tuple[Any, Any]:
    """SciPy's interface to HiGHS, and its sparse matrices."""
    try:
        return import_module("scipy.optimize"), import_module("scipy.sparse")
    except ImportError:
        raise WhetError(
            "WH3007", "extraction from e-graphs needs scipy", hint="pip install scipy"
        ) from None


def short_circles(problem: Problem) -> list[tuple[int, ...]]:
    """Classes that can need themselves, and pairs that can need each other."""
    needs = [set[int]() for _ in range(problem.classes)]
    for option in problem.options:
        for c in option.gives:
            needs[c] |= set(option.needs)
    alone = [(c,) for c in range(problem.classes) if c in needs[c]]
    pairs = [(c, d) for c in range(problem.classes) for d in needs[c] if c < d and c in needs[d]]
    return [*alone, *pairs]


def circles_of(problem: Problem, choice: Choice) -> list[Sequence[int]]:
    """Circles of a choice that share no class; none if it is acyclic."""
    needs = {c: sorted(set(problem.options[n].needs)) for c, n in choice.items()}
    done: set[int] = set()
    found: list[Sequence[int]] = []
    for root in problem.wanted:
        path: list[int] = []
        work = [(root, False)]
        while work:
            c, left = work.pop()
            if left:
                path.pop()
                done.add(c)
            elif c in path:
                circle = path[path.index(c) :]
                if done.isdisjoint(circle):
                    found.append(circle)
                    done.update(circle)
            elif c not in done:
                path.append(c)
                work.append((c, True))
                work += [(need, False) for need in needs.get(c, ())]
    return found
