"""Named inputs and outputs, and where their tensors lie in a flat list.

Most ports are one tensor.  A sequence is a tuple of structures, an absent optional is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.types import Array

Structure = int | tuple["Structure", ...] | None
"""A tensor is its position in the flat list."""


@dataclass(frozen=True, slots=True)
class Port:
    """One value that a caller gives or gets."""

    name: str
    structure: Structure


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why values do not fit; `fixable` if compiling again for them could help."""

    reason: str
    fixable: bool
    hint: str | None = None


def leaves(structure: Structure) -> Iterator[int]:
    """The positions in a structure, in order."""
    if isinstance(structure, tuple):
        for item in structure:
            yield from leaves(item)
    elif structure is not None:
        yield structure


def pack(structure: Structure, arrays: Sequence[Array]) -> Any:
    """The value of a port: an array, a list of values, or None."""
    if structure is None:
        return None
    if isinstance(structure, tuple):
        return [pack(item, arrays) for item in structure]
    return arrays[structure]


def unpack(port: Port, value: Any, place: Callable[[int, str, Any], None]) -> Misfit | None:
    """Calls `place` with position, name and value of every tensor in the value of a port.

    Returns what is wrong when the value has another structure, else None.
    """
    structure = port.structure
    is_sequence = isinstance(value, (list, tuple))
    if isinstance(structure, int) and value is not None and not is_sequence:
        place(structure, port.name, value)
        return None
    if isinstance(structure, tuple) and is_sequence:
        if len(value) != len(structure):
            reason = f"input '{port.name}' has {len(structure)} items, got {len(value)}"
            return Misfit(reason, fixable=True)
        found = (
            unpack(Port(f"{port.name}[{n}]", inner), item, place)
            for n, (inner, item) in enumerate(zip(structure, value))
        )
        return next((misfit for misfit in found if misfit is not None), None)
    if structure is None and value is None:
        return None
    expected = {int: "a tensor", tuple: "a sequence"}.get(type(structure), "absent")
    reason = f"input '{port.name}' is {expected}, got {type(value).__name__}"
    # Only an optional input can be present in one call and absent in another.
    return Misfit(reason, fixable=structure is None or value is None)
