"""Pools: the graph inputs that the generator combines, with an alphabet that fits them.

Inputs of one kind are interchangeable, so the generator looks only at graphs that use the
first ones of each kind.  Extents differ wherever operators allow it, so that few equations hold
by coincidence; what remains is tested again at other extents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from whet.core.types import Shape
from whet.superopt.generate.alphabet import CORE, EXTRA, Alphabet, Letter, constants
from whet.superopt.generate.kinds import Kind, plain


@dataclass(frozen=True, slots=True)
class Pool:
    """Named inputs, those of one kind next to each other, and the alphabet."""

    name: str
    inputs: tuple[tuple[str, Kind], ...]
    alphabet: Alphabet
    max_elements: int = 512
    """Larger values are not built."""
    largest: int | None = None
    """Graphs of more operators are not built, if it is said."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind for _, kind in self.inputs)

    def extended(self, *names: str) -> Pool:
        """The pool with further letters (see `EXTRA`) in its alphabet."""
        return self.with_letters("-".join(names), (x for n in names for x in EXTRA[n]))

    def with_letters(self, name: str, letters: Iterable[Letter]) -> Pool:
        """The pool with these letters, under a name that says so."""
        alphabet = self.alphabet.with_letters(letters)
        return replace(self, name=f"{self.name}-{name}", alphabet=alphabet)


def _activations(shape: Shape, *names: str) -> tuple[tuple[str, Kind], ...]:
    return tuple((n, plain(shape, "activation")) for n in names)


def _weights(shape: Shape, *names: str) -> tuple[tuple[str, Kind], ...]:
    return tuple((n, plain(shape, "weight")) for n in names)


def _named(*names: str) -> tuple[Letter, ...]:
    """The letters of the core with these names."""
    return tuple(x for x in CORE if x.name in names)


ROWS, WIDTH, IMAGE = 3, 4, (2, 4, 5, 3)
CONSTANTS = constants(channels=4, matrix=WIDTH, image=IMAGE)

TEN = Pool(
    "ten",
    (
        *_activations((ROWS, WIDTH), "x1", "x2"),
        *_weights((WIDTH, WIDTH), "w1", "w2"),
        *_activations(IMAGE, "i1", "i2"),
        *_weights((4, 4, 3, 3), "k1", "k2"),
        *_weights((4, 4, 1, 3), "m1"),
        *_weights((), "s1"),
    ),
    Alphabet(CORE, CONSTANTS),
)

TWENTY = Pool(
    "twenty",
    (
        *_activations((ROWS, WIDTH), "x1", "x2", "x3"),
        *_weights((WIDTH, WIDTH), "w1", "w2", "w3"),
        *_activations(IMAGE, "i1", "i2", "i3"),
        *_weights((4, 4, 3, 3), "k1", "k2", "k3"),
        *_weights((4, 4, 1, 3), "m1", "m2", "m3"),
        *_weights((4, 4, 3, 1), "n1", "n2", "n3"),
        *_weights((4, 1, 3, 3), "d1"),
        *_weights((), "s1"),
    ),
    Alphabet(CORE, CONSTANTS),
)

GROUPS = Pool(
    "groups",
    (
        *_activations((2, 4, 5, 3), "i1", "i2"),
        *_weights((4, 1, 3, 3), "d1", "d2"),
        *_weights((4, 2, 3, 3), "g1", "g2"),
        *_weights((4, 1, 1, 3), "e1"),
        *_weights((), "s1"),
    ),
    Alphabet(CORE, CONSTANTS[:2]),
)

MATRICES = Pool(
    "matrices",
    (
        *_activations((ROWS, WIDTH), "x1", "x2", "x3"),
        *_weights((WIDTH, WIDTH), "w1", "w2", "w3"),
        *_weights((), "s1"),
    ),
    Alphabet(CORE, CONSTANTS[2:3]),
)

BATCHES = Pool(
    "batches",
    (
        *_activations((2, ROWS, WIDTH), "x1", "x2"),
        *_activations((2, WIDTH, 5), "y1", "y2"),
        *_weights((WIDTH, 5), "w1", "w2"),
        *_weights((), "s1"),
    ),
    Alphabet(CORE),
)

STRIDED = Pool(
    "images",
    (
        *_activations((2, 4, 6, 4), "i1", "i2"),
        *_weights((4, 4, 3, 3), "k1", "k2"),
        *_weights((4, 4, 1, 1), "p1"),
    ),
    Alphabet(CORE),
).extended("strided")

SUMS = Pool(
    "sums",
    (
        *_activations((ROWS, WIDTH), "x1", "x2", "x3"),
        *_activations((2, ROWS, WIDTH), "y1", "y2", "y3"),
        *_activations(IMAGE, "i1", "i2", "i3"),
        *_weights((4, 4, 3, 3), "k1", "k2", "k3"),
    ),
    Alphabet(CORE),
)

CHANNELS = (1, 4, 1, 1)

BIASES = Pool(
    "biases",
    (
        *_activations(IMAGE, "i1", "i2"),
        *_weights((4, 4, 3, 3), "k1", "k2"),
        *_weights(CHANNELS, "b1", "b2"),
    ),
    Alphabet(_named("add", "conv", "concat", "relu", "split", "avg_pool_inside", "max_pool")),
).extended("vectors")

ROW_BIASES = Pool(
    "row_biases",
    (
        *_activations((ROWS, WIDTH), "x1", "x2"),
        *_weights((WIDTH, WIDTH), "w1", "w2"),
        *_weights((WIDTH,), "b1", "b2"),
    ),
    Alphabet(_named("add", "mul", "matmul", "concat", "relu", "split")),
).extended("vectors")

TOKEN_BIASES = Pool(
    "token_biases",
    (
        *_activations((2, ROWS, WIDTH), "x1", "x2"),
        *_weights((WIDTH, WIDTH), "w1", "w2"),
        *_weights((WIDTH,), "b1", "b2"),
    ),
    Alphabet(_named("add", "mul", "matmul", "concat", "relu", "split")),
).extended("vectors")

HEADS = Pool(
    "heads",
    (
        *_activations((2, 2, ROWS, WIDTH), "x1", "x2"),
        *_activations((2, 2, WIDTH, 5), "y1", "y2"),
        *_weights((WIDTH, 5), "w1", "w2"),
        *_weights((), "s1"),
    ),
    Alphabet(_named("add", "mul", "scale", "concat", "relu", "split")),
).extended("heads")

VOLUMES = Pool(
    "volumes",
    (
        *_activations((2, 4, 2, 3, 3), "v1", "v2"),
        *_weights((4, 4, 3, 1, 3), "k1", "k2"),
        *_weights((4, 4, 1, 1, 3), "m1"),
        *_weights((), "s1"),
    ),
    Alphabet(_named("add", "mul", "scale", "conv", "concat", "relu", "split")),
).extended("volumes")

TRANSPOSED = Pool(
    "transposed",
    (
        *_activations((2, 4, 3, 2), "i1", "i2"),
        *_weights((4, 4, 3, 3), "k1", "k2"),
        *_weights((), "s1"),
    ),
    Alphabet(_named("add", "mul", "scale", "concat", "relu", "split")),
).extended("transposed")

WINDOWS = Pool(
    "windows",
    (
        *_activations((2, 4, 6, 4), "i1", "i2"),
        *_weights((4, 4, 3, 3), "k1", "k2"),
        *_weights((4, 4, 1, 1), "p1"),
        *_weights((), "s1"),
    ),
    Alphabet(_named("add", "concat", "relu", "split")),
).extended("valid", "strided", "strided_pools", "clip")

POOLS = {
    p.name.partition("-")[0]: p
    for p in (
        TEN, TWENTY, GROUPS, MATRICES, BATCHES, SUMS, BIASES, ROW_BIASES, TOKEN_BIASES, HEADS,
        VOLUMES, TRANSPOSED, WINDOWS,
    )
} | {"strided": STRIDED}  # fmt: skip
