"""Every number of a price says what it is counted in and where it comes from, and stands once."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path
from typing import get_type_hints

import pytest

from whet.schedule.cost import numbers
from whet.schedule.cost.numbers.origin import Origin

ROOT = Path(__file__).resolve().parents[2]
SCHEDULE = ROOT / "whet" / "schedule"
SUBJECTS = [m.name for m in pkgutil.iter_modules(numbers.__path__) if m.name != "origin"]

NOT_PRICES = {
    "prices.py": {"ANALYTIC_ERROR"},  # what prices are wrong by, not a part of one
    "gpu_prices.py": {"GPU_ERROR"},  # the same
    "families/winograd/outliers.py": {"LIMIT"},  # which values are outliers
    "families/winograd/precision.py": {
        "SHORT_SUM",
        "ERROR_OF_SHORT_SUMS",
    },  # how much precision may be lost
}


def numbers_of(subject: str) -> dict[str, tuple[str, Origin]]:
    module = importlib.import_module(f"{numbers.__name__}.{subject}")
    return {n: hint.__metadata__ for n, hint in get_type_hints(module, include_extras=True).items()}


def module_level(path: Path) -> list[tuple[str, ast.expr]]:
    """Names and values that a module assigns."""
    found: list[tuple[str, ast.expr]] = []
    for stmt in ast.parse(path.read_text()).body:
        targets = stmt.targets if isinstance(stmt, ast.Assign) else []
        if isinstance(stmt, ast.AnnAssign):
            targets = [stmt.target]
        names = [x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)]
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is not None:
            found += [(name, stmt.value) for name in names]
    return found


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_number_has_a_unit_an_origin_and_a_date(subject: str) -> None:
    known = numbers_of(subject)
    stated = {name for name, _ in module_level(SCHEDULE / f"cost/numbers/{subject}.py")}
    assert stated == set(known)
    for name, (unit, origin) in known.items():
        assert unit, name
        assert isinstance(origin, Origin), name
        assert re.fullmatch(r"2\d{3}-\d\d-\d\d", origin.date), name
        assert origin.machine, name
        assert origin.why, name
        scripts = re.findall(r"\w+/\w+\.py", origin.command)
        assert bool(scripts) == (origin.kind != "given"), name
        assert all((ROOT / script).exists() for script in scripts), name


def test_no_number_stands_twice() -> None:
    names = Counter(name for subject in SUBJECTS for name in numbers_of(subject))
    assert max(names.values()) == 1
    elsewhere = {
        f"{path.relative_to(SCHEDULE)}: {name}"
        for path in SCHEDULE.rglob("*.py")
        if path.parent.name != "numbers"
        for name, _ in module_level(path)
        if name in names
    }
    assert not elsewhere


def test_prices_reckon_with_these_numbers_alone() -> None:
    bare = {
        f"{place}: {name}"
        for path in SCHEDULE.rglob("*.py")
        if path.parent.name != "numbers"
        for place in [path.relative_to(SCHEDULE).as_posix()]
        for name, value in module_level(path)
        if name not in NOT_PRICES.get(place, ())
        if any(isinstance(e, ast.Constant) and type(e.value) is float for e in _parts(value))
    }
    assert not bare


def _parts(value: ast.expr) -> list[ast.AST]:
    """A number, or numbers in a row; tables by name are something else."""
    return [] if isinstance(value, (ast.Dict, ast.Call)) else list(ast.walk(value))
