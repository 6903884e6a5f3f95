"""whet doctor: what is there, and what is missing."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whet.cli import doctor
from whet.cli.extras import EXTRAS

ROOT = Path(__file__).parents[2]
Whet = Callable[..., Any]


def test_all_that_models_need_is_there(whet: Whet) -> None:
    done = whet("doctor", "--json")
    found = {f["what"]: f for f in json.loads(done.stdout)["findings"]}
    assert found["native code"]["ok"]
    assert found["rules"]["ok"]
    assert "cores" in found["native code"]["text"]
    assert "native code" in whet("doctor").stdout


def test_every_extra_is_looked_at() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {e for e in project["optional-dependencies"] if e != "dev"}
    assert extras == set(doctor.USES) == set(EXTRAS.values())


def test_missing_packages_come_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    found = {f.what: f for f in doctor.findings()}
    assert not found["cuda"].ok
    assert found["cuda"].hint == "pip install 'whet[cuda]'"
    assert "numba" in found["rules"].text
