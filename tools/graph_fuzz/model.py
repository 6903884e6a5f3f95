"""A random model from its number: what it is made of, its outputs, and the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import helper

import tools.graph_fuzz.families  # noqa: F401  (adds the generators)
from tools.graph_fuzz.draw import Draw
from tools.graph_fuzz.families.quantize import around
from tools.graph_fuzz.families.views import view_of
from tools.graph_fuzz.growth import DOMAINS, Broken, Given, Growth, Held, Impossible
from tools.graph_fuzz.registry import FAMILIES, GENERATORS, Key
from tools.graph_fuzz.schemas import TO_ONNX
from tools.graph_fuzz.values import STYLES
from whet.core.dtypes import f32
from whet.core.types import Array

OPSETS: Mapping[int, float] = {
    7: 1.5, 8: 1.5, 9: 2, 10: 3, 11: 3, 12: 3, 13: 7, 14: 2, 15: 3, 16: 3, 17: 5, 18: 8, 19: 5,
    20: 5, 21: 12, 22: 16, 23: 8, 24: 8, 25: 3, 26: 4, 27: 2, 28: 4,
}  # fmt: skip
"""Operator sets, and how often a model is written in them."""
MOST_COMMON = 24
"""The newest one that other implementations are sure to know."""

THEMES: Mapping[str, tuple[float, Mapping[str, float]]] = {
    "anything": (30, {}),
    "fusion": (25, {"elementwise": 12, "movement": 8, "reduce": 5, "normalize": 4, "casting": 3,
                    "contraction": 2, "gather": 2}),
    "network": (22, {"convolution": 8, "contraction": 6, "pool": 5, "normalize": 5,
                     "elementwise": 8, "movement": 4, "reduce": 2, "resize": 2, "attention": 2,
                     "recurrent": 1}),
    "quantized": (9, {"quantize": 12, "elementwise": 4, "movement": 4, "pool": 2, "casting": 3}),
    "control": (5, {"control": 8, "elementwise": 5, "movement": 3, "sequence": 3, "host": 2}),
    "integers": (9, {"elementwise": 8, "movement": 6, "reduce": 5, "casting": 4, "gather": 6}),
}  # fmt: skip
"""What a model is about: how often, and the weights of families (all operators alike if none)."""

LENGTHS: Mapping[int, float] = {
    3: 12, 4: 12, 5: 12, 6: 10, 7: 8, 8: 7, 9: 5, 10: 4, 11: 3, 12: 3, 13: 2, 14: 2, 15: 2, 16: 1.5,
    17: 1, 18: 1, 19: 1, 20: 1, 21: 0.7, 22: 0.7, 23: 0.7, 24: 0.7, 25: 0.7,
}  # fmt: skip
MOST_NODES = 25
MOST_OUTPUTS = 6


@dataclass(frozen=True)
class Grown:
    """A random model with inputs for it."""

    model: Any
    inputs: Mapping[str, Array]
    refusals: tuple[tuple[str, str], ...] = ()
    """Nodes that the front end refused, and why; they are not in the model."""
    style: str = "grid"
    theme: str = "anything"


def grow_model(seed: int, index: int, only: Sequence[Key] = ()) -> Grown:
    """The model of that number, the same on every machine; of the operators `only`, if any."""
    draw = Draw(seed, index)
    style, theme = draw.weighted(STYLES), draw.weighted({t: w for t, (w, _) in THEMES.items()})
    common = draw.chance(0.5)
    opset = draw.weighted({n: w for n, w in OPSETS.items() if n <= MOST_COMMON or not common})
    g = Growth(draw, opset, style, empty=draw.chance(0.05), common=common)
    weights = operator_weights(theme, only)
    if common and not only:
        weights = {key: w for key, w in weights.items() if key[0] != "whet"}
    length = draw.weighted(LENGTHS)
    try:
        _plant(g, theme)
        for _ in range(4 * length):
            if len(g.nodes) >= length:
                break
            add_node(g, draw.weighted(weights))
        _add_views(g, theme)
    except Broken:
        pass  # the model shows it as it is
    return Grown(finished(g), {i.name: i.array for i in g.inputs}, tuple(g.refusals), style, theme)


def operator_weights(theme: str, only: Sequence[Key] = ()) -> dict[Key, float]:
    """How often each operator is drawn.  A family's weight is shared by its operators."""
    families = THEMES[theme][1]
    if only:
        return dict.fromkeys(only, 1.0)
    if not families:
        # One draw in eight is of whet's own domain, which has as many operators as ONNX.
        return {key: 0.2 if key[0] == "whet" else 1.0 for key in GENERATORS}
    sizes: dict[str, int] = {}
    for key in GENERATORS:
        sizes[FAMILIES[key]] = sizes.get(FAMILIES[key], 0) + 1
    return {key: families[FAMILIES[key]] / sizes[FAMILIES[key]]
            for key in GENERATORS if FAMILIES[key] in families}  # fmt: skip


def _plant(g: Growth, theme: str) -> None:
    """One to three inputs to begin with."""
    for _ in range(g.draw.integer(1, 3)):
        dtype = g.dtype()
        if theme in ("network", "quantized", "fusion") and g.draw.chance(0.7):
            dtype = f32
        while theme == "integers" and dtype.is_float:
            dtype = g.dtype()
        held = g.input(g.array(dtype, g.shape()))
        g.pool.append(held)


def add_node(g: Growth, key: Key) -> bool:
    """Adds an operator with all it needs, or nothing."""
    try:
        with g.attempt():
            GENERATORS[key](g, key[1])
        return True
    except Impossible:
        return False


def _add_views(g: Growth, theme: str) -> None:
    """Views of what will be outputs; quantized models also go there and back."""
    for _ in range(g.draw.integer(0, 2)):
        if not g.pool or len(g.nodes) >= MOST_NODES:
            return
        v = g.draw.pick(g.pool[-6:])
        try:
            with g.attempt():
                if theme == "quantized" and v.dtype == f32 and g.opset >= 10 and g.draw.chance(0.4):
                    around(g, v)
                else:
                    view_of(g, v)
        except Impossible:
            continue


# ------------------------------------------------------------------------------------- the file
def _outputs(g: Growth) -> list[Held]:
    """What nothing reads, and some of what is read as well; newest first."""
    computed = {name for node in g.nodes for name in node.output}
    made = [v for v in g.pool if v.name in computed]
    unread = [v for v in made if v.name not in g.read]
    others = [v for v in made if v.name in g.read]
    chosen = [*unread[::-1][:MOST_OUTPUTS], *g.draw.some(others, 0.15)]
    if not chosen and g.inputs:
        chosen = [v for v in g.pool if v.name == g.inputs[0].name][:1]
    return g.draw.shuffled(list(dict.fromkeys(chosen))[:MOST_OUTPUTS])


def finished(g: Growth) -> Any:
    """The model as ONNX stores it."""
    outputs = _outputs(g)
    computed = {name for node in g.nodes for name in node.output}
    infos = []
    nodes = list(g.nodes)
    for v in outputs:
        name = v.name
        if name not in computed:  # an input as it is
            name = g.fresh_name("y")
            nodes.append(helper.make_node("Identity", [v.name], [name]))
        infos.append(_output_info(g, name, v))
    if not infos and nodes:  # the last node could not be converted at all
        infos = [helper.make_empty_tensor_value_info(name) for name in nodes[-1].output]
    graph = helper.make_graph(
        nodes, "random", [_input_info(g, i) for i in g.inputs], infos, g.initializers
    )
    used = {node.domain for node in nodes}
    opsets = [helper.make_opsetid("", g.opset)]
    opsets += [helper.make_opsetid(d, v) for d, v in DOMAINS.items() if d in used]
    ir = 10 if g.opset <= 22 else 11 if g.opset <= 24 else 13
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, producer_name="fuzz")


def _input_info(g: Growth, given: Given) -> Any:
    held = Held(given.name, given.array)
    dims: list[Any] = list(held.shape)
    if g.draw.chance(0.15):  # extents that the caller decides
        dims = [f"{given.name}_{n}" if g.draw.chance(0.4) else d for n, d in enumerate(dims)]
    return helper.make_tensor_value_info(given.name, TO_ONNX[held.dtype], dims)


def _output_info(g: Growth, name: str, v: Held) -> Any:
    if g.draw.chance(0.5):
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, TO_ONNX[v.dtype], [None] * v.rank)
