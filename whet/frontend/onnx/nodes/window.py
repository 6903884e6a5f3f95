"""The window attributes of ONNX convolutions and pools, with every default written out."""

from __future__ import annotations

from whet.core.types import Shape
from whet.frontend.onnx.mapping import Context
from whet.ops.shared.window import Window


def read_window(c: Context, spatial: Shape, kernel: Shape) -> Window:
    """strides, pads and dilations of the node; `auto_pad` is resolved for this input.

    SAME_UPPER and SAME_LOWER pad so that there are ceil(input / stride) outputs; an odd
    element goes to the end or to the begin.
    """
    strides = per_axis(c, "strides", spatial)
    dilations = per_axis(c, "dilations", spatial)
    if len(kernel) != len(spatial):
        c.unsupported(f"kernel {list(kernel)} does not fit {len(spatial)} spatial axes")
    window = Window(kernel, strides, explicit_pads(c, spatial), dilations)
    match c.attr("auto_pad", "NOTSET"):
        case "NOTSET" | "":
            return window
        case "VALID":
            totals: Shape = (0,) * len(spatial)
        case "SAME_UPPER" | "SAME_LOWER":
            totals = tuple(
                max(0, (-(-i // s) - 1) * s + span - i)
                for i, s, span in zip(spatial, strides, window.spans)
            )
        case other:
            c.unsupported(f"auto_pad '{other}'")
    return Window(kernel, strides, split_padding(c, totals), dilations)


def split_padding(c: Context, totals: Shape) -> Shape:
    """Total padding per axis as begins and ends: SAME_UPPER puts an odd element at the end."""
    halves, rests = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return halves + rests if c.attr("auto_pad") == "SAME_UPPER" else rests + halves


def per_axis(c: Context, name: str, spatial: Shape, least: int = 1) -> Shape:
    """An attribute with one number for each spatial axis, by default the least possible."""
    values = c.attr(name) or [least] * len(spatial)
    if len(values) != len(spatial) or min(values, default=least) < least:
        c.unsupported(f"{name} {list(values)} do not fit {len(spatial)} spatial axes")
    return tuple(values)


def explicit_pads(c: Context, spatial: Shape) -> Shape:
    """The `pads` attribute: begins, then ends."""
    values = c.attr("pads") or [0] * 2 * len(spatial)
    if len(values) != 2 * len(spatial):
        c.unsupported(f"pads {list(values)} do not fit {len(spatial)} spatial axes")
    return tuple(values)
