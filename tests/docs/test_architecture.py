"""The map agrees with the tree: one convolution's way, the rooms and their levels, named files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


class Row(NamedTuple):
    """A row of the way, without what it says."""

    file: str
    function: str


def table(title: str) -> list[list[str]]:
    """The cells of the rows of the first table under a title."""
    text = ARCHITECTURE.read_text().split(f"\n## {title}\n")[1]
    first = text[text.index("\n|") :].strip().split("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in first.splitlines()[2:]
    ]


def written_way() -> list[Row]:
    rows = table("One convolution, file by file")
    return [Row(file.strip("`"), function.strip("`")) for _, file, function, _ in rows]


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The functions that compiling and calling the model enter, in order of first entry."""
    script, place = Path(__file__).with_name("trace_convolution.py"), tmp_path_factory.mktemp("way")
    done = subprocess.run(
        [sys.executable, str(script), str(place)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "WHET_REWRITE_SECONDS": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [Row(*line.split(" ", 1)) for line in done.stdout.splitlines()]


def wrong_rows(rows: Sequence[Row], way: Sequence[Row]) -> list[str]:
    """What is wrong with the rows of a table, in words."""
    entries = {row: number for number, row in enumerate(way)}
    found, before = [], None
    for number, row in enumerate(rows, 1):
        name = f"row {number}, {row.function} of {row.file},"
        if row not in entries:
            places = [other.file for other in way if other.function == row.function]
            found.append(f"{name} is not entered" + (f", but in {places}" if places else ""))
            continue
        if before is not None and entries[row] <= entries[before]:
            found.append(f"{name} is entered before {before.function} of {before.file}")
        before = row
    return found


def test_convolution_goes_the_way_that_is_written(way: list[Row]) -> None:
    rows = written_way()
    assert len(rows) > 25
    wrong = wrong_rows(rows, way)
    assert not wrong, "\n".join(wrong)


def test_way_passes_through_every_room_of_the_compiler() -> None:
    rooms = {row.file.split("/")[1] for row in written_way()}
    assert rooms >= {"api", "build", "codegen", "frontend", "graph", "ops", "schedule", "tasks"}


def test_wrong_rows_are_told_apart() -> None:
    a, b, c = Row("whet/a.py", "f"), Row("whet/b.py", "g"), Row("whet/c.py", "C.h")
    assert wrong_rows([a, c], [a, b, c]) == []
    assert wrong_rows([a, c, b], [a, b, c]) == [
        "row 3, g of whet/b.py, is entered before C.h of whet/c.py"
    ]
    assert wrong_rows([Row("whet/d.py", "g"), a, a], [a, b]) == [
        "row 1, g of whet/d.py, is not entered, but in ['whet/b.py']",
        "row 3, f of whet/a.py, is entered before f of whet/a.py",
    ]


def test_levels_of_rooms_are_those_of_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers")
    rooms = [set(re.findall(r"(?<![\w(])[a-z]+\b", layer)) for layer in reversed(layers)]
    written: dict[int, set[str]] = {}
    for level, names, _ in table("Rooms"):
        written.setdefault(int(level), set()).update(re.findall(r"`(\w+)`", names))
    assert list(written) == sorted(written)
    assert [written[level] for level in written] == [found for found in rooms if found]


def named_paths(text: str) -> set[str]:
    """Paths of the tree that a text names as code or as a command's argument."""
    return set(re.findall(r"(?<![\w./~-])(?:whet|tests|tools|bench|examples)/[\w./-]*\w/?", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_named_paths_exist(page: Path) -> None:
    missing = sorted(p for p in named_paths(page.read_text()) if not (ROOT / p).exists())
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_named_modules_exist(page: Path) -> None:
    """`whet.room.module.Name`, as pages write it, is there; public names are tested elsewhere."""
    missing = []
    for name in re.findall(r"`(whet\.\w+\.[\w.]+)", page.read_text()):
        parts = name.split(".")
        modules = [n for n in range(len(parts), 1, -1) if is_module(parts[:n])]
        rest = parts[modules[0] :] if modules else parts
        source = module_file(parts[: modules[0]]).read_text() if modules else ""
        if not modules or (rest and not re.search(rf"\b{rest[0]}\b", source)):
            missing.append(name)
    assert not missing


def module_file(parts: Sequence[str]) -> Path:
    place = ROOT.joinpath(*parts)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def is_module(parts: Sequence[str]) -> bool:
    return module_file(parts).exists()
