"""What is kept between builds: whole segments, their constants, single objects."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from tests.build.test_calls import layered_graph
from tests.targets import HOST
from whet.build import calls, constants
from whet.build.native import NativeExecutable, build
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ir.tensor import Compute, Tensor, compute, placeholder
from whet.ops.base import Numeric
from whet.ops.matmul import MatMul
from whet.tasks import plan as plan_module

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

    monkeypatch.setattr(plan_module, "plan_segment", refuse)


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


@pytest.mark.parametrize("shared", [True, False])
def test_constants_are_mapped_and_not_writable(
    cache: FileCache, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(calls, "SHARED_FROM_BYTES", 1000 if shared else 1 << 30)
    for executable in (built(cache), built(cache)):
        image = executable.segments[0].image
        for kept in image.shared.values() if shared else [image.constants]:
            assert isinstance(kept, np.memmap)
            assert not kept.flags.writeable
            assert kept.__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize("kind", ["segment", "constants", "constant", "object", "refusals"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_damage_is_a_miss(
    cache: FileCache, kind: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "constant":
        monkeypatch.setattr(calls, "SHARED_FROM_BYTES", 1000)
    built(cache)
    assert cache.folder is not None
    for path in (cache.folder / kind).iterdir():
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


# ---------------------------------------------------------------------------- shared constants
W = np.random.default_rng(1).standard_normal((64, 512)).astype(np.float32)


def product(rows: int, w: Array = W) -> Graph:
    """x @ w of so many rows."""
    b = GraphBuilder()
    x = b.input("x", TensorType((rows, 64), f32))
    return Graph((x,), (b.one(MatMul(), x, b.constant(w)),), ("y",))


def weights(executable: NativeExecutable) -> list[Array]:
    return [a for s in executable.segments for a in s.image.shared.values()]


def check_product(executable: NativeExecutable, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
    (expected,) = interpret(product(rows), (x,))
    np.testing.assert_allclose(executable([x])[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("enabled", [True, False])
def test_shapes_of_a_model_share_its_weights(tmp_path: Path, enabled: bool) -> None:
    """Panels are of few widths, so five numbers of rows have fewer kinds of panels."""
    cache = FileCache(CacheConfig(enabled=enabled, dir=tmp_path / "cache"))
    made = {rows: build(product(rows), HOST, 1, cache) for rows in (64, 96, 120, 200, 256)}
    kept = [w for executable in made.values() for w in weights(executable)]
    assert len(kept) == 5
    different = len({id(w) for w in kept})
    assert different < 5
    assert sum(e.kind == "constant" for e in cache.entries()) == enabled * different
    for rows, executable in made.items():
        assert executable.report.constant_bytes >= 64 * 512 * 4
        check_product(executable, rows)


def test_weights_that_are_there_are_not_packed_again(
    cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(product(64), HOST, 1, cache)
    del first
    gc.collect()

    def refuse(*args: object) -> None:
        raise AssertionError("weights were packed")

    monkeypatch.setattr(constants, "prepare_constant", refuse)
    for entry in cache.entries():
        if entry.kind == "segment":  # as if this shape had never been built
            assert cache.folder is not None
            (cache.folder / entry.path).unlink()
    check_product(build(product(64), HOST, 1, cache), 64)
    other = np.zeros((64, 512), np.float32)
    with pytest.raises(AssertionError, match="weights were packed"):
        build(product(64, other), HOST, 1, cache)


def test_weights_in_use_are_kept_again_when_the_cache_was_cleared(cache: FileCache) -> None:
    first = build(product(64), HOST, 1, cache)
    cache.clear()
    again = build(product(64), HOST, 1, cache)
    assert [id(w) for w in weights(again)] == [id(w) for w in weights(first)]
    assert [e.kind for e in cache.entries()].count("constant") == 1
    check_product(again, 64)


def test_a_packed_constant_is_known_by_how_it_is_made() -> None:
    x, y = (placeholder((6,), f32, name) for name in ("x1", "x2"))

    def pairs(t: Tensor, step: int) -> Compute:
        return compute((3, 2), lambda i, j: t[i * step + j * (3 // step + 1)], "panels")

    def key(argument: Compute, **digests: str) -> str:
        return constants._packing_key(argument, digests)

    made = key(pairs(x, 1), x1="a", x2="b")
    assert key(pairs(y, 1), x1="b", x2="a") == made
    assert key(pairs(x, 1), x1="a") == made
    assert key(pairs(x, 1), x1="b", x2="a") != made
    assert key(pairs(x, 2), x1="a", x2="b") != made


def test_nothing_is_kept_without_a_cache(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    check_result(built(FileCache(CacheConfig(enabled=False, dir=folder))))
    assert not folder.exists()
