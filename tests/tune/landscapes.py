"""Tables whose true times are known, and searches on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.cpu import PRESETS
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.space.sketch import Population, Sketch
from whet.tune.policies import POLICIES as OTHERS, Policy
from whet.tune.policies.annealing import Annealing
from whet.tune.policies.bandit import SketchBandit
from whet.tune.policies.beam import Beam
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.policies.evolution import Evolution
from whet.tune.policies.verify import DraftThenVerify
from whet.tune.space import Offer, Row, Space, Table
from whet.tune.timing import Timing

PLAIN: dict[str, Callable[[], Policy]] = {
    "learned": lambda: ExploreThenDroplet(Evolution()),
    "evolution": Evolution,
    "verify": DraftThenVerify,
    "bandit": SketchBandit,
    "annealing": Annealing,
    "beam": Beam,
}
POLICIES = {**OTHERS, **PLAIN}
"""All policies, but without learned models: made-up sketches have no features."""

Truth = Callable[[Mapping[str, Array]], Array]
"""Seconds of candidates."""
TARGET = PRESETS["x86-64-v3"]


def grid(**extents: int) -> Population:
    """Every combination of values from 0 below the extents."""
    axes = np.meshgrid(*(np.arange(n) for n in extents.values()), indexing="ij")
    return {name: axis.ravel() for name, axis in zip(extents, axes)}


def space_of(*tables: Table) -> Space:
    return Space(None, tables)  # type: ignore[arg-type]


def bowl(center: Mapping[str, float], slope: float = 1.0) -> Truth:
    """Microseconds that grow with the square of the distance from the center."""

    def seconds(holes: Mapping[str, Array]) -> Array:
        return 1e-6 * (100.0 + slope * sum((holes[h] - c) ** 2 for h, c in center.items()))

    return seconds


@dataclass(frozen=True)
class Valley(Sketch[Any, Any]):
    """An open sketch: factors of an extent that must divide it together, priced by a formula."""

    name: str = "valley"
    numeric: Numeric = "exact"
    structure = ("order",)
    is_open = True
    extent: int = 2**12
    center: tuple[float, ...] = (5.0, 2.0, 3.0)

    def fits(self, task: object) -> object:
        return self

    def space(self, form: object, target: object, threads: int) -> Population:
        """A sample: few of the rows, but every value."""
        rng = np.random.default_rng(5)
        powers = 2 ** rng.integers(0, 9, size=(256, 3))
        powers[:9] = 2 ** np.arange(9)[:, None]
        holes = dict(zip(("i.outer", "i.inner", "j"), powers.T))
        holes["order"] = rng.integers(0, 4, size=256)
        keep = self.legal(form, target, threads, holes)
        keep[:9] = self.legal(form, target, threads, {h: c[:9] for h, c in holes.items()})
        return {name: column[keep] for name, column in holes.items()}

    def legal(self, form: object, target: object, threads: int, population: Population) -> Array:
        return population["i.outer"] * population["i.inner"] <= self.extent

    def costs(self, form: object, target: object, threads: int, population: Population) -> Array:
        factors = ("i.outer", "i.inner", "j")
        away = sum(
            (np.log2(population[f]) - c) ** 2 for f, c in zip(factors, self.center)
        )  # fmt: skip
        return np.asarray(1e3 * (1.0 + away + np.abs(population["order"] - 2)))

    def lower(self, form: object, holes: object, name: str) -> Any:
        raise AssertionError("a landscape has no kernels")


def open_table(sketch: Valley | None = None) -> Table:
    made: Any = sketch or Valley()
    offer = Offer(None, made, made, TARGET, 1)  # type: ignore[arg-type]
    holes = made.space(made, TARGET, 1)
    return Table(made.name, holes, offer.price(holes), offer)


def search(
    policy: Policy,
    space: Space,
    truth: Truth,
    trials: int,
    seed: int,
    noise: float = 0.0,
) -> dict[Row, Timing]:
    """What a policy finds; every trial gives five samples.  Proposals must be new and legal."""
    rng, weather = np.random.default_rng(seed), np.random.default_rng(seed + 1000)
    known: dict[Row, Timing] = {}
    while len(known) < trials:
        asked = min(8, trials - len(known))
        rows = policy.propose(space, known, asked, rng)
        if not rows:
            break
        assert len(rows) <= asked
        assert not set(rows) & set(known), "a candidate was proposed twice"
        assert len(set(rows)) == len(rows)
        for number, row in rows:
            table = space.tables[number]
            assert table.legal(table.matrix[row][None]).all()
            holes = {h: np.asarray(v) for h, v in table.candidate(row).holes.items()}
            seconds = float(truth(holes))
            samples = seconds * (1 + noise * weather.random(5))
            known[number, row] = Timing(samples if np.isfinite(seconds) else ())
    return known
