"""Prices from the best source there is: each origin, what they compare, and how often they ask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from tests.schedule.small_tasks import matmul, matmul_relu
from tests.tune.test_models import QUICK, SHAPES, trials
from whet.core.cpu import PRESETS
from whet.core.outcomes import Outcome
from whet.core.target import Target
from whet.db.record import Record
from whet.db.store import Database
from whet.measure.records import workload_of
from whet.ops.base import Numeric
from whet.schedule.default import default_choice
from whet.schedule.prices import AnalyticPrice
from whet.tasks.price import Estimate, cheaper_together
from whet.tasks.task import Task
from whet.tune.models.kept import keep_model
from whet.tune.models.protocol import make_batch
from whet.tune.models.trees import CorrectionLearner, SummedTrees
from whet.tune.prices import (
    LEARNED_ERROR,
    LEAST_RECORD_ERROR,
    LEAST_TRANSFER_ERROR,
    RecordedPrice,
)
from whet.tune.schedule import Schedules
from whet.tune.space import make_space

TARGET = PRESETS["x86-64-v3"]
THREADS = 2
NEW, DONORS = matmul(24, 32, 16), [matmul(30, 48, 20), matmul(16, 64, 24), matmul(40, 40, 12)]
OTHER = matmul_relu(30, 48, 20)
"""Of another class."""


class Counting(Database):
    """Counts what it is asked."""

    asked = 0

    def best(self, workload: str, target: Target, threads: int) -> Record | None:
        self.asked += 1
        return super().best(workload, target, threads)

    def class_records(
        self, class_key: str, target: Target, threads: int, *, without: str = ""
    ) -> list[Record]:
        self.asked += 1
        return super().class_records(class_key, target, threads, without=without)

    def model(self, target: Target, kind: str) -> bytes | None:
        self.asked += 1
        return super().model(target, kind)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Counting]:
    with Counting(tmp_path / "records.db") as made:
        yield made


def priced(database: Database | None, numerics: Numeric = "real") -> RecordedPrice:
    known = Schedules(TARGET, THREADS, numerics, database)
    return RecordedPrice(AnalyticPrice(TARGET, THREADS, numerics), known)


def analytic(task: Task) -> Estimate:
    found = AnalyticPrice(TARGET, THREADS, "real")(task)
    assert found is not None
    return found


def measured(task: Task, factor: float, rank: int = 0, *, spread: float = 0.0) -> Record:
    """The default of a task, or what comes so many places after it, measured to take so many times
    what was expected."""
    choice = default_choice(task, TARGET, THREADS)
    table = next(
        t for t in make_space(task, TARGET, THREADS).tables if t.sketch == choice.sketch.name
    )
    row = int(np.argsort(table.costs, kind="stable")[rank])
    expected = 1e-9 * float(table.costs[row])
    samples = tuple(expected * factor * float(np.exp(spread * z)) for z in (-1, 0, 1, -1, 1))
    return Record(workload_of(task), TARGET, THREADS, table.sketch, table.candidate(row).holes,
                  Outcome.OK, samples, checked=True, estimate=expected)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rough:
    """Analytic prices that trust themselves less than a learned model."""

    inner: AnalyticPrice = field(default_factory=lambda: AnalyticPrice(TARGET, THREADS, "real"))

    def __call__(self, task: Task) -> Estimate | None:
        found = self.inner(task)
        return None if found is None else replace(found, error=2 * LEARNED_ERROR)

    def between(self, nbytes: int) -> float:
        return self.inner.between(nbytes)

    def prefers(self, together: Task, apart: Sequence[Task], nbytes: int) -> bool:
        return self.inner.prefers(together, apart, nbytes)


def teach(database: Database) -> SummedTrees:
    model = CorrectionLearner(settings=QUICK).fit(trials(SHAPES))
    assert isinstance(model, SummedTrees)
    keep_model(database, TARGET, model, 480)
    return model


# ---------------------------------------------------------------------------------- each origin
def test_without_a_database_prices_are_analytic() -> None:
    price = priced(None)
    assert price(NEW) == analytic(NEW)
    assert price.between(1 << 20) == AnalyticPrice(TARGET, THREADS, "real").between(1 << 20)


def test_an_empty_database_knows_no_better(database: Counting) -> None:
    assert priced(database)(NEW) == analytic(NEW)


def test_what_was_measured_is_the_price(database: Counting) -> None:
    database.add([measured(NEW, 3.0), *(measured(t, 7.0) for t in DONORS)])
    found = priced(database)(NEW)
    assert found is not None
    assert found.origin == "record"
    assert found.seconds == pytest.approx(3.0 * analytic(NEW).seconds)
    assert found.error == LEAST_RECORD_ERROR


def test_the_best_candidate_counts_and_samples_say_how_sure_it_is(database: Counting) -> None:
    best = measured(NEW, 0.5, rank=1, spread=0.4)
    database.add([measured(NEW, 3.0), best])
    found = priced(database)(NEW)
    assert found is not None
    assert found.seconds == pytest.approx(best.seconds)
    assert LEAST_RECORD_ERROR < found.error < 0.4  # the median of samples is surer than each


def test_tasks_of_the_class_correct_the_analytic_price(database: Counting) -> None:
    """By the median, so that one outlier says little; of each task the default speaks."""
    factors = (2.0, 2.2, 40.0)
    database.add([measured(task, factor) for task, factor in zip(DONORS, factors)])
    database.add([measured(task, 0.1, rank=1) for task in DONORS])
    found = priced(database)(NEW)
    assert found is not None
    assert found.origin == "transfer"
    assert found.seconds == pytest.approx(2.2 * analytic(NEW).seconds)
    assert found.error > 0.5


def test_one_task_of_the_class_is_enough(database: Counting) -> None:
    database.add([measured(DONORS[0], 2.0)])
    assert priced(database)(NEW) == Estimate(
        pytest.approx(2.0 * analytic(NEW).seconds), "transfer", LEAST_TRANSFER_ERROR
    )


def test_what_says_nothing_about_a_class_is_left_out(database: Counting) -> None:
    """Another class, another number of threads, no estimate, a failure."""
    donor = measured(DONORS[0], 2.0)
    database.add([
        measured(OTHER, 2.0), replace(donor, threads=1),
        replace(donor, estimate=None), replace(donor, outcome=Outcome.CRASH, samples=()),
    ])  # fmt: skip
    assert priced(database)(NEW) == analytic(NEW)


def test_sketches_that_numerics_forbid_say_nothing(database: Counting) -> None:
    database.add([replace(measured(task, 2.0), sketch="winograd") for task in DONORS])
    exact = priced(database, "exact")(NEW)
    assert exact is not None
    assert exact.origin == "analytic"


def test_a_kept_model_corrects_what_it_knows_better(database: Counting) -> None:
    model = teach(database)
    price = RecordedPrice(Rough(), Schedules(TARGET, THREADS, "real", database))
    found = price(NEW)
    choice = default_choice(NEW, TARGET, THREADS)
    holes = {hole: np.array([value]) for hole, value in choice.holes.items()}
    (score,) = model.scores(make_batch(NEW, choice.sketch.name, holes, TARGET, THREADS))
    assert found == Estimate(pytest.approx(float(np.exp(-score))), "learned", LEARNED_ERROR)


def test_a_model_that_is_less_sure_is_not_asked(database: Counting) -> None:
    teach(database)
    assert priced(database)(NEW) == analytic(NEW)


def test_what_no_sketch_fits_has_no_price(database: Counting) -> None:
    class Nothing(AnalyticPrice):
        def __call__(self, task: Task) -> Estimate | None:
            return None

    database.add([measured(NEW, 2.0)])
    nothing = Nothing(TARGET, THREADS, "real")
    assert RecordedPrice(nothing, Schedules(TARGET, THREADS, "real", database))(NEW) is None
    assert database.asked == 0


# ---------------------------------------------------------------------------------- comparisons
def test_a_measured_time_is_not_compared_with_an_estimate(database: Counting) -> None:
    """The side that is expected to be cheaper was measured to take long, the other never."""
    expected = AnalyticPrice(TARGET, THREADS, "real").prefers(OTHER, DONORS, 0)
    database.add([measured(task, 50.0) for task in ([OTHER] if expected else DONORS)])
    price = priced(database)
    assert cheaper_together(price, OTHER, DONORS, 0) is not expected  # the unfair comparison
    assert price.prefers(OTHER, DONORS, 0) is expected


def test_where_both_ways_were_measured_that_decides(database: Counting) -> None:
    expected = AnalyticPrice(TARGET, THREADS, "real").prefers(OTHER, DONORS, 0)
    slow, fast = ([OTHER], DONORS) if expected else (DONORS, [OTHER])
    database.add([measured(task, 50.0) for task in slow])
    database.add([measured(task, 0.01) for task in fast])
    assert priced(database).prefers(OTHER, DONORS, 0) is not expected


# ------------------------------------------------------------------------------------- questions
def test_a_second_question_is_not_put_to_the_database(database: Counting) -> None:
    database.add([measured(DONORS[0], 2.0)])
    price = priced(database)
    first = price(NEW), price(DONORS[0])
    asked = database.asked
    assert asked == 3  # a record of each, and the class
    assert (price(NEW), price(DONORS[0])) == first
    assert price(DONORS[1]) is not None
    assert database.asked == asked + 1  # its record; the class is known


def test_a_model_is_read_once(database: Counting) -> None:
    teach(database)
    price = RecordedPrice(Rough(), Schedules(TARGET, THREADS, "real", database))
    price(NEW)
    asked = database.asked
    assert asked == 3  # its record, its class and the model
    price(DONORS[0])
    assert database.asked == asked + 1  # its record
