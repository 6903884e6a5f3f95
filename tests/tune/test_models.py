"""Cost models: what they learn from times that are made up, and how they are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.schedule.small_tasks import matmul
from whet.core.cpu import PRESETS
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.db.store import Database
from whet.ops.base import Numeric
from whet.schedule.space.registry import find_sketch
from whet.schedule.space.sketch import Sketch
from whet.tune.models.analytic import Analytic
from whet.tune.models.boosting import TreeSettings
from whet.tune.models.kept import KIND, keep_if_wiser, keep_model, kept_model
from whet.tune.models.protocol import Batch, CostModel, Learner, Trials, make_batch
from whet.tune.models.ranking import RankingLearner, discount_after
from whet.tune.models.samples import gather
from whet.tune.models.trees import (
    CorrectionLearner,
    SummedTrees,
    ThroughputLearner,
    _correction_error,
    _gradient,
    _weights,
)
from whet.tune.policies.judge import learned
from whet.tune.space import Space, make_space
from whet.tune.timing import Timing

TARGET = PRESETS["x86-64-v3"]
QUICK = TreeSettings(rounds=40, least_rows=3)
SHAPES = [
    (24, 32, 16), (30, 48, 20), (16, 64, 24), (40, 40, 12), (28, 56, 32), (20, 96, 28),
    (36, 24, 18), (48, 32, 10), (18, 72, 14), (26, 48, 36), (44, 64, 22), (32, 80, 26),
]  # fmt: skip


def drawn(shape: tuple[int, int, int], count: int, seed: int = 0) -> Batch:
    task, sketch = matmul(*shape), find_sketch("contraction")
    holes = sketch.space(sketch.fits(task), TARGET, 2)
    rows = np.random.default_rng(seed).integers(0, len(holes["mr"]), count)
    few = {name: column[rows] for name, column in holes.items()}
    return make_batch(task, "contraction", few, TARGET, 2)


def made_up(batch: Batch) -> Array:
    """The analytic model would be right, were it not that many rows in a tile are bad."""
    slow = 1.0 + 3.0 * (batch.holes["mr"] > 4) + 0.5 * (batch.holes["nv"] == 1)
    return batch.draft * slow


def trials(shapes: list[tuple[int, int, int]], count: int = 40, seed: int = 0) -> list[Trials]:
    found = [drawn(shape, count, seed + n) for n, shape in enumerate(shapes)]
    return [Trials(batch, made_up(batch)) for batch in found]


def accuracy(model: CostModel, one: Trials) -> float:
    """The share of pairs, more than a twentieth apart, in the right order."""
    scores = model.scores(one.batch)
    apart = one.seconds[:, None] * 1.05 < one.seconds[None]
    return float((scores[:, None] > scores[None])[apart].mean())


RANKING = TreeSettings(rounds=60, leaves=15, least_rows=3)


@pytest.mark.parametrize(
    ("learner", "share"),
    [
        (CorrectionLearner(settings=QUICK), 0.8),
        (CorrectionLearner(rows="statements", settings=QUICK), 0.8),
        (ThroughputLearner(settings=TreeSettings(rounds=80, least_rows=3)), 0.5),
        (RankingLearner("itervar", settings=RANKING), 0.4),
        (RankingLearner("curve", settings=RANKING), 0.4),
    ],
)
def test_what_was_learned_holds_for_other_tasks(learner: Learner, share: float) -> None:
    """So much of the pairs that the analytic model has in the wrong order are put right, as a
    mean over several draws: trees differ a little from machine to machine."""
    analytic, learned = [], []
    for seed in (0, 100):
        model = learner.fit(trials(SHAPES[:9], seed=seed))
        others = trials(SHAPES[9:], seed=seed + 9)
        analytic += [accuracy(Analytic(), one) for one in others]
        learned += [accuracy(model, one) for one in others]
    wrong = 1.0 - np.mean(analytic)
    assert wrong > 0.3, "the analytic model is nearly right: there is nothing to learn"
    assert np.mean(learned) > np.mean(analytic) + share * wrong


def test_knobs_order_the_candidates_of_a_task() -> None:
    settings = TreeSettings(rounds=60, leaves=7, least_rows=3)
    analytic, learned = [], []
    for seed in range(4):
        known, other = drawn(SHAPES[0], 60, seed), drawn(SHAPES[0], 60, seed + 50)
        model = RankingLearner("knob", settings=settings).fit([Trials(known, made_up(known))])
        asked = Trials(other, made_up(other))
        analytic.append(accuracy(Analytic(), asked))
        learned.append(accuracy(model, asked))
    assert np.mean(learned) > np.mean(analytic) + 0.1


def test_knobs_of_several_sketches_do_not_compare() -> None:
    one = drawn(SHAPES[0], 20)
    sketch = find_sketch("rows")
    holes = sketch.space(sketch.fits(one.task), TARGET, 2)
    two = make_batch(one.task, "rows", holes, TARGET, 2)
    with pytest.raises(WhetError, match="WH2121"):
        RankingLearner("knob").fit([Trials(one, made_up(one)), Trials(two, two.draft)])


def test_gradients_are_those_of_the_loss() -> None:
    samples = gather(trials(SHAPES[:2], 6), Analytic(), "statements")
    predicted = np.random.default_rng(0).standard_normal(len(samples.owners))

    def loss(p: Array) -> float:
        wrong = _correction_error(samples, samples.total(p))
        return float((_weights(samples) * wrong**2).sum() / 2)

    first, second = _gradient(samples, _correction_error)(predicted)
    assert (second > 0).all()
    for row in range(0, len(predicted), 3):
        step = np.zeros(len(predicted))
        step[row] = 1e-5
        slope = (loss(predicted + step) - loss(predicted - step)) / 2e-5
        assert first[row] == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_labels_follow_from_the_best_so_far() -> None:
    (one,) = trials(SHAPES[:1], 10)
    before = gather([one], Analytic(), "programs").throughput
    assert before.max() == 1
    faster = Trials(one.batch, np.append(one.seconds[:-1], one.seconds.min() / 2))
    after = gather([faster], Analytic(), "programs").throughput
    assert after[:-1] == pytest.approx(before[:-1] / 2)
    failed = Trials(one.batch, np.append(one.seconds[:-1], np.inf))
    assert gather([failed], Analytic(), "programs").throughput[-1] == 0


@pytest.mark.parametrize("learner", [CorrectionLearner(), ThroughputLearner(), RankingLearner()])
def test_too_few_trials_teach_nothing(learner: Learner) -> None:
    batch = drawn(SHAPES[0], 20)
    seconds = np.full(20, np.inf)
    seconds[:5] = made_up(batch)[:5]
    assert isinstance(learner.fit([Trials(batch, seconds)]), Analytic)


@pytest.mark.parametrize("count", [8, 9, 12, 20])
@pytest.mark.parametrize(
    "learner", [CorrectionLearner(), CorrectionLearner(rows="statements"), RankingLearner()]
)
def test_few_trials_of_one_task(learner: Learner, count: int) -> None:
    batch = drawn(SHAPES[0], count)
    model = learner.fit([Trials(batch, made_up(batch))])
    assert np.isfinite(model.scores(batch)).all()


@pytest.mark.parametrize("learner", [CorrectionLearner(), RankingLearner("knob")])
def test_equal_candidates_teach_nothing(learner: Learner) -> None:
    batch = drawn(SHAPES[0], 1).take(np.zeros(12, np.int64))
    seconds = np.random.default_rng(0).uniform(1.0, 2.0, 12)
    assert isinstance(learner.fit([Trials(batch, seconds)]), Analytic)


def test_a_sketch_without_loops_has_the_base_model_alone() -> None:
    """A user's sketch need not describe its loops."""

    class Plain(Sketch[Any, Any]):
        name: str = "plain"
        numeric: Numeric = "exact"

        def costs(
            self, form: object, target: object, threads: int, holes: dict[str, Array]
        ) -> Array:
            return holes["n"] * 100.0

    model = CorrectionLearner(settings=QUICK).fit(trials(SHAPES[:3]))
    plain = Batch(matmul(), Plain(), None, TARGET, 1, {"n": np.arange(1, 5)})
    assert np.array_equal(model.scores(plain), Analytic().scores(plain))
    mixed = [*trials(SHAPES[:1]), Trials(plain, np.ones(4))]
    assert np.isfinite(CorrectionLearner().fit(mixed).scores(plain)).all()


def test_a_task_corrects_what_others_taught() -> None:
    base = CorrectionLearner(settings=QUICK).fit(trials(SHAPES[:9]))
    batch = drawn(SHAPES[10], 48)
    odd = Trials(batch, made_up(batch) * (1.0 + 2.0 * (batch.holes["nv"] == 2)))
    both = CorrectionLearner(base, settings=QUICK).fit([odd])
    assert accuracy(both, odd) > accuracy(base, odd)


def test_a_base_model_is_discounted() -> None:
    assert discount_after(0) == 1
    assert discount_after(64) == 0.5
    assert discount_after(1000) == 0
    base = RankingLearner("curve", settings=QUICK).fit(trials(SHAPES[:9]))
    (one,) = trials(SHAPES[10:11], 16)
    model = RankingLearner("curve", base, TreeSettings(rounds=3, least_rows=3)).fit([one])
    plain = RankingLearner("curve", None, TreeSettings(rounds=3, least_rows=3)).fit([one])
    other = Trials(drawn(SHAPES[10], 60, 5), made_up(drawn(SHAPES[10], 60, 5)))
    assert accuracy(model, other) > accuracy(plain, other)
    assert RankingLearner("curve", base).fit([Trials(one.batch, np.full(16, np.inf))]) is base


# ---------------------------------------------------------------------------------------- keeping
def fitted() -> SummedTrees:
    model = CorrectionLearner(settings=QUICK).fit(trials(SHAPES[:3]))
    assert isinstance(model, SummedTrees)
    return model


def test_a_kept_model_says_the_same(tmp_path: Path) -> None:
    model, batch = fitted(), drawn(SHAPES[5], 50)
    with Database(tmp_path / "m.db") as database:
        assert kept_model(database, TARGET) is None
        keep_model(database, TARGET, model, 120)
        found = kept_model(database, TARGET)
        assert found is not None
        assert np.array_equal(found.scores(batch), model.scores(batch))
        assert kept_model(database, PRESETS["x86-64-v4"]) is None


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    with Database(tmp_path / "m.db") as database:
        keep_model(database, TARGET, fitted(), 120)
        data = database.model(TARGET, KIND)
        assert data is not None
        database.add_model(TARGET, KIND, data.replace(b"leaf_value=", b"leaf_value=9", 1))
        with pytest.raises(WhetError, match="WH4101"):
            kept_model(database, TARGET)
        database.add_model(TARGET, KIND, b"nonsense")
        with pytest.raises(WhetError, match="WH4101"):
            kept_model(database, TARGET)


def test_a_model_of_other_features_is_none(tmp_path: Path) -> None:
    with Database(tmp_path / "m.db") as database:
        keep_model(database, TARGET, fitted(), 120)
        data = database.model(TARGET, KIND)
        assert data is not None
        first, _, text = data.partition(b"\n")
        header = json.loads(first) | {"columns": "other"}
        database.add_model(TARGET, KIND, json.dumps(header).encode() + b"\n" + text)
        assert kept_model(database, TARGET) is None


def test_more_trials_replace_a_kept_model(tmp_path: Path) -> None:
    with Database(tmp_path / "m.db") as database:
        assert not keep_if_wiser(database, TARGET, trials(SHAPES[:3]))  # of too few tasks
        assert keep_if_wiser(database, TARGET, trials(SHAPES[:9]))
        assert not keep_if_wiser(database, TARGET, trials(SHAPES[:9]))
        before = database.stats().models
        assert keep_if_wiser(database, TARGET, trials(SHAPES[:10]))
        assert database.stats().models == before + 1


def test_searches_start_from_the_kept_model() -> None:
    base, (one,) = fitted(), trials(SHAPES[4:5], 40)
    space = make_space(one.batch.task, TARGET, 2)
    based = Space(space.task, space.tables, base)
    assert learned(CorrectionLearner(), space, {}) is None
    judge = learned(CorrectionLearner(), based, {})
    assert judge is not None
    assert judge.model is base
    known = {(0, n): Timing((1e-6 * (n + 1),) * 3) for n in range(20)}
    judge = learned(CorrectionLearner(), based, known)
    assert judge is not None
    assert isinstance(judge.model, SummedTrees)
    assert judge.model.base is base
