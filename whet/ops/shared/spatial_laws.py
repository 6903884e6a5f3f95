"""Attributes in the laws of operators on images, for any number of spatial axes.

Laws are texts, and a text lists a number per axis: `strides=[1, 1]` for images, `[1, 1, 1]` for
volumes.  These functions write such lists for `n` spatial axes.
"""

from __future__ import annotations

SPATIAL = (2, 3)
"""The numbers of spatial axes for which laws are stated: images and volumes."""


def repeated(value: int | str, count: int) -> str:
    """`[1, 1]` for two of 1."""
    return f"[{', '.join([str(value)] * count)}]"


def still(n: int) -> str:
    """Attributes of a window of one element that moves by one: it changes no extent."""
    return f"strides={repeated(1, n)}, pads={repeated(0, 2 * n)}, dilations={repeated(1, n)}"


def per_channel(extent: str, n: int) -> str:
    """The shape of a vector along the channels: `[1, dim(x, 1), 1, 1]`."""
    return f"[1, {extent}, {', '.join(['1'] * n)}]"


def swapped(n: int) -> str:
    """The permutation that exchanges the two leading axes."""
    return f"[1, 0, {', '.join(str(2 + axis) for axis in range(n))}]"


def kernel_of_one(w: str, n: int) -> tuple[str, ...]:
    """That filters have one element in space."""
    return tuple(f"dim({w}, {2 + axis}) == 1" for axis in range(n))


def border(pads: str, n: int) -> str:
    """The pads of `pad` that surround images as `pads` of a window do."""
    first = ", ".join(f"{pads}[{k}]" for k in range(n))
    last = ", ".join(f"{pads}[{n + k}]" for k in range(n))
    return f"[0, 0, {first}, 0, 0, {last}]"


def only_in_space(q: str, n: int) -> str:
    """That `pads` of `pad` leave the batch and the channels as they are."""
    first = ", ".join(f"{q}[{2 + k}]" for k in range(n))
    last = ", ".join(f"{q}[{4 + n + k}]" for k in range(n))
    return f"{q} == [0, 0, {first}, 0, 0, {last}]"


def added(pads: str, more: str, n: int) -> str:
    """The pads of a window around images that `pad` has given a border of `more` already."""
    places = (*range(2, 2 + n), *range(4 + n, 4 + 2 * n))
    return f"[{', '.join(f'{pads}[{k}] + {more}[{at}]' for k, at in enumerate(places))}]"


def strided(x: str, strides: str, n: int) -> str:
    """The slice that takes every so-manieth element in space."""
    stops = ", ".join(f"dim({x}, {axis})" for axis in range(2 + n))
    steps = ", ".join(f"{strides}[{axis}]" for axis in range(n))
    return f"slice({x}, starts={repeated(0, 2 + n)}, stops=[{stops}], steps=[1, 1, {steps}])"
