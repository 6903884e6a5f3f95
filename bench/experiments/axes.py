"""Layouts one by one: would a block be cheaper if one of its values lay along another axis?

The search has graphs for states, not graphs with layouts: these follow from the graph.  What that
leaves on the table is asked of the prices: every value that a kernel writes is laid along each of
its axes in turn, and the block is planned again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from experiments.setting import Setting
from harness.pairs import price_of
from harness.report import Report, count, say
from harness.tuning import native_engine
from whet.build.backend import backend_of
from whet.graph.graph import Graph, Value
from whet.joint.blocks import Block, cut_blocks, form_of
from whet.joint.pricing import part_price, plan_whole
from whet.tasks.dag import Dag
from whet.tasks.layout import Layouts, choose_layouts
from whet.tasks.price import Price
from zoo.networks import BUILDERS

NOISE = 0.005
"""The share of a block's price by which another must be cheaper to count."""


@dataclass(frozen=True, slots=True)
class Change:
    """One value along another axis: the share of the network's price that it would save."""

    value: str
    axis: int
    saved: float


def axes(report: Report, setting: Setting) -> None:
    """The values that would better lie along another axis, by network."""
    rows = []
    for name, graph in setting.networks(list(BUILDERS)).items():
        say(f"laying out {name}")
        tried = list(changes(graph, setting.threads))
        better = sorted((c for c in tried if c.saved > 0), key=lambda c: -c.saved)
        most = f"{100 * better[0].saved:.2g} %" if better else "-"
        where = f"{better[0].value} along {better[0].axis}" if better else "-"
        rows.append([name, str(len(tried)), str(len(better)), most, where])
        report.rows.append({"part": "axes", "network": name, "threads": setting.threads,
                            "changes": len(tried), "cheaper": len(better),
                            "saved": better[0].saved if better else 0.0})  # fmt: skip
    header = ["network", "changes", "cheaper by price", "saves of the network", "which"]
    report.add_table(f"One value along another axis, {count(setting.threads)}", header, rows)


def changes(graph: Graph, threads: int) -> Iterator[Change]:
    """Every change of one value's axis in blocks of a network, each kind of block once."""
    price = price_of(graph, threads)
    whole = plan_whole(graph, price, backend_of(native_engine().target).holds)
    if whole is None:
        return
    kinds: dict[object, list[Block]] = {}
    for block in cut_blocks(whole):
        kinds.setdefault(form_of(block.part, block.places).key, []).append(block)
    for block, *others in kinds.values():
        as_it_is = part_price(block.part, block.places, block.part, price)
        for value, axis in _others(block):
            saved = as_it_is - _laid(block, value, axis, price)
            share = (1 + len(others)) * saved / whole.seconds if saved > NOISE * as_it_is else 0.0
            yield Change(str(value.type), axis, share)


def _others(block: Block) -> Iterator[tuple[Value, int]]:
    for node in block.part.nodes:
        for v in node.results:
            if v in block.places and v not in block.part.needed and v.tensor_type.rank > 2:
                yield from ((v, a) for a, d in enumerate(v.tensor_type.shape) if d > 1)


def _laid(block: Block, value: Value, axis: int, price: Price) -> float:
    """The price of the block with the value along the axis, and those inside free to follow."""
    outer = {*block.part.inputs, *block.part.needed}
    places = {v: p for v, p in block.places.items() if v in outer}
    return part_price(block.part, places, block.part, price, partial(_along, {value: axis}))


def _along(chosen: Mapping[Value, int], graph: Dag, pinned: Mapping[Value, int]) -> Layouts:
    return choose_layouts(graph, {**pinned, **chosen})
