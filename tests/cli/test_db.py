"""whet db: what tuning has found out, shown, carried and checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from tests.db.samples import record
from tests.db.test_exchange import ANSOR, AUTOTVM
from whet.api.engines import default_engine
from whet.api.native import Native
from whet.core.outcomes import Outcome
from whet.db.record import Record, Workload
from whet.db.store import Database
from whet.joint.tuning import weighted_tasks

Whet = Callable[..., Any]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "records.db"
    with Database(path) as made:
        made.add([record(1), record(2), record(3, None)])
    return path


def test_stats(whet: Whet, database: Path) -> None:
    done = whet("db", "stats", "--db", database, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcomes"] == {"crash": 1, "ok": 2}
    assert (found["workloads"], found["records"], found["measurements"]) == (1, 3, 3)
    assert "crash" in whet("db", "stats", "--db", database).stdout


def test_export_and_import(whet: Whet, database: Path, tmp_path: Path) -> None:
    lines, other = tmp_path / "records.jsonl", tmp_path / "other.db"
    assert whet("db", "export", lines, "--db", database).returncode == 0
    assert len(lines.read_text().splitlines()) == 3
    assert whet("db", "export", "-", "--db", database).stdout == lines.read_text()
    with lines.open("a") as file:
        file.write(f"{ANSOR}\n{AUTOTVM}\n")
    done = whet("db", "import", lines, "--db", other)
    assert done.returncode == 0, done.stderr
    assert "3 measurements added, 0 known already" in done.stdout
    assert "1 lines refused: written by TVM auto_scheduler (Ansor)" in done.stdout
    assert "1 lines refused: written by TVM AutoTVM" in done.stdout


def test_importing_nothing_is_an_error(whet: Whet, database: Path, tmp_path: Path) -> None:
    lines = tmp_path / "foreign.jsonl"
    lines.write_text(f"{ANSOR}\n{ANSOR}\n")
    done = whet("db", "import", lines, "--db", database)
    assert done.returncode == 1
    assert "WH4104" in done.stderr
    assert "2 lines refused: written by TVM auto_scheduler (Ansor)" in done.stderr
    missing = whet("db", "import", tmp_path / "nothing", "--db", database)
    assert missing.returncode == 2
    assert "WH4104" in missing.stderr


def test_doctor(whet: Whet, database: Path, tmp_path: Path) -> None:
    assert "is sound" in whet("db", "doctor", "--db", database).stdout
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no database" * 1000)
    done = whet("db", "doctor", "--db", damaged)
    assert done.returncode == 1
    assert "WH4101" in done.stderr


def test_explain_a_task_of_no_time_at_all(whet: Whet, tmp_path: Path) -> None:
    """Two numbers are copied in less than a hundredth of a microsecond."""
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) { y = Identity(x) }
    """)
    model = tmp_path / "copy.onnx"
    model.write_bytes(made.SerializeToString())
    path = tmp_path / "records.db"
    ask = ("db", "explain", model, "--threads", 1, "--db", path, "--json", "-q")
    (task,) = json.loads(whet(*ask).stdout)["tasks"]
    engine = default_engine()
    assert isinstance(engine, Native)
    name, *values = task["schedule"].split()
    holes = {hole: int(n) for hole, n in (v.split("=") for v in values)}
    known = Record(Workload(task["key"], "", ""), engine.target, 1, name, holes, Outcome.OK,
                   (2e-9,), checked=True)  # fmt: skip
    with Database(path) as database:
        database.add([known])
    done = whet(*ask)
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    assert (task["origin"], task["microseconds"], task["share"]) == ("record", 0.002, 1.0)


def test_explain_knows_what_an_artifact_brought_with_it(
    whet: Whet, model: Path, records: Path, tmp_path: Path
) -> None:
    stored = tmp_path / "model.whet"
    given = ("-i", "x=3x8", "--threads", 1, "-q")
    assert whet("tune", model, "--trials", 4, *given).returncode == 0
    assert whet("compile", model, "-o", stored, *given).returncode == 0
    elsewhere = ("--db", tmp_path / "empty.db", "--threads", 1, "--json", "-q")
    done = whet("db", "explain", stored, *elsewhere)
    assert "artifact" in {t["origin"] for t in json.loads(done.stdout)["tasks"]}


def test_explain_tells_hits_from_misses(whet: Whet, model: Path, tmp_path: Path) -> None:
    import whet as package

    path = tmp_path / "records.db"
    ask = ("db", "explain", model, "-i", "x=3x8", "--threads", 1, "--db", path, "--json", "-q")
    before = json.loads(whet(*ask).stdout)["tasks"]
    assert {t["origin"] for t in before} == {"default"}
    assert all(t["schedule"] for t in before)

    engine = default_engine()
    assert isinstance(engine, Native)
    graph = package.compile(str(model), {"x": (3, 8)}, 1).graph
    first = weighted_tasks([graph], engine.target, 1, "real")[0]
    task = first.task
    known = Record(Workload(task.key, task.class_key, task.text), engine.target, 1, "rows",
                   {"lanes": 8}, Outcome.OK, (2e-6,), checked=True)  # fmt: skip
    similar = replace(known, workload=Workload("other", task.class_key, ""))
    with Database(path) as database:
        database.add([known, similar])
    after = {t["key"]: t for t in json.loads(whet(*ask).stdout)["tasks"]}
    hit = after[task.key]
    assert (hit["origin"], hit["microseconds"], hit["trials"]) == ("record", 2.0, 1)
    assert hit["schedule"] == "rows lanes=8"
    assert hit["similar"] == 1
    assert sum(t["origin"] == "record" for t in after.values()) == 1
    assert sum(t["share"] for t in after.values()) == pytest.approx(1.0, abs=1e-3)
