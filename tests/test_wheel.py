"""The wheel does not claim machines that whet cannot run on."""

from __future__ import annotations

import platform
import runpy
from pathlib import Path
from typing import Any

import pytest
import setuptools

ROOT = Path(__file__).resolve().parent.parent


def test_a_wheel_is_for_linux_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    command = given["cmdclass"]["bdist_wheel"](setuptools.Distribution())
    command.finalize_options()
    assert command.get_tag() == ("py3", "none", f"linux_{platform.machine()}")
