"""Loops and branches between the kernels of a plan: which bodies run, on which memory.

A body's arrays are numbered, inputs before outputs; the memory that it shares with the rest of the
model is a list of parameters.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """A place in memory: parameter of the flow, and bytes from there on."""

    parameter: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """An array of a body, number `array`: in round t the bytes at base + t * stride.

    `backward` counts the rounds from the last one.
    """

    array: int
    base: Address
    stride: int = 0
    backward: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """A value that a body takes and gives anew.

    It starts at `initial`, ends at `final`, and lies by turns in two other places between.
    """

    taken: int
    given: int
    initial: Address
    final: Address
    turns: tuple[Address, Address]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A body that runs `rounds` times, at least twice."""

    rounds: int
    states: tuple[State, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class While:
    """A body that runs while the byte at `going` is not zero.

    The body gives that byte as array number `flag`, at `next_going`.  A `status` that is not
    zero ends the loop too: after an index outside its tensor nothing says that it ever would.
    """

    going: Address
    flag: int
    next_going: Address
    status: Address
    states: tuple[State, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Choose:
    """The first of two bodies if the byte at `condition` is not zero, else the second."""

    condition: Address
    pieces: tuple[tuple[Piece, ...], tuple[Piece, ...]]


Flow = Repeat | While | Choose
