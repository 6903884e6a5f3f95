"""Images of segments: kept in the cache, and refused when they are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.build.comparing import plan_of
from tests.build.cuda.recorded_driver import RecordedDriver, RecordedGenerator
from tests.build.cuda.segments import convolutions, image_of, normal, plainly, product_graph
from whet.build.cuda.image import load_image, store_image
from whet.build.cuda.segment import CudaSegment, ForeignSegment
from whet.build.cuda.segments import CudaAssembler
from whet.build.kernels import KernelMaker
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.gpu import PRESETS
from whet.graph.interpret import interpret

KEY = "key-0"
TARGET = PRESETS["cuda-sm_90a"]


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(CacheConfig(dir=tmp_path / "cache"))


@pytest.mark.parametrize("graph", [product_graph(), convolutions()], ids=["product", "convs"])
def test_what_is_kept_is_found_again(graph: Any, cache: FileCache) -> None:
    driver = RecordedDriver(RecordedGenerator(watches=True))
    image = image_of(graph, driver.generator, cache)
    store_image(image, cache, KEY)
    found = load_image(cache, KEY)
    assert found is not None
    assert replace(found, constants=None, shared={}).__dict__ == (  # type: ignore[arg-type]
        replace(image, constants=None, shared={}).__dict__  # type: ignore[arg-type]
    )
    np.testing.assert_array_equal(found.constants, image.constants)
    assert list(found.shared) == list(image.shared)
    assert found.symbols == image.symbols
    assert found.constant_bytes == image.constant_bytes
    x = normal(*graph.inputs[0].tensor_type.shape)
    (y,) = CudaSegment(found, graph, driver, early=True)([x])
    (expected,) = interpret(graph, [x])
    np.testing.assert_allclose(y, expected, atol=1e-6 * abs(expected).max())


def test_nothing_is_found_where_nothing_is(cache: FileCache) -> None:
    assert load_image(cache, KEY) is None


def test_an_image_without_its_shared_constant_is_not_there(cache: FileCache) -> None:
    image = image_of(product_graph(), RecordedGenerator(), cache)
    store_image(replace(image, shared={"another": np.zeros(4, np.uint8)}), cache, KEY)
    assert load_image(cache, KEY) is None


def shortened(head: dict[str, Any]) -> None:
    head["lengths"] = head["lengths"][:-1]


def changed(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda head: head.__setitem__(name, value)


def in_call(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda head: head["calls"][0].__setitem__(name, value)


def in_launch(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda head: head["calls"][0]["launch"].__setitem__(name, value)


def in_slot(kind: str, at: Any) -> Callable[[dict[str, Any]], None]:
    return in_call("slots", [{"kind": kind, "at": at}])


DAMAGES = {
    "lengths": shortened,
    "more constants": changed("constant_bytes", 1 << 40),
    "negative": changed("arena_bytes", -1),
    "a number as text": changed("arena_bytes", "12"),
    "no calls": lambda head: head.pop("calls"),
    "watched": changed("watched", [1]),
    "cubin": in_call("cubin", 99),
    "symbol": in_launch("symbol", 7),
    "threads": in_launch("threads", -32),
    "awaits": in_launch("awaits", 1),
    "arena": in_slot("arena", 1 << 40),
    "constant": in_slot("constant", 1 << 40),
    "shared": in_slot("shared", 5),
    "status": in_slot("status", 3),
    "a kind of slot": in_slot("elsewhere", 0),
    "a place": in_slot("array", 0.5),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_image_is_not_there(damage: Callable[[Any], Any], cache: FileCache) -> None:
    store_image(image_of(convolutions(), RecordedGenerator(), cache), cache, KEY)
    data = cache.get("segment", KEY)
    assert data is not None
    end = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:end])
    assert load_image(cache, KEY) is not None
    damage(head)
    text = json.dumps(head).encode()
    cache.put("segment", KEY, len(text).to_bytes(8, "little") + text + data[end:])
    assert load_image(cache, KEY) is None


@pytest.mark.parametrize("data", [b"", b"1234", b"\xff" * 40, (2).to_bytes(8, "little") + b"[]"])
def test_what_is_no_image_is_not_there(data: bytes, cache: FileCache) -> None:
    cache.put("segment", KEY, data)
    assert load_image(cache, KEY) is None


# ------------------------------------------------------------------------------------- assembler
def test_the_assembler_keeps_what_it_makes(cache: FileCache) -> None:
    graph, driver = convolutions(), RecordedDriver()
    assembler = CudaAssembler(TARGET, driver)
    assert assembler.load(graph, cache, KEY) is None
    maker = KernelMaker(driver.generator, plainly)
    made = assembler.assemble(plan_of(graph), maker, cache, KEY)
    loaded = assembler.load(graph, cache, KEY)
    x = normal(1, 2, 6, 6)
    assert loaded is not None
    np.testing.assert_array_equal(made([x])[0], loaded([x])[0])


def test_without_the_gpu_segments_can_be_looked_at(
    cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.build.cuda.segments.missing_here", lambda target: ("sm_90a",))
    graph, generator = convolutions(), RecordedGenerator()
    assembler = CudaAssembler(TARGET)
    made = assembler.assemble(plan_of(graph), KernelMaker(generator, plainly), cache, KEY)
    assert isinstance(made, ForeignSegment)
    assert isinstance(assembler.load(graph, cache, KEY), ForeignSegment)
