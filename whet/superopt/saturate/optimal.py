"""Optimal extraction as an integer program, solved by HiGHS.

TenSAT (Yang et al., MLSys'21, section 5.1) states it with a variable for every e-node and an order
of the classes that keeps choices acyclic.  Here the order is asked for only among classes that can
need each other at all, and an option with several results may be chosen for some of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.core.errors import WhetError
from whet.superopt.saturate.problem import Choice, Problem


def optimal(problem: Problem, seconds: float) -> Choice | None:
    """The cheapest acyclic choice, or the best that was found in this time; None if none was.

    Raises: `WhetError` if SciPy is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError:
        raise WhetError(
            "WH3007", "extraction from e-graphs needs scipy", hint="pip install scipy"
        ) from None
    if not problem.wanted:
        return {}
    program = _Program(problem)
    rows, columns, values = zip(*program.entries)
    matrix = csr_array((values, (rows, columns)), shape=(program.rows, program.columns))
    scale = max((o.cost for o in problem.options), default=0.0) or 1.0
    costs = np.zeros(program.columns)
    costs[: len(problem.options)] = [o.cost / scale for o in problem.options]
    found = milp(
        costs,
        integrality=np.array(program.integral),
        bounds=Bounds(np.zeros(program.columns), np.array(program.upper)),
        constraints=LinearConstraint(matrix, np.array(program.least), np.inf),
        options={"time_limit": seconds},
    )
    if found.x is None:
        return None
    choice = {c: n for (n, c), column in program.takes.items() if found.x[column] > 0.5}
    return None if problem.used(choice) is None else choice


class _Program:
    """The rows of the integer program, each a sum that must be at least a number."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.entries: list[tuple[int, int, float]] = []
        self.least: list[float] = []
        self.integral: list[int] = [1] * len(problem.options)
        self.upper: list[float] = [1.0] * len(problem.options)
        self.takes: dict[tuple[int, int], int] = {}
        """The variable that says that a class is taken from an option."""
        for n, option in enumerate(problem.options):
            given = tuple(dict.fromkeys(option.gives))
            for c in given:
                self.takes[n, c] = n if len(given) == 1 else self._variable(1.0, True)
        self.needed = [self._variable(1.0, False) for _ in range(problem.classes)]
        self._state()

    @property
    def rows(self) -> int:
        return len(self.least)

    @property
    def columns(self) -> int:
        return len(self.upper)

    def _variable(self, upper: float, integral: bool) -> int:
        self.upper.append(upper)
        self.integral.append(int(integral))
        return len(self.upper) - 1

    def _at_least(self, least: float, *terms: tuple[int, float]) -> None:
        self.entries += [(len(self.least), column, value) for column, value in terms]
        self.least.append(least)

    def _state(self) -> None:
        problem = self.problem
        for c in problem.wanted:
            self._at_least(1.0, (self.needed[c], 1.0))
        for c, givers in enumerate(problem.givers()):
            taken = [(self.takes[n, c], 1.0) for n in givers]
            self._at_least(0.0, *taken, (self.needed[c], -1.0))
        for n, option in enumerate(problem.options):
            for c in set(option.needs):
                self._at_least(0.0, (self.needed[c], 1.0), (n, -1.0))
        for (n, _), column in self.takes.items():
            if column != n:
                self._at_least(0.0, (n, 1.0), (column, -1.0))
        for circle in circles(problem):
            self._order(circle)

    def _order(self, circle: Sequence[int]) -> None:
        """Classes that may need each other get numbers; one that is taken from an option has a
        greater number than those that the option needs."""
        size = float(len(circle))
        number = {c: self._variable(size, False) for c in circle}
        for (n, c), column in self.takes.items():
            if c not in number:
                continue
            for need in set(self.problem.options[n].needs):
                if need == c:
                    self._at_least(0.0, (column, -1.0))
                elif need in number:
                    self._at_least(
                        -size, (number[c], 1.0), (number[need], -1.0), (column, -1.0 - size)
                    )


def circles(problem: Problem) -> list[list[int]]:
    """Sets of classes that can need each other, by Tarjan's algorithm without recursion."""
    needs: list[set[int]] = [set() for _ in range(problem.classes)]
    for option in problem.options:
        for c in option.gives:
            needs[c] |= set(option.needs)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    found: list[list[int]] = []
    for root in range(problem.classes):
        work = [(root, iter(sorted(needs[root])))] if root not in index else []
        while work:
            c, rest = work[-1]
            if c not in index:
                index[c] = low[c] = len(index)
                path.append(c)
                on_path.add(c)
            for need in rest:
                if need not in index:
                    work.append((need, iter(sorted(needs[need]))))
                    break
                if need in on_path:
                    low[c] = min(low[c], index[need])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[c])
                if low[c] == index[c]:
                    circle = path[path.index(c) :]
                    del path[len(path) - len(circle) :]
                    on_path -= set(circle)
                    if len(circle) > 1 or c in needs[c]:
                        found.append(circle)
    return found
