"""Fixtures for all tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.skips import (  # noqa: F401  (hooks)
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)
from whet.api import engines, native
from whet.core.config import process_config

# The same kernels on every machine, also in processes that tests start, and none of the user's
# tuning records: neither read nor written.
os.environ["WHET_CALIBRATE"] = "0"
# Graphs are compiled as they are written: a search that time ends is not the same in every run.
# Tests of the search turn it on.
os.environ["WHET_REWRITE_SECONDS"] = "0"
# A failure of the compiler is a failure of the test, and not a slower model.
os.environ["WHET_STRICT"] = "1"
_records = tempfile.TemporaryDirectory(prefix="whet-records-")
os.environ["WHET_DB_PATH"] = str(Path(_records.name) / "records.db")

# The same examples in every run, so that a red run means a changed program; to look for new
# ones, pytest --hypothesis-profile=default.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the texts that golden tests compare with, instead of comparing",
    )


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for tuning records of this test alone."""
    path = tmp_path / "records.db"
    monkeypatch.setenv("WHET_DB_PATH", str(path))
    process_config.cache_clear()
    yield path
    process_config.cache_clear()


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that changes settings and makes this process read them, and find its engine,
    anew: configured(STRICT=0) sets WHET_STRICT; None takes a variable away."""

    def forget() -> None:
        process_config.cache_clear()
        engines._Process.engines.clear()
        native.TOLD.clear()

    def change(**variables: object) -> None:
        for name, value in variables.items():
            if value is None:
                monkeypatch.delenv(f"WHET_{name}", raising=False)
            else:
                monkeypatch.setenv(f"WHET_{name}", str(value))
        forget()

    yield change
    monkeypatch.undo()
    forget()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that compares a text with the file of this test under `golden/`.

    The file is `golden/<test module>/<test name>.txt` beside the test; `pytest
    --update-golden` writes it, and the diff is then reviewed like code.
    """

    def compare(text: str) -> None:
        folder = request.path.parent / "golden" / request.path.stem
        path: Path = folder / f"{request.node.name}.txt"
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"{path} does not exist; run pytest --update-golden"
        assert text == path.read_text(), f"{path} differs; if that is right, --update-golden"

    return compare
