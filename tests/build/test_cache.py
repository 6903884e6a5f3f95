"""What is kept between builds: whole segments, their constants, single objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.build.test_calls import layered_graph
from tests.targets import HOST
from whet.build import planning
from whet.build.native import NativeExecutable, build
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.graph.interpret import interpret
from whet.ops.base import Numeric

X = np.random.default_rng(0).standard_normal((1, 8, 20, 20)).astype(np.float32)


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(CacheConfig(dir=tmp_path / "cache"))


def built(cache: FileCache, *, numerics: Numeric = "real", threads: int = 1) -> NativeExecutable:
    return build(layered_graph(), HOST, threads, cache, numerics=numerics)


def check_result(executable: NativeExecutable) -> None:
    (expected,) = interpret(layered_graph(), (X,))
    np.testing.assert_allclose(executable([X])[0], expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def no_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a plan was made")

    monkeypatch.setattr(planning, "make_plan", refuse)


def test_a_second_build_plans_nothing(cache: FileCache, request: pytest.FixtureRequest) -> None:
    first = built(cache)
    request.getfixturevalue("no_planning")
    second = built(cache)
    assert second.report == first.report
    check_result(second)
    with pytest.raises(AssertionError, match="a plan was made"):
        built(cache, threads=2)
    with pytest.raises(AssertionError, match="a plan was made"):
        built(cache, numerics="exact")


def test_constants_are_mapped_and_not_writable(cache: FileCache) -> None:
    for executable in (built(cache), built(cache)):
        constants = executable.segments[0].image.constants
        assert isinstance(constants, np.memmap)
        assert not constants.flags.writeable
        assert constants.__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize("kind", ["segment", "constants", "object", "refusals"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_damage_is_a_miss(cache: FileCache, kind: str, damage: str) -> None:
    built(cache)
    for path in (cache.config.dir / kind).iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x40
        match damage:
            case "flip":
                path.write_bytes(data)
            case "cut":
                path.write_bytes(data[: len(data) // 2])
            case "empty":
                path.write_bytes(b"")
            case "gone":
                path.unlink()
    check_result(built(cache))


def test_nothing_is_kept_without_a_cache(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    check_result(built(FileCache(CacheConfig(enabled=False, dir=folder))))
    assert not folder.exists()
