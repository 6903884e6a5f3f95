"""The database: what goes in comes out, whatever happens to the process or the disk."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.db.samples import TARGET, WORKLOAD, network_trial, record
from tests.db.writer import PER_TRANSACTION
from whet.core.cpu import PRESETS
from whet.core.errors import WhetError
from whet.core.outcomes import Outcome
from whet.db import connection, schema
from whet.db.record import Workload
from whet.db.store import Database

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "records.db"


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.db.writer", str(path), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_rows_that_mean_nothing_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with Database(path) as database:
        database.add([record(1), record(2)])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE record SET holes = 'mr=1' WHERE id = 2")
        connection.commit()
    with Database(path) as database:
        (problem,) = database.problems()
        assert "candidate 2 of workload 'w0'" in problem
        with pytest.raises(WhetError, match=r"(?s)WH4101.*candidate 2"):
            list(database.records())


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    for read_only in (True, False):
        with pytest.raises(WhetError, match=r"WH4101.*is a folder"):
            Database(tmp_path, read_only=read_only)


def test_records_come_back_as_they_were(path: Path) -> None:
    given = [record(1, trace='{"steps": []}', message="é", seed=7, build_ms=1.5), record(2, None)]
    with Database(path) as database:
        database.add(given)
    with Database(path) as database:
        found = list(database.records())
    assert [replace(r, id=None) for r in found] == given
    assert (path.parent.stat().st_mode & 0o777) == 0o700


def test_records_are_found_by_workload_target_and_threads(path: Path) -> None:
    other = PRESETS["aarch64-neon"]
    with Database(path) as database:
        database.add([record(1), record(2, threads=1), record(3, target=other)])
        database.add([record(4, workload=Workload("w1", "class0", "y = x + 1"))])
        assert [r.at for r in database.records("w0")] == [1, 2, 3]
        assert [r.at for r in database.records("w0", TARGET)] == [1, 2]
        assert [r.at for r in database.records("w0", TARGET, 2)] == [1]
        assert [r.workload.key for r in database.similar("class0", TARGET, 2)] == ["w0", "w1"]
        assert database.best("w9", TARGET, 2) is None


def best_holes(database: Database) -> int:
    found = database.best(WORKLOAD.key, TARGET, 2)
    assert found is not None
    return found.holes["mr"]


def test_the_best_is_the_fastest_by_its_latest_measurement(path: Path) -> None:
    with Database(path) as database:
        database.add([record(1, 2e-3), record(2, 1e-3), record(3, None)])
        assert best_holes(database) == 2
        database.add([record(2, 5e-3, at=9.0)])  # it was lucky once
        assert best_holes(database) == 1
        assert database.stats().records == 3
        assert sum(database.stats().measurements.values()) == 4


def test_a_wrong_answer_disqualifies_for_good(path: Path) -> None:
    with Database(path) as database:
        database.add([record(1, 2e-3), record(2, 1e-3)])
        database.add([record(2, None, outcome=Outcome.WRONG_ANSWER, at=8.0)])
        database.add([record(2, 1e-3, at=9.0)])
        assert best_holes(database) == 1


def test_a_promoted_candidate_outranks_faster_ones(path: Path) -> None:
    with Database(path) as database:
        slow, fast, late = database.add([record(1, 2e-3), record(2, 1e-3), record(3, 3e-3)])
        database.promote(slow)
        assert best_holes(database) == 1
        database.promote(late)
        assert best_holes(database) == 3
        database.promote(fast)
        assert best_holes(database) == 2


def test_trials_inside_networks_come_back_as_they_were(path: Path) -> None:
    given = [
        network_trial(1, 0.98, kept=True),
        network_trial(2, None),
        network_trial(3, 1.01, beside="others"),
    ]
    with Database(path) as database:
        database.add_network_trials(given)
        database.add_network_trials([network_trial(1, network="another")])
    with Database(path) as database:
        assert database.network_trials("a network", TARGET, 2) == given
        assert not database.network_trials("a network", TARGET, 1)
        assert not database.network_trials("a network", PRESETS["aarch64-neon"], 2)
        # They are no measurements: nothing is the best of its workload by them.
        assert database.best(WORKLOAD.key, TARGET, 2) is None
        assert not list(database.records())


def test_a_wrong_answer_counts_inside_networks_too(path: Path) -> None:
    with Database(path) as database:
        database.add([record(1), record(2)])
        database.add_network_trials([network_trial(1), network_trial(2)])
        database.add([record(2, None, outcome=Outcome.WRONG_ANSWER, at=8.0)])
        assert database.network_trials("a network", TARGET, 2) == [network_trial(1)]


def test_what_is_chosen_inside_networks_is_evidence(path: Path) -> None:
    with Database(path) as database:
        database.add([record(1)])
        before = database.evidence_key(TARGET, 2)
        database.add_network_trials([network_trial(1)])
        assert database.evidence_key(TARGET, 2) != before


def test_a_trial_inside_a_network_that_means_nothing_is_damage(path: Path) -> None:
    with Database(path) as database:
        database.add_network_trials([network_trial(1)])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE record SET holes = 'mr=1'")
        connection.commit()
    with Database(path) as database, pytest.raises(WhetError, match=r"(?s)WH4101.*candidate 1"):
        database.network_trials("a network", TARGET, 2)


def test_measurements_are_only_ever_added(path: Path) -> None:
    with Database(path) as database:
        database.add([record(1)])
    raw = sqlite3.connect(path)
    for change in ("UPDATE measurement SET seconds = 1", "DELETE FROM measurement"):
        with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
            raw.execute(change)
    raw.close()


def test_the_same_measurement_twice_is_one(path: Path) -> None:
    with Database(path) as database:
        assert database.add([record(1)]) == database.add([record(1)])
        assert sum(database.stats().measurements.values()) == 1


def test_models_are_kept_by_kind(path: Path) -> None:
    with Database(path) as database:
        assert database.model(TARGET, "trees") is None
        database.add_model(TARGET, "trees", b"old")
        database.add_model(TARGET, "trees", b"new")
        assert database.model(TARGET, "trees") == b"new"
        assert database.model(TARGET, "other") is None


# ------------------------------------------------------------------------------ what can happen
def test_kill_loses_nothing_committed(path: Path) -> None:
    """50 writers are killed at random moments; whatever they said was committed is there."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.db.killed", str(path), "50"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        check=True,
        timeout=120,
    )
    committed: dict[str, int] = json.loads(done.stdout)
    assert sum(count > 0 for count in committed.values()) > 10
    with Database(path) as database:
        assert database.problems() == []
        stored = Counter(r.workload.key for r in database.records())
    for name, count in committed.items():
        assert stored[name] >= PER_TRANSACTION * count
        assert stored[name] % PER_TRANSACTION == 0, "a transaction was stored in part"


def test_two_processes_share_a_database(path: Path) -> None:
    processes = [start_writer(path, f"w{n}", 60) for n in range(2)]
    for process in processes:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert out.split() == [str(n) for n in range(60)]
    with Database(path) as database:
        assert Counter(r.workload.key for r in database.records()) == {"w0": 180, "w1": 180}
        assert database.problems() == []


def test_opening_at_once_is_safe(path: Path) -> None:
    errors: list[BaseException] = []

    def open_and_add(number: int) -> None:
        try:
            with Database(path) as database:
                database.add([record(number)])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=open_and_add, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with Database(path) as database:
        assert database.stats().records == 8


def add_until_refused(database: Database) -> tuple[WhetError, int]:
    """The error that ends it, and how many records were taken before."""
    for number in range(1, 1000):
        try:
            database.add([record(number, message="x" * 2000)])
        except WhetError as error:
            return error, number - 1
    raise AssertionError("the disk is never full")


def test_a_full_disk_is_a_clear_error_and_harms_nothing(path: Path) -> None:
    """The limit on the size of files stands for a full disk."""
    with Database(path) as database:
        database.add([record(0)])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            error, stored = add_until_refused(database)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert error.code == "WH4102"
        assert error.hint is not None
        assert "free some space" in error.hint
        stored += 1
        assert len(list(database.records())) == stored
        database.add([record(5000)])  # as soon as there is room, it goes on
    with Database(path) as database:
        assert database.problems() == []
        assert len(list(database.records())) == stored + 1


def test_a_read_only_database_can_be_read(path: Path) -> None:
    with Database(path) as database:
        database.add([record(1)])
    with Database(path, read_only=True) as database:
        assert best_holes(database) == 1
        for write in (
            lambda: database.add([record(2)]),
            lambda: database.promote(1),
            lambda: database.add_model(TARGET, "trees", b""),
            lambda: database.add_network_trials([network_trial(1)]),
        ):
            with pytest.raises(WhetError, match="reading only") as refused:
                write()
            assert refused.value.code == "WH4102"


def test_a_file_without_write_permission_is_opened_for_reading(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(path) as database:
        database.add([record(1)])
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with Database(path) as database:
        assert database.read_only
        assert best_holes(database) == 1


def test_a_missing_file_cannot_be_read(path: Path) -> None:
    with pytest.raises(WhetError, match="there is no tuning database") as missing:
        Database(path, read_only=True)
    assert missing.value.code == "WH4101"


def test_a_folder_in_place_of_the_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(WhetError) as refused:
        Database(tmp_path)
    assert refused.value.code in ("WH4101", "WH4102")
    (tmp_path / "file").write_text("")
    with pytest.raises(WhetError, match="cannot be opened") as refused:
        Database(tmp_path / "file" / "records.db")
    assert refused.value.code == "WH4102"


def test_a_damaged_file_is_a_clear_error(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, " * 500)
    with pytest.raises(WhetError, match="move the file away") as damaged:
        Database(path)
    assert damaged.value.code == "WH4101"


def test_damage_inside_is_found(path: Path) -> None:
    with Database(path) as database:
        database.add([record(n, message="x" * 3000) for n in range(200)])
    data = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for page in range(8, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = rng.bytes(64)
    path.write_bytes(data)
    with pytest.raises(WhetError) as damaged, Database(path) as database:  # noqa: PT012
        problems = database.problems()
        assert problems
        list(database.records())
    assert damaged.value.code == "WH4101"


# --------------------------------------------------------------------------------- versions
def test_an_older_file_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MIGRATIONS", schema.MIGRATIONS[:1])
    with Database(path) as database:
        old = record(1)
        for statement, values in (
            ("INSERT INTO target VALUES (1, ?, ?, ?)", (TARGET.key, "t", TARGET.to_json())),
            ("INSERT INTO workload VALUES (1, ?, 'c', '')", (old.workload.key,)),
            ("INSERT INTO record VALUES (1, 1, 1, 2, ?, '', ?)",
             (old.sketch, json.dumps(dict(old.holes)))),
            ("INSERT INTO measurement VALUES (1, 1, 'ok', 1, '[1]', '', 0, 0, 1, 0, '', 0)", ()),
        ):  # fmt: skip
            database._connection.execute(statement, values)
    monkeypatch.undo()
    with pytest.raises(WhetError, match="older version"):
        Database(path, read_only=True)
    with Database(path) as database:
        assert best_holes(database) == 1
        (kept,) = database.records()
        assert kept.estimate is None


def test_a_newer_file_is_refused(path: Path) -> None:
    Database(path).close()
    raw = sqlite3.connect(path)
    raw.execute("UPDATE schema_version SET version = 99")
    raw.commit()
    raw.close()
    for read_only in (False, True):
        with pytest.raises(WhetError, match="version 99") as newer:
            Database(path, read_only=read_only)
        assert newer.value.code == "WH4103"
