"""Laws of contractions on GPUs fitted to measured kernels, and trees of what they get wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from lightgbm import Booster
from scipy.optimize import least_squares

from harness.gpu_kernels import TARGET, Layer
from harness.gpu_trees import lines_of
from whet.core.types import Array
from whet.schedule.cost.trees import read_trees
from whet.schedule.families.gpu_contraction.correction import Correction, columns_of
from whet.schedule.families.gpu_contraction.estimate import Work, estimate
from whet.schedule.families.gpu_contraction.law import Law
from whet.schedule.families.gpu_contraction.match import FFMA, FP32X3, MMA, TF32, Leaf
from whet.schedule.families.gpu_contraction.space import HOLES
from whet.schedule.space.sketch import Population
from whet.tune.models.boosting import Rows, TreeSettings, grow

LAUNCHES = {
    FFMA.name: ("us",), MMA.name: ("us", "pdl"), TF32.name: ("us", "pdl"),
    FP32X3.name: ("us", "pdl"),
}  # fmt: skip
"""The times that a leaf's law is fitted to; the last one is what it is judged by."""
RATES = {FFMA.name: 300.0, MMA.name: 3000.0, TF32.name: 2500.0, FP32X3.name: 800.0}
START = Law(
    start=400, late=800, spread=0.5, wave=900, step=50, arrival=150, rate=0, hidden=0.6, reuse=10,
    near=100, store=2000, finish=100, split=500, rank=30, crowd=80,
)  # fmt: skip
"""From where the fit starts, and what holds terms that the kernels say nothing about."""
HOLD = 0.005
"""How strongly: for every hundred kernels, the weight of a factor of e."""
REACH = 4.0
"""How far from there a term may go, as a logarithm."""
TREES = TreeSettings(rounds=320, leaves=8, rate=0.1, least_rows=20, columns=0.5)
OWN = 4.0
"""The weight of whet's own kernels: there are fewer of them, and it is their times that count."""
LIMIT = 0.25
"""The largest logarithm by which trees change an estimate."""


@dataclass(frozen=True, eq=False)
class Kernels:
    """Kernels of several layers and ways of launching, in one table."""

    work: Work
    holes: Population
    rows: Array
    """Rows of their layers' products."""
    times: Array
    weights: Array
    """How much each counts: 1 for the fastest kernel of the same layer and way of launching, if
    others measured it."""

    def by_law(self, law: Law, leaf: Leaf) -> Array:
        return estimate(self.work, law, leaf, TARGET, self.holes)

    def columns(self, total: Array, law: Law) -> dict[str, Array]:
        return columns_of(total, self.work, law, TARGET, self.holes, self.rows)


@dataclass(frozen=True, eq=False)
class Model:
    """A law, what corrects it, and the trees of that as text."""

    leaf: Leaf
    law: Law
    correction: Correction
    lines: tuple[str, ...]
    tiles: Array
    """Registers of a thread as a linear function of its tile."""

    def by_law(self, layer: Layer) -> Array:
        """Nanoseconds of a layer's kernels, launched as they are judged."""
        return self._kernels(layer).by_law(self.law, self.leaf)

    def expected(self, layer: Layer) -> Array:
        """The same, corrected."""
        total, shape = self.by_law(layer), layer.shape
        if not self.correction.knows(shape.rows, shape.columns, shape.depth):
            return total
        columns = self._kernels(layer).columns(total, self.law)
        matrix = np.stack([columns[name] for name in self.correction.trees.columns], axis=1)
        return total * self.correction.factors(matrix)

    def _kernels(self, layer: Layer) -> Kernels:
        return gathered([layer], LAUNCHES[self.leaf.name][-1:], self.tiles)


def gathered(layers: Sequence[Layer], launches: Sequence[str], tiles: Array) -> Kernels:
    """The kernels of all layers in all of these ways."""
    pairs = [(layer.measured(launch), launch) for layer in layers for launch in launches]
    pairs = [(layer, launch) for layer, launch in pairs if len(layer)]
    works = [layer.work(launch, registers(layer, tiles)) for layer, launch in pairs]
    holes = [layer.holes(launch) for layer, launch in pairs]
    times = [layer.times[launch] for layer, launch in pairs]
    names = [field.name for field in dataclasses.fields(Work)]
    return Kernels(
        Work(**{name: np.concatenate([getattr(w, name) for w in works]) for name in names}),
        {name: np.concatenate([h[name] for h in holes]) for name in HOLES},
        np.concatenate([np.full(len(layer), layer.shape.rows) for layer, _ in pairs]),
        np.concatenate(times),
        np.concatenate(
            [
                (OWN if layer.is_own else 1.0) * t.min() / t
                for (layer, _), t in zip(pairs, times, strict=True)
            ]
        ),
    )


def fit(leaf: Leaf, layers: Sequence[Layer]) -> Model:
    """The law of these layers, and trees of what it gets wrong about them."""
    tiles = fit_tiles(layers)
    kernels = gathered(layers, LAUNCHES[leaf.name], tiles)
    law = fit_law(leaf, kernels)
    total = kernels.by_law(law, leaf)
    columns = kernels.columns(total, law)
    names = [name for name, column in columns.items() if (column != column[0]).any()]
    matrix = np.stack([columns[name] for name in names], axis=1)
    wanted, weights = np.log(kernels.times / total), kernels.weights

    def gradient(predicted: Array) -> tuple[Array, Array]:
        return weights * (predicted - wanted), weights

    made, _ = grow(TREES, Rows(matrix), gradient)
    lines = lines_of(Booster(model_str=made.text), names)
    shapes = [dataclasses.astuple(layer.shape) for layer in layers]
    sizes = np.array([[m, n, k, m * n * k] for m, n, k in shapes])
    correction = Correction(read_trees(names, lines), sizes.min(axis=0), sizes.max(axis=0), LIMIT)
    return Model(leaf, law, correction, tuple(lines), tiles)


def fit_law(leaf: Leaf, kernels: Kernels) -> Law:
    """The law with the least squares of errors of logarithms, weighted by how fast kernels are."""
    start = dataclasses.replace(START, rate=RATES[leaf.name], reuse=10 if leaf.is_matrix else 1)
    fixed = {"late": 0.0, "spread": 0.0} if len(LAUNCHES[leaf.name]) == 1 else {}
    given = {k: v for k, v in dataclasses.asdict(start).items() if k not in fixed}
    hold = HOLD * np.sqrt(len(kernels.times) / 100)
    first = np.log(list(given.values()))

    def law_at(logs: Array) -> Law:
        return Law(**dict(zip(given, np.exp(logs).tolist())), **fixed)

    def errors(logs: Array) -> Array:
        wrong = np.log(kernels.by_law(law_at(logs), leaf) / kernels.times)
        return np.concatenate([kernels.weights * wrong, hold * (logs - first)])

    found = least_squares(errors, first, bounds=(first - REACH, first + REACH), max_nfev=60)
    return rounded(law_at(found.x))


def rounded(law: Law) -> Law:
    """The law with three digits of every constant."""
    return Law(**{k: float(f"{v:.3g}") for k, v in dataclasses.asdict(law).items()})


def fit_tiles(layers: Sequence[Layer]) -> Array:
    """Registers of these kernels by the tiles of their threads or warps."""
    terms = np.concatenate([_tile_terms(layer) for layer in layers])
    taken = np.concatenate([layer.registers for layer in layers])
    return np.asarray(np.linalg.lstsq(terms, taken, rcond=None)[0])


def registers(layer: Layer, tiles: Array) -> Array:
    """What kernels are expected to take."""
    return np.rint(_tile_terms(layer) @ tiles).astype(np.int64)


def _tile_terms(layer: Layer) -> Array:
    _, _, tm, tn, *_ = layer.sizes.T
    return np.stack([np.ones(len(tm)), tm * tn, tm, tn], axis=1)
