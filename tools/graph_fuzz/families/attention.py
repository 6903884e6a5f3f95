"""Attention in its forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.graph_fuzz.families.subgraphs import grow_body
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import DType, bool_
from whet.core.types import Shape


@generates("Attention")
def attention(g: Growth, name: str) -> Held | list[Held]:
    dtype = g.dtype(g.types(name, "T1"))
    batch, groups, shared = g.draw.integer(1, 2), g.draw.pick([1, 1, 2, 3]), g.draw.pick([1, 1, 2])
    heads = groups * shared
    length, keys = g.draw.pick([1, 2, 3, 5, 7, 17]), g.draw.pick([1, 3, 4, 5, 17])
    size, v_size = g.draw.pick([1, 3, 4, 8, 17]), g.draw.pick([1, 4, 5, 8])
    flat = g.draw.chance(0.3)

    def operand(count: int, rows: int, width: int) -> Held:
        shape = (batch, rows, count * width) if flat else (batch, count, rows, width)
        return g.same(dtype, shape, 0.2)

    q, k, v = (
        operand(heads, length, size),
        operand(groups, keys, size),
        operand(groups, keys, v_size),
    )
    given: dict[str, Any] = {}
    if flat:
        given = {"q_num_heads": heads, "kv_num_heads": groups}
    past: list[Held | None] = [None, None]
    total = keys
    if g.draw.chance(0.25):
        before = g.draw.integer(1, 4)
        past = [g.same(dtype, (batch, groups, before, w), 0.2) for w in (size, v_size)]
        total += before
    mask = None
    if g.draw.chance(0.5):
        mask = _mask(g, dtype, (batch, heads, length, total))
    given["is_causal"] = g.draw.pick([None, 0, 1])
    if g.draw.chance(0.3):
        given["scale"] = 0.25
    if g.draw.chance(0.2):
        given["softcap"] = 2.0
    outputs = 3 if past[0] is not None else 1
    if g.draw.chance(0.15):
        outputs, given["qk_matmul_output_mode"] = 4, g.draw.integer(0, 3)
        if past[0] is None:
            raise Impossible
    return g.emit(name, q, k, v, mask, *past, outputs=outputs, **given)


def _mask(g: Growth, dtype: DType, full: Shape) -> Held:
    """A mask of truth values or of numbers; every query sees some key."""
    shape = full[-2:] if g.draw.chance(0.5) else tuple(
        d if n >= 2 or g.draw.chance(0.5) else 1 for n, d in enumerate(full))  # fmt: skip
    if g.draw.chance(0.5):
        seen = g.draw.rng.integers(0, 2, shape).astype(np.bool_)
        seen[..., 0] = True
        return g.operand(seen)
    assert dtype != bool_
    return g.same(dtype, shape)


@generates("RotaryEmbedding")
def rotary(g: Growth, name: str) -> Held:
    dtype = g.dtype(g.types(name))
    batch, heads, length = g.draw.integer(1, 2), g.draw.integer(1, 3), g.draw.pick([1, 3, 5])
    size = 2 * g.draw.integer(1, 4)
    turned = g.draw.pick([None, 2 * g.draw.integer(1, size // 2)])
    half = (turned or size) // 2
    flat = g.draw.chance(0.4)
    x = g.same(dtype, (batch, length, heads * size) if flat else (batch, heads, length, size), 0.2)
    places = None
    shape: Shape = (batch, length, half)
    if g.draw.chance(0.5):
        rows = length + 3
        index = g.draw.rng.integers(0, rows, (batch, length)).astype(np.int64)
        places, shape = g.operand(index), (rows, half)
    cos, sin = g.fresh(dtype, shape, 0.7), g.fresh(dtype, shape, 0.7)
    return g.emit(name, x, cos, sin, places, interleaved=g.draw.pick([None, 0, 1]),
                  rotary_embedding_dim=turned, num_heads=heads if flat else None)  # fmt: skip


@generates("LinearAttention")
def linear_attention(g: Growth, name: str) -> Held | list[Held]:
    dtype = g.dtype(g.types(name))
    batch, heads, length = g.draw.integer(1, 2), g.draw.integer(1, 2), g.draw.integer(1, 5)
    size = g.draw.pick([1, 3, 4])
    q, k, v = (g.same(dtype, (batch, length, heads * size), 0.2) for _ in range(3))
    return g.emit(name, q, k, v, outputs=2, q_num_heads=heads, kv_num_heads=heads,
                  update_rule="linear")  # fmt: skip


@generates("FlexAttention", domain="ai.onnx.preview")
def flex_attention(g: Growth, name: str) -> Held:
    if g.opset < 15:  # its body uses operators of that set
        raise Impossible
    dtype = g.dtype(g.types(name, "T1", "ai.onnx.preview"))
    batch, groups, shared = g.draw.integer(1, 2), g.draw.pick([1, 1, 2]), g.draw.pick([1, 2])
    length, keys, size = g.draw.pick([1, 3, 5]), g.draw.pick([1, 3, 5, 17]), g.draw.pick([1, 4, 5])
    q = g.same(dtype, (batch, groups * shared, length, size), 0.2)
    k, v = (g.same(dtype, (batch, groups, keys, size), 0.2) for _ in range(2))
    scores = g.array(dtype, (batch, groups * shared, length, keys))
    bodies = {
        stage: grow_body(g, [scores], states=[Held("", scores).type], closed=True).graph
        for stage in g.draw.some(["score_mod", "prob_mod"], 0.5)
    }
    return g.emit(
        name, q, k, v, domain="ai.onnx.preview", scale=g.draw.pick([None, 0.25]), **bodies
    )
