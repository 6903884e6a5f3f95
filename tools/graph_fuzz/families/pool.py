"""Pools, regions of interest and sampling."""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.families.convolution import draw_window, image
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import i64


@generates("MaxPool", "AveragePool", "LpPool")
def pool(g: Growth, name: str) -> Held | list[Held]:
    x = image(g, g.types(name))
    if not x.size:
        raise Impossible
    dilate = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[name] <= g.opset
    window = draw_window(g, x.shape[2:], pool=True, dilate=dilate)
    given = window.attributes(g, dilations=dilate)
    ceil = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[name] <= g.opset
    if ceil and not window.auto_pad:
        given["ceil_mode"] = g.draw.pick([None, 0, 1])
    if name == "AveragePool":
        given["count_include_pad"] = g.draw.pick([None, 0, 1])
    if name == "LpPool":
        given["p"] = g.draw.pick([None, 1, 2, 3])
    if name == "MaxPool" and g.opset >= 8 and g.draw.chance(0.2):
        return g.emit(name, x, outputs=2, storage_order=g.draw.pick([None, 0, 1]), **given)
    return g.emit(name, x, **given)


@generates("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(g: Growth, name: str) -> Held:
    x = image(g, g.types(name))
    if not x.size:
        raise Impossible
    return g.emit(name, x, p=g.draw.pick([None, 1, 2]) if name == "GlobalLpPool" else None)


@generates("MaxUnpool")
def max_unpool(g: Growth, name: str) -> Held:
    """Of what a pool without overlap has given."""
    x = image(g, g.types(name, "T1"), range(4, 5))
    kernel = tuple(g.draw.integer(1, min(3, d)) if d else 1 for d in x.shape[2:])
    if not x.size or x.dtype not in g.types("MaxPool"):
        raise Impossible
    largest, places = g.emit("MaxPool", x, outputs=2, kernel_shape=kernel, strides=kernel)
    wanted = None
    if g.draw.chance(0.4):
        room = (d * k + g.draw.integer(0, 2) for d, k in zip(largest.shape[2:], kernel))
        wanted = g.ints([*x.shape[:2], *room])
    if any(d % k for d, k in zip(x.shape[2:], kernel)):
        raise Impossible  # places count in the pooled image, which must be the whole one
    return g.emit(name, largest, places, wanted, kernel_shape=kernel, strides=kernel)


def _boxes(g: Growth, x: Held, count: int) -> np.ndarray:
    """Corners of boxes in an image, on a grid that no sample point shares."""
    height, width = x.shape[2:]
    rng = g.draw.rng
    starts = np.stack([rng.integers(0, max(width - 1, 1), count),
                       rng.integers(0, max(height - 1, 1), count)], 1)  # fmt: skip
    sizes = rng.integers(1, 5, (count, 2))
    return np.concatenate([starts, starts + sizes], 1)


@generates("MaxRoiPool")
def max_roi_pool(g: Growth, name: str) -> Held:
    x = image(g, g.types(name), range(4, 5))
    count = g.draw.integer(1, 3)
    if not x.size:
        raise Impossible
    batch = g.draw.rng.integers(0, x.shape[0], (count, 1))
    rois = np.concatenate([batch, _boxes(g, x, count)], 1).astype(x.dtype.numpy)
    return g.emit(name, x, g.operand(rois),
                  pooled_shape=[g.draw.integer(1, 3), g.draw.integer(1, 3)])  # fmt: skip


@generates("RoiAlign")
def roi_align(g: Growth, name: str) -> Held:
    x = image(g, g.types(name, "T1"), range(4, 5))
    count = g.draw.integer(1, 3)
    if not x.size:
        raise Impossible
    rois = (_boxes(g, x, count) + 0.3).astype(x.dtype.numpy)
    batch = g.draw.rng.integers(0, x.shape[0], count).astype(np.int64)
    mode = None
    if g.opset >= 16:
        mode = g.draw.pick([None, "half_pixel", "output_half_pixel"])
    return g.emit(
        name, x, g.operand(rois), g.operand(batch), mode=g.draw.pick([None, "avg", "max"]),
        output_height=g.draw.integer(1, 3), output_width=g.draw.integer(1, 3),
        sampling_ratio=g.draw.pick([None, 0, 1, 2]), coordinate_transformation_mode=mode,
        spatial_scale=g.draw.pick([None, 0.5]),
    )  # fmt: skip


@generates("GridSample")
def grid_sample(g: Growth, name: str) -> Held:
    ranks = range(3, 6) if g.opset >= 20 else range(4, 5)
    x = image(g, tuple(d for d in g.types(name, "T1") if d in g.types(name, "T2")), ranks)
    space = x.rank - 2
    if not x.size or (space == 1 and g.opset >= 20) or x.size > 2500:
        raise Impossible
    shape = (x.shape[0], *g.shape(space, extent=5, most=40), space)
    grid = g.draw.rng.integers(-9, 10, shape) / 8.0 + 0.013
    modes = ["linear", "nearest", "cubic"] if g.opset >= 20 else ["bilinear", "nearest", "bicubic"]
    mode = g.draw.pick([None, *modes])
    if mode in ("cubic", "bicubic") and space != 2:
        mode = None
    dtype = x.dtype if g.opset < 20 or x.dtype in g.types(name, "T2") else i64
    return g.emit(
        name, x, g.operand(grid.astype(dtype.numpy)), mode=mode,
        padding_mode=g.draw.pick([None, "zeros", "border", "reflection"]),
        align_corners=g.draw.pick([None, 0, 1]),
    )  # fmt: skip
