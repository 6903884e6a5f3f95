"""whet target: what it shows, and what it refuses to measure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.targets import FOREIGN
from whet.build.cpu import calibrate
from whet.cli import target as command
from whet.core.caching import FileCache
from whet.core.config import CacheConfig, Config
from whet.core.constants import CONSTANTS
from whet.core.cpu import PRESETS, CpuTarget, detect, with_measured

Whet = Callable[..., Any]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCache:
    """The cache of the command, empty at first."""
    config = Config(cache=CacheConfig(dir=tmp_path / "cache"))
    monkeypatch.setattr(command, "process_config", lambda: config)
    return FileCache(config.cache)


def test_this_machine_with_defaults(whet: Whet, cache: FileCache) -> None:
    done = whet("target", "cpu")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == str(detect())
    shown = {line.split()[0]: line.split()[2] for line in lines[3:]}
    assert shown == {name: detect().origin(name) for name in CONSTANTS}
    assert "measured" not in shown.values()


def test_a_preset_as_json(whet: Whet, cache: FileCache) -> None:
    document = json.loads(whet("target", FOREIGN, "--json").stdout)
    preset = PRESETS[FOREIGN]
    assert (document["key"], document["vector_bits"]) == (preset.key, preset.vector_bits)
    assert document["constants"] == {name: c.default for name, c in CONSTANTS.items()}
    assert document["calibration"] == {}


def test_measuring_replaces_what_was_measured(
    whet: Whet, cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = iter([2.0, 5.0])

    def measure(target: CpuTarget, cache: FileCache) -> dict[str, float]:
        return {name: c.default for name, c in CONSTANTS.items()} | {"cycles_per_ns": next(clocks)}

    monkeypatch.setattr(calibrate, "calibrate", measure)
    for clock in (2.0, 5.0):
        done = whet("target", "cpu", "--measure")
        assert f"cycles_per_ns{clock:>20.4g}  measured" in done.stdout
        assert "note: measuring this machine once" in done.stderr
        assert with_measured(detect(), cache).constant("cycles_per_ns") == clock
    assert "measured" in whet("target", "cpu").stdout


def test_what_cannot_be_measured(
    whet: Whet, cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = whet("target", FOREIGN, "--measure")
    assert done.returncode == 2
    assert f"WH1002 '{FOREIGN}' is not this machine and cannot be measured" in done.stderr
    monkeypatch.setattr(command, "process_config", lambda: Config(cache=CacheConfig(enabled=False)))
    done = whet("target", "cpu", "--measure")
    assert done.returncode == 2
    assert "WH1002 there is no cache to keep measurements in" in done.stderr
    assert whet("target", "z80").returncode == 2
