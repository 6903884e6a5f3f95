"""Resize in its versions, and Upsample."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.graph_fuzz.families.convolution import image
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import DType, f32
from whet.core.types import Shape

FACTORS = [0.5, 0.75, 1.5, 2.0, 2.0, 3.0, 1.25]


def _image(g: Growth, dtypes: tuple[DType, ...]) -> Held:
    v = image(g, dtypes, range(3, 6))
    if not v.size or v.size > 1500:
        raise Impossible
    return v


def _scales(g: Growth, shape: Shape) -> list[float]:
    scales = [1.0, 1.0, *(g.draw.pick(FACTORS) for _ in shape[2:])]
    if any(int(d * s) < 1 for d, s in zip(shape, scales)):
        raise Impossible
    return scales


@generates("Upsample")
def upsample(g: Growth, name: str) -> Held:
    v = _image(g, g.types(name))
    scales = [max(s, 1.0) for s in _scales(g, v.shape)]
    mode = g.draw.pick([None, "nearest", "linear"])
    if g.opset >= 9:
        return g.emit(name, v, g.constant(np.asarray(scales, np.float32)), mode=mode)
    return g.emit(name, v, scales=scales, mode=mode)


@generates("Resize")
def resize(g: Growth, name: str) -> Held:
    if g.opset < 11:
        v = _image(g, g.types(name))
        mode = g.draw.pick([None, "nearest", "linear"])
        return g.emit(name, v, g.constant(np.asarray(_scales(g, v.shape), np.float32)), mode=mode)
    v = _image(g, g.types(name, "T1"))
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    if g.opset >= 19:
        coordinates.append("half_pixel_symmetric")
    given: dict[str, Any] = {
        "mode": g.draw.pick([None, "nearest", "linear", "linear", "cubic"]),
        "coordinate_transformation_mode": g.draw.pick([None, *coordinates]),
    }
    if given["mode"] in (None, "nearest"):
        given["nearest_mode"] = g.draw.pick(
            [None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        )
    if given["mode"] == "cubic":
        if v.rank != 4:
            raise Impossible
        given["cubic_coeff_a"] = g.draw.pick([None, -0.5])
        given["exclude_outside"] = g.draw.pick([None, 0, 1])
    if given["mode"] in ("linear", "cubic") and g.opset >= 18:
        given["antialias"] = g.draw.pick([None, None, 0, 1])
    roi = None
    if g.draw.chance(0.1):
        given["coordinate_transformation_mode"] = "tf_crop_and_resize"
        given["extrapolation_value"] = g.draw.pick([None, 1.5])
        ends = [0.0] * v.rank + [1.0, 1.0] + [g.draw.pick([0.75, 1.0, 1.25]) for _ in v.shape[2:]]
        roi = g.constant(np.asarray(ends, np.float32))
    if roi is None and g.opset < 13:  # an input that may be empty, but not absent
        roi = g.constant(np.zeros(0, np.float32))
    by_scale = g.draw.chance(0.5)
    scales = _scales(g, v.shape)
    if by_scale:
        return g.emit(name, v, roi, g.constant(np.asarray(scales, f32.numpy)), **given)
    sizes = [*v.shape[:2], *(max(1, int(d * s)) for d, s in zip(v.shape[2:], scales[2:]))]
    if g.opset >= 18 and roi is None and g.draw.chance(0.3):
        policy = g.draw.pick([None, "stretch", "not_larger", "not_smaller"])
        axes = list(range(2, v.rank))
        return g.emit(name, v, None, None, g.ints(sizes[2:]), axes=axes,
                      keep_aspect_ratio_policy=policy, **given)  # fmt: skip
    scale = g.constant(np.zeros(0, np.float32)) if g.opset < 13 else None
    return g.emit(name, v, roi, scale, g.ints(sizes), **given)
