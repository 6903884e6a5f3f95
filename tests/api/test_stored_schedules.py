"""A tuned model takes its schedules with it, and nobody has to trust them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import whet
from whet.api.engines import default_engine
from whet.api.native import Native
from whet.build.views import kernel_views
from whet.cli.main import main
from whet.core.dtypes import f32
from whet.core.errors import ArtifactError
from whet.core.outcomes import Outcome
from whet.core.types import TensorType
from whet.db.record import Record
from whet.db.store import Database
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.joint.tuning import weighted_tasks
from whet.measure.records import workload_of
from whet.ops.matmul import MatMul
from whet.runtime.artifact import read_artifact, write_artifact
from whet.runtime.schedules import StoredSchedule, decode_schedules, encode_schedules
from whet.schedule.space.registry import SKETCHES
from whet.tasks.steps import Step
from whet.tune.schedule import Schedules
from whet.tune.space import make_space


def product() -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType((24, 40), f32))
    w = b.constant(np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32))
    return Graph((x,), (b.one(MatMul(), x, w),), ("y",))


def native() -> Native:
    engine = default_engine()
    assert isinstance(engine, Native)
    return engine


def tuned(path: Path, graph: Graph) -> StoredSchedule:
    """Records that make a candidate the best which is not the default."""
    engine = native()
    (task,) = [w.task for w in weighted_tasks([graph], engine.target, 1, "real")]
    space = make_space(task, engine.target, 1)
    c = space.candidate((0, int(np.argsort(space.tables[0].costs)[7])))
    with Database(path) as database:
        database.add([Record(workload_of(task), engine.target, 1, c.sketch, c.holes, Outcome.OK,
                             (1e-6,), checked=True)])  # fmt: skip
    return StoredSchedule(task.key, engine.target.key, 1, c.sketch, dict(c.holes))


def test_an_untuned_model_has_none(records: Path, tmp_path: Path) -> None:
    whet.compile(product(), threads=1).save(tmp_path / "a.whet")
    assert read_artifact(tmp_path / "a.whet").schedules == ()


def test_they_are_used_where_there_are_no_records(records: Path, tmp_path: Path) -> None:
    graph = product()
    wanted = tuned(records, graph)
    path = tmp_path / "a.whet"
    compiled = whet.compile(graph, threads=1)
    compiled.save(path)
    assert read_artifact(path).schedules == (wanted,)
    for suffix in ("", "-wal", "-shm"):
        Path(f"{records}{suffix}").unlink(missing_ok=True)
    loaded = whet.load(path, threads=1)
    x = np.random.default_rng(1).standard_normal((24, 40)).astype(np.float32)
    np.testing.assert_array_equal(loaded(x), compiled(x))
    loaded.save(tmp_path / "b.whet")
    assert (tmp_path / "b.whet").read_bytes() == path.read_bytes()
    engine = native()
    schedules = Schedules(engine.target, 1, stored=read_artifact(path).schedules)
    (task,) = [w.task for w in weighted_tasks([graph], engine.target, 1, "real")]
    chosen = schedules.chosen(task)
    assert (chosen.origin, dict(chosen.candidate.holes)) == ("artifact", dict(wanted.holes))


def test_the_kernel_that_is_shown_is_the_tuned_one(
    records: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    graph, path = product(), tmp_path / "a.whet"
    (default,) = kernel_views(graph, native().target, 1)
    wanted, sketch = tuned(records, graph), SKETCHES["contraction"]
    assert isinstance(default.step, Step)
    assert wanted.sketch == sketch.name
    kernel = sketch.lower(sketch.fits(default.step.task), wanted.holes, default.kernel.symbol)
    whet.compile(graph, threads=1).save(path)
    with pytest.raises(SystemExit):
        main(["inspect", str(path), "--kernel", "0", "--threads", "1"])
    shown = capfd.readouterr().out
    assert str(kernel.program) in shown
    assert default.program not in shown
    assert default.price is not None
    assert default.price.origin == "analytic"
    assert "--- price\n1.0 us, 2% more or less, record\n" in shown


def test_what_is_no_candidate_is_not_used(records: Path, tmp_path: Path) -> None:
    graph = product()
    wanted = tuned(records, graph)
    wild = replace(wanted, holes={**wanted.holes, "mr": 10_000})
    engine = native()
    (task,) = [w.task for w in weighted_tasks([graph], engine.target, 1, "real")]
    for given in (wild, replace(wanted, sketch="nobody's")):
        assert Schedules(engine.target, 1, stored=[given]).chosen(task).origin == "default"
    path = tmp_path / "a.whet"
    whet.compile(graph, threads=1).save(path)
    write_artifact(path, replace(read_artifact(path), schedules=(wild,)))
    records.unlink()
    x = np.ones((24, 40), np.float32)
    expected = x @ graph.constants[0].array
    np.testing.assert_allclose(whet.load(path, threads=1)(x), expected, rtol=1e-4, atol=1e-4)


def test_another_machine_or_thread_count_is_left_alone(records: Path) -> None:
    graph = product()
    wanted = tuned(records, graph)
    engine = native()
    other = replace(wanted, threads=7)
    found = {s.threads: s for s in engine.schedules(graph, 1, "real", [other])}
    assert found == {1: wanted, 7: other}


@pytest.mark.parametrize(
    "damaged",
    [{}, [1], [{"task": "a"}],
     [{"task": "a", "target": "b", "threads": True, "sketch": "s", "holes": {}}],
     [{"task": "a", "target": "b", "threads": 1, "sketch": "s", "holes": {"x": 1.5}}],
     *([{"task": "a", "target": "b", "threads": 1, "sketch": "s", "holes": {}, "network": n}]
       for n in ("", 1, None))],
)  # fmt: skip
def test_damage_is_refused(damaged: object) -> None:
    with pytest.raises(ArtifactError, match="WH3001"):
        decode_schedules(damaged)


def test_they_come_back_as_they_were() -> None:
    given = (
        StoredSchedule("t", "m", 2, "rows", {"lanes": 8, "a": 1}),
        StoredSchedule("t", "m", 2, "rows", {"lanes": 4, "a": 1}, "a network"),
    )
    assert decode_schedules(json.loads(json.dumps(encode_schedules(given)))) == given
