"""ONNX reading and writing by index, and choosing by value."""

from __future__ import annotations

from whet.core.dtypes import i64
from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.graph.graph import Value
from whet.ops.gather import Gather, GatherElements, GatherNd, OneHot
from whet.ops.movement import Reshape
from whet.ops.scatter import REDUCTIONS, ScatterElements, ScatterNd, TensorScatter
from whet.ops.select import ReverseSequence, TopK


def _axis(c: Context, name: str = "axis", default: int = 0) -> int:
    return normalized_axis(c.attr(name, default), c.type(0).rank)


@maps("Gather")
def gather(c: Context) -> Value:
    return c(Gather(_axis(c)), c.input(0), c.input(1))


@maps("GatherElements", since=11)
def gather_elements(c: Context) -> Value:
    return c(GatherElements(_axis(c)), c.input(0), c.input(1))


@maps("GatherND", since=11)
def gather_nd(c: Context) -> Value:
    return c(GatherNd(c.attr("batch_dims", 0)), c.input(0), c.input(1))


@maps("OneHot", since=9)
def one_hot(c: Context) -> Value:
    axis = normalized_axis(c.attr("axis", -1), c.type(0).rank + 1)
    return c(OneHot(axis, c.const_int(1)), c.input(0), c.input(2))


@maps("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(c: Context) -> Value:
    x = c.type(0)
    chosen = c(Reshape((c.type(1).size,)), c.input(1))
    rows = c.input(0) if x.rank > 1 else c(Reshape((1, x.size)), c.input(0))
    return c(Gather(rows.tensor_type.rank - 1), rows, chosen)


# ------------------------------------------------------------------------------------- scatter
@maps("Scatter", since=9)
@maps("ScatterElements", since=11)
def scatter_elements(c: Context) -> Value:
    op = ScatterElements(_axis(c), c.choice("reduction", "none", REDUCTIONS))
    return c(op, c.input(0), c.input(1), c.input(2))


@maps("ScatterND", since=11)
def scatter_nd(c: Context) -> Value:
    op = ScatterNd(c.choice("reduction", "none", REDUCTIONS))
    return c(op, c.input(0), c.input(1), c.input(2))


@maps("TensorScatter", since=24)
def tensor_scatter(c: Context) -> Value:
    mode = c.choice("mode", "linear", ("linear", "circular"))
    op = TensorScatter(_axis(c, default=-2), mode == "circular")
    starts = c.optional(2)
    if starts is None:
        starts = c.constant([0] * c.type(0).shape[0], i64)
    return c(op, c.input(0), c.input(1), starts)


# -------------------------------------------------------------------------------------- choose
@maps("TopK", since=10)
def top_k(c: Context) -> tuple[Value, ...]:
    return _top_k(c, c.const_int(1))


@maps("TopK")
def top_k_by_attribute(c: Context) -> tuple[Value, ...]:
    return _top_k(c, c.attr("k"))


def _top_k(c: Context, k: int) -> tuple[Value, ...]:
    """Always sorted: without `sorted` any order is allowed."""
    axis = _axis(c, default=-1)
    return c.results(TopK(axis, k, bool(c.attr("largest", 1))), c.input(0))


@maps("ReverseSequence", since=10)
def reverse_sequence(c: Context) -> Value:
    op = ReverseSequence(_axis(c, "time_axis", 0), _axis(c, "batch_axis", 1))
    return c(op, c.input(0), c.input(1))
