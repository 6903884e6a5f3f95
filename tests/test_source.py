"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import fnmatch
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from whet.core.errors import CODES

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "whet").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_LINES = 600


def names(paths: list[Path]) -> list[str]:
    return [p.relative_to(ROOT).as_posix() for p in paths]


def test_modules_stay_readable() -> None:
    long = {p.name: n for p in SOURCES if (n := len(p.read_text().splitlines())) > MAX_LINES}
    assert not long


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    assert not [p for p in SOURCES if p.stem in ("utils", "util", "helpers", "misc", "common")]


def test_every_module_says_what_it_is() -> None:
    silent = [p for p in SOURCES if p.read_text().strip() and not p.read_text().startswith('"""')]
    assert not names(silent)


def openings(path: Path) -> list[str]:
    """The first words of the docstrings of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, kinds)]
    return [text.split()[0] for n in found if (text := ast.get_docstring(n))]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    elsewhere = {"build", "codegen", "schedule"}
    read = [p for p in SOURCES if not elsewhere & set(p.relative_to(ROOT).parts)]
    assert not names([p for p in read if {"What", "Where", "How"} & set(openings(p))])


MODULES = {"z3-solver": "z3", "cuda-bindings": "cuda", "nvidia-cuda-nvrtc": "cuda"}
"""What is imported under another name than it is installed by."""


def test_extras_install_only_what_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {k: v for k, v in project["optional-dependencies"].items() if k != "dev"}
    wanted = [re.split("[<>=]", text)[0] for some in extras.values() for text in some]
    text = "\n".join(p.read_text() for p in SOURCES)
    unused = [
        name
        for name in wanted
        if not re.search(rf"^\s*(import|from) {MODULES.get(name, name)}\b", text, re.MULTILINE)
        and f'import_module("{name}")' not in text
    ]
    assert not unused


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX"])
def test_nothing_is_left_to_do(word: str) -> None:
    here = Path(__file__)
    found = [p for p in SOURCES + TESTS if p != here and re.search(rf"\b{word}\b", p.read_text())]
    assert not names(found)


@pytest.mark.parametrize("code", CODES)
def test_every_error_code_is_raised(code: str) -> None:
    listing = ROOT / "whet" / "core" / "errors.py"
    assert any(code in p.read_text() for p in SOURCES if p != listing)


def test_every_raised_code_is_listed() -> None:
    raised = {c for p in SOURCES for c in re.findall(r"\bWH\d{4}\b", p.read_text())}
    assert raised <= set(CODES)


# ------------------------------------------------------------------------- what tests expect
EXPECTING = ("raises", "warns", "parametrize")
"""Functions of pytest that are told what is to happen."""


def expectations(module: ast.Module) -> Iterator[ast.AST]:
    """What a test module asserts or tells pytest, with the constants that are named there."""
    constants = {
        target.id: node.value
        for node in module.body if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in ast.walk(module):
        told = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if isinstance(node, ast.Assert) or (told and node.func.attr in EXPECTING):
            yield node
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            yield from (constants[name] for name in names & constants.keys())


def expected_codes(text: str) -> set[str]:
    """Error codes that the module's tests expect; comments and docstrings expect nothing."""
    strings = (
        n.value
        for part in expectations(ast.parse(text))
        for n in ast.walk(part)
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    )
    return {code for string in strings for code in re.findall(r"\bWH\d{4}\b", string)}


def test_only_expectations_count() -> None:
    text = """
"WH0001"
CASES = ["WH0002"]
OTHERS = ["WH0003"]
@pytest.mark.parametrize("code", CASES)
def test_it(code):  # WH0004
    with pytest.raises(Error, match="WH0005 no"):
        call("WH0006")
    assert "WH0007" in text
"""
    assert expected_codes(text) == {"WH0002", "WH0005", "WH0007"}


def test_every_error_code_is_expected_by_a_test() -> None:
    expected = set().union(*(expected_codes(p.read_text()) for p in TESTS))
    assert set(CODES) <= expected


def test_no_folder_of_tests_is_left_out() -> None:
    """Pytest skips folders by their names, `build` among them, unless it is told otherwise."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    left_out = options["norecursedirs"]
    folders = {p.parent.name for p in (ROOT / "tests").rglob("test_*.py")}
    assert "build" in folders
    assert not [f for f in folders if any(fnmatch.fnmatch(f, pattern) for pattern in left_out)]
