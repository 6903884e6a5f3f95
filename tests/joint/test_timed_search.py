"""The search by times of another runtime, with times that do not depend on the day."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.joint.walks import CLOSE, differ, inputs_for
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.dtypes import f32
from whet.core.errors import WhetError
from whet.core.types import TensorType
from whet.frontend.onnx import import_model
from whet.graph.build import GraphBuilder
from whet.graph.export_portable import portable_model
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.graph.summary import summarize
from whet.joint.blocks import narrow_blocks
from whet.joint.kept import shared_matcher
from whet.joint.peer_times import Loaded, PeerTimes, part_graph
from whet.joint.timed_search import TimedSearch
from whet.ops.activation import Relu
from whet.ops.arithmetic import Neg
from whet.superopt.apply.rewrite import Part
from zoo.reduced import REDUCED


class Counted:
    """A graph that takes as long as it has operations; every node costs something too."""

    def __init__(self, graph: Graph) -> None:
        self.cost = summarize(graph).flops + 1000 * len(graph.nodes)


class CountedTimes(PeerTimes):
    """Times that are counted and not measured."""

    def load(self, graph: Graph) -> Any:
        portable_model(graph)  # whatever a search comes across can be written
        return Counted(graph)

    def ratio(self, base: Any, other: Any, turns: int = 0) -> float:
        return other.cost / base.cost


def cache(tmp_path: Path) -> FileCache:
    return FileCache(CacheConfig(dir=tmp_path / "cache"))


def network(name: str) -> Graph:
    return optimize(import_model(REDUCED[name]()).graph)


@pytest.mark.parametrize("name", ["bert_base", "nasrnn", "squeezenet", "resnext50"])
def test_cheaper_and_equal(name: str, tmp_path: Path) -> None:
    graph = network(name)
    search = TimedSearch(
        graph, CountedTimes(1, "here", cache(tmp_path)), lambda: shared_matcher("real"), 3.0
    )
    search.run()
    before, after = Counted(graph).cost, Counted(search.graph).cost
    assert after <= before
    assert np.prod([step.ratio for step in search.taken]) == pytest.approx(after / before)
    if name in ("bert_base", "nasrnn"):
        assert search.taken
    assert differ(graph, search.graph, inputs_for(graph, np.random.default_rng(0))) < 10 * CLOSE


def test_what_was_taken_before_an_interrupt_stays(tmp_path: Path) -> None:
    graph = network("bert_base")

    class Interrupted(CountedTimes):
        def prices(self, start: Part) -> Callable[[Part], float] | None:
            raise KeyboardInterrupt

    search = TimedSearch(
        graph, Interrupted(1, "here", cache(tmp_path)), lambda: shared_matcher("real"), 60.0
    )
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert search.taken
    assert len(search.graph.nodes) != len(graph.nodes)


def test_ratios_are_kept_by_form(tmp_path: Path) -> None:
    block = narrow_blocks(network("squeezenet"))[0].part
    other = Part(block.inputs, (*block.outputs, *block.outputs))
    times = CountedTimes(1, "here", cache(tmp_path))
    price = times.prices(block)
    assert price is not None
    assert price(block) == 1
    found = price(other)
    assert times.measured == 1
    assert price(other) == found
    times.keep()
    again = CountedTimes(1, "here", cache(tmp_path))
    known = again.prices(block)
    assert known is not None
    assert (known(other), again.measured) == (found, 0)
    for threads, machine in ((2, "here"), (1, "there")):
        elsewhere = CountedTimes(threads, machine, cache(tmp_path))
        anew = elsewhere.prices(block)
        assert anew is not None
        anew(other)
        assert elsewhere.measured == 1


def test_blocks_cover_a_graph_once() -> None:
    graph = network("vit_tiny")
    for shift in (0, 6, 12):
        blocks = narrow_blocks(graph, shift=shift)
        assert sum(len(b.part.nodes) for b in blocks) == len(graph.nodes)
        assert not any(b.places for b in blocks)


def test_onnxruntime_is_a_clock(tmp_path: Path) -> None:
    times = PeerTimes(1, "here", cache(tmp_path))
    part = narrow_blocks(network("squeezenet"))[0].part
    loaded = times.load(part_graph(part))
    assert isinstance(loaded, Loaded)
    assert loaded.calls >= 1
    assert times.ratio(loaded, loaded) > 0


def test_what_onnxruntime_does_not_take(tmp_path: Path) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((2,), f32))
    graph = Graph((x,), (b.one(Neg(), b.one(Relu(), x)),), ("y",))
    times = PeerTimes(1, "here", cache(tmp_path))

    def refuse(model: bytes, threads: int) -> Any:
        raise RuntimeError("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whet.joint.peer_times.open_session", refuse)
        assert times.load(graph) is None
        assert times.prices(Part(graph.inputs, graph.outputs)) is None
        with pytest.raises(WhetError, match="onnxruntime cannot run the model") as caught:
            times.require(graph)
    assert caught.value.code == "WH3005"
