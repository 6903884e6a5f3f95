"""A user's schedule template: knobs, candidates, right results, and the same tuner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.errors import ScheduleError, WhetError
from whet.db.store import Database
from whet.ir.evaluate import evaluate
from whet.ir.interpreter import run
from whet.ir.program import Buffer
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.joint.tuning import tune_tasks
from whet.schedule.default import default_choice
from whet.schedule.space.registry import SKETCHES
from whet.tasks.task import Task
from whet.tune.schedule import Schedules
from whet.tune.search import WeightedTask
from whet.tune.template import Schedule, Template, template
from whet.tune.template_config import MOST_ROWS, Config
from whet.tune.tuner import Budget

TARGET = PRESETS["x86-64-v3"]


@pytest.fixture
def tiles() -> Iterator[Template]:
    """C = A B with a tile in registers and an order of the loops around it."""

    @template("test_tiles", fits=lambda task: len(task.inputs) == 2)
    def made(s: Schedule, cfg: Config) -> None:
        i, j, _ = s.loops
        cfg.define_split("tile", s.extent(i), most=4)
        cfg.define_knob("vectors", [1, 2])
        cfg.define_reorder("order", [("io", "jo"), ("jo", "io")])
        cfg.define_filter(lambda c: c["tile.1"] * c["vectors"] >= 2)
        s.register_tile(i, j, cfg["tile"][-1], cfg["vectors"], s.lanes)
        if cfg["order"] == ("jo", "io"):
            s.reorder(*cfg["order"])
        s.parallel(cfg["order"][0])

    yield made
    del SKETCHES.added["test_tiles"]


def product(m: int = 12, n: int = 32, k: int = 6) -> Task:
    a, b = placeholder((m, k), f32, "a"), placeholder((k, n), f32, "b")
    z = reduce_axis(k, "k")
    c = compute((m, n), lambda i, j: sum_(a[i, z] * b[z, j], z), "c")
    return Task((c,), {t: Buffer(t.name, t.shape, t.dtype) for t in (a, b, c)}, frozenset(), {})


def test_every_candidate_is_right(tiles: Template) -> None:
    task = product()
    space = tiles.space(task, TARGET, 1)
    arrays = {t: np.random.default_rng(0).standard_normal(t.shape).astype(np.float32)
              for t in task.inputs}  # fmt: skip
    (expected,) = evaluate(task.outputs, arrays)
    rows = [dict(zip(space, map(int, row))) for row in zip(*space.values())]
    # 1 to 4 rows, 1 or 2 vectors, 2 orders, without the tiles of a single vector
    assert len(rows) == (4 * 2 - 1) * 2
    for holes in rows:
        kernel = tiles.lower(task, holes, "k")
        found = run(kernel.program, [arrays[t] for t in task.inputs])[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_template_is_never_the_default(tiles: Template) -> None:
    assert default_choice(product(), TARGET, 1).sketch.name != "test_tiles"


def test_its_trace_says_what_was_done(tiles: Template) -> None:
    holes = {"tile.1": 2, "vectors": 1, "order": 1, "lanes": 8}
    assert str(tiles.trace(product(), holes)).splitlines() == [
        "register_tile(rows=i, columns=j, mr=2, nv=1, lanes=8, tail=overlap)",
        "reorder(order=(jo, io))",
        "parallel(loop=jo)",
    ]


def test_it_is_tuned_as_other_sketches_are(tiles: Template, tmp_path: Path) -> None:
    task, target, path = product(16, 64, 32), HOST, tmp_path / "r.db"
    (report,) = tune_tasks(
        [WeightedTask(task, "product", (1,))], target, 1, Budget(trials=12),
        sketches=lambda name: name == "test_tiles", database=path,
    )  # fmt: skip
    assert report.outcomes.get("ok", 0) >= 6
    assert report.schedule.startswith("test_tiles ")
    with Database(path) as database:
        best = database.best(task.key, target, 1)
        assert best is not None
        assert best.sketch == "test_tiles"
        kernel = Schedules(target, 1, database=database)(task, "k")
    again = tiles.lower(task, best.holes, "k")
    assert str(kernel.program) == str(again.program)


@pytest.fixture
def marked() -> Iterator[Template]:
    """C = A B with loops that are marked, given sizes, and prices of its own."""

    @template("test_marked", prices=lambda task, target, threads, c: 100.0 / c["tile.1"])
    def made(s: Schedule, cfg: Config) -> None:
        i, j, _ = s.loops
        cfg.define_split("tile", s.extent(i), candidates=[(6, 2), (3, 4)])
        cfg.define_annotate("how", [j], ["none", "unroll"])
        s.split(i, cfg["tile"][-1])
        s.annotate(cfg["how"])

    yield made
    del SKETCHES.added["test_marked"]


def test_marks_sizes_and_prices_are_the_users(marked: Template) -> None:
    space = marked.space(product(), TARGET, 1)
    assert list(zip(space["tile.1"].tolist(), space["how.j"].tolist())) == [
        (2, 0), (2, 1), (4, 0), (4, 1)
    ]  # fmt: skip
    assert marked.costs(product(), TARGET, 1, space).tolist() == [50.0, 50.0, 25.0, 25.0]
    steps = [str(marked.trace(product(), {"tile.1": 4, "how.j": n, "lanes": 8})) for n in (0, 1)]
    assert steps[0] == "split(loop=i, factor=4, tail=guard)"
    assert steps[1] == f"{steps[0]}\nunroll(loop=j)"


def test_knobs() -> None:
    cfg = Config()
    cfg.define_split("s", 12, parts=3, most=3)
    cfg.define_knob("words", ["a", "b"])
    cfg.define_annotate("how", ["x", "y"], ["none", "unroll", "vectorize"])
    assert cfg["s"] == (12, 1, 1)
    columns = cfg.population()
    sizes = {(int(a), int(b)) for a, b in zip(columns["s.1"], columns["s.2"])}
    assert all(12 % (a * b) == 0 and b <= 3 for a, b in sizes)
    assert (4, 3) in sizes
    assert len(columns["s.1"]) == len(sizes) * 2 * 9
    chosen = Config({"s.1": 4, "s.2": 3, "words": 1, "how.x": 0, "how.y": 2})
    for name, knob in cfg.knobs.items():
        chosen.knobs[name] = knob
    assert chosen["s"] == (1, 4, 3)
    assert chosen["words"] == "b"
    assert chosen["how"] == {"x": "none", "y": "vectorize"}


def test_split_policies() -> None:
    def inner(policy: str, extent: int) -> list[int]:
        cfg = Config()
        cfg.define_split("s", extent, policy=policy)  # type: ignore[arg-type]
        return cfg.population()["s.1"].tolist()

    assert inner("factors", 12) == [1, 2, 3, 4, 6, 12]
    assert inner("power2", 12) == [1, 2, 4]
    assert inner("tails", 7) == [1, 2, 3, 4, 5, 6, 7]


def test_large_spaces_are_drawn() -> None:
    cfg = Config()
    for n in range(6):
        cfg.define_knob(f"k{n}", list(range(10)))
    columns = cfg.population()
    assert 0.9 * MOST_ROWS < len(columns["k0"]) <= MOST_ROWS
    assert set(columns["k5"].tolist()) == set(range(10))


def test_mistakes_have_names(tiles: Template) -> None:
    cfg = Config()
    cfg.define_knob("a", [1])
    with pytest.raises(ScheduleError, match="two knobs 'a'"):
        cfg.define_knob("a", [2])
    with pytest.raises(ScheduleError, match="no knob 'b'"):
        cfg["b"]
    with pytest.raises(ScheduleError, match="has no values"):
        cfg.define_knob("c", [])
    with pytest.raises(ScheduleError, match="'tile' has no value"):
        tiles.lower(product(), {"tile.1": 99, "vectors": 1, "order": 0, "lanes": 8}, "k")
    with pytest.raises(WhetError, match="already a sketch 'test_tiles'"):
        template("test_tiles")(lambda s, cfg: None)
