"""Users without a home, without rights, with damaged files: what is optional stops nothing."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pwd
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import whet
from tests.targets import HOST
from whet.api.arguments import thread_count
from whet.build.cpu.segment import NativeSegment
from whet.core.config import Config
from whet.core.errors import RecordsError, UsageError, WhetError, WhetWarning
from whet.core.processors import usable_cores
from whet.db.store import Database
from whet.joint.tuning import tune_graphs
from whet.runtime.pool import MAX_THREADS
from whet.tune.tuner import Budget

Configured = Callable[..., None]

SHAPES = {"x": (2, 4), "w": (4, 3)}


@pytest.fixture
def model_file(linear: onnx.ModelProto, tmp_path: Path) -> Path:
    path = tmp_path / "linear.onnx"
    path.write_bytes(linear.SerializeToString())
    return path


def check_native(model: onnx.ModelProto, notes: list[str]) -> whet.CompiledModel:
    """The model, which runs as native code and is right."""
    f = whet.compile(model, SHAPES, note=notes.append)
    assert f.engine == "native"
    x, w = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    assert np.array_equal(f(x, w)[0], x @ w)
    return f


def test_a_cache_of_another_user_costs_no_speed(
    configured: Configured,
    linear: onnx.ModelProto,
    notes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configured(CACHE_DIR=tmp_path / "cache")
    check_native(linear, notes)
    assert notes == []
    owner = os.geteuid()
    configured()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    check_native(linear, notes)
    check_native(linear, notes)  # said once per process
    assert notes == [
        f"nothing is kept between runs: the cache folder '{tmp_path / 'cache'}' belongs to "
        "another user; set WHET_CACHE_DIR to a folder of your own"
    ]


def test_a_user_without_a_home(
    configured: Configured,
    linear: onnx.ModelProto,
    notes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    configured(DB_PATH=None, CACHE_DIR=None)
    f = check_native(linear, notes)
    assert notes == [
        "nothing is kept between runs: this user has no home folder; set WHET_CACHE_DIR to a "
        "folder of your own"
    ]
    with pytest.raises(RecordsError, match=r"WH4102 there is no home folder to keep tuning") as e:
        tune_graphs([f.graph], HOST, 1, Budget(trials=1))
    assert "set WHET_DB_PATH" in str(e.value)


# ----------------------------------------------------------------------------------- records
@pytest.mark.parametrize("damage", ["text", "no tables", "cut"])
def test_damaged_records_are_not_used(
    configured: Configured, linear: onnx.ModelProto, notes: list[str], tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "records.db"
    configured(DB_PATH=path)
    with Database(path):
        pass
    if damage == "text":
        path.write_text("this is no database, and never was one, but it is long enough" * 20)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE measurement")
        connection.close()
    f = check_native(linear, notes)
    assert len(notes) == 1
    assert notes[0].startswith(f"tuning records are not used: the tuning database '{path}' cannot")
    f.save(tmp_path / "linear.whet")
    with pytest.raises(RecordsError, match=r"WH4101 the tuning database .* cannot be read"):
        tune_graphs([f.graph], HOST, 1, Budget(trials=1))


def test_records_that_may_not_be_looked_at(
    configured: Configured,
    linear: onnx.ModelProto,
    notes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the home of another user."""
    configured(DB_PATH=tmp_path / "closed" / "records.db")
    real = os.stat

    def forbidden(path: object, **options: bool) -> os.stat_result:
        if str(path).startswith(str(tmp_path / "closed")):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", forbidden)
    check_native(linear, notes)
    assert len(notes) == 1
    assert "cannot be opened: Permission denied" in notes[0]


def test_records_that_may_not_be_written_are_read(
    configured: Configured, linear: onnx.ModelProto, notes: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "records.db"
    configured(DB_PATH=path)
    with Database(path):
        pass
    monkeypatch.setattr("whet.db.store.may_write", lambda path: False)
    f = check_native(linear, notes)
    assert notes == []
    with pytest.raises(RecordsError, match=r"WH4102 .* cannot be written: permission denied") as e:
        tune_graphs([f.graph], HOST, 1, Budget(trials=1))
    assert "set WHET_DB_PATH to a file that you may write" in str(e.value)


def test_a_database_that_cannot_be_made_is_not_called_missing(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.db.store.may_write", lambda path: False)
    with pytest.raises(RecordsError, match=r"WH4102 .* cannot be written: permission denied"):
        tune_graphs([], HOST, 1, Budget(trials=1), database=tmp_path / "no" / "records.db")


# ------------------------------------------------------------------------- no native code at all
def test_the_interpreter_says_why_it_runs(
    configured: Configured,
    linear: onnx.ModelProto,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whet.compile(linear, SHAPES).save(tmp_path / "linear.whet")
    configured()
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    said = "llvmlite, which generates native code, is not installed: the model runs in the interp"
    with pytest.warns(WhetWarning, match=said):
        f = whet.compile(linear, SHAPES)
    with pytest.warns(WhetWarning, match=said):
        loaded = whet.load(tmp_path / "linear.whet")
    assert f.engine == loaded.engine == "interpreter"
    assert "llvmlite, which generates native code, is not installed" in f.describe()


def test_a_library_that_does_not_fit_into_memory(
    configured: Configured, linear: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        try:
            raise OSError("libllvmlite.so: failed to map segment from shared object")
        except OSError as error:
            raise OSError("Could not find/load shared object file\nand more") from error

    configured()
    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.warns(WhetWarning, match=r"cannot be loaded \(libllvmlite.so: failed to map segm"):
        f = whet.compile(linear, SHAPES)
    assert f.engine == "interpreter"


def test_a_machine_that_cannot_be_measured_for_lack_of_memory(
    configured: Configured,
    linear: onnx.ModelProto,
    notes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr("whet.build.cpu.calibrate.calibrate", fail)
    configured(CALIBRATE=1, CACHE_DIR=tmp_path / "cache")
    check_native(linear, notes)
    assert notes[-1] == "not enough memory to measure this machine: a typical one is assumed"


def test_inputs_that_no_memory_holds_are_refused_before_anything_is_made(
    linear: onnx.ModelProto, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.build.native.build", None)
    monkeypatch.setattr("whet.core.memory.usable_memory", lambda: 200 * 10**9)
    rows = 10**10
    with pytest.raises(WhetError, match="WH1005 the model's inputs and outputs take 400 GB") as e:
        whet.compile(linear, {"x": (rows, 4), "w": (4, 3)}, note=notes.append)
    assert "and this process can have 200 GB" in str(e.value)


def test_values_in_between_that_no_memory_holds(
    linear: onnx.ModelProto, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    monkeypatch.setattr("whet.core.memory.usable_memory", lambda: 1000)
    (segment,) = f._first.executable.segments  # type: ignore[attr-defined]
    image = dataclasses.replace(segment.image, arena_bytes=1001)
    with pytest.raises(WhetError, match=r"WH1005 values between the operators take 0\.001 MB, and"):
        NativeSegment(image, f.graph, segment.threads)


@pytest.mark.parametrize(("cores", "expected"), [(3, 3), (5000, MAX_THREADS)])
def test_threads_follow_the_usable_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, expected: int
) -> None:
    monkeypatch.setattr("whet.api.arguments.usable_cores", lambda: cores)
    assert thread_count(None) == expected


def test_too_many_configured_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.api.arguments.process_config", lambda: Config(threads=5000))
    with pytest.raises(UsageError, match="WH1002 5000 threads are not between 1 and 1024"):
        thread_count(None)


def test_threads_follow_an_affinity_that_changes_later() -> None:
    """Every count looks anew: a process may bind itself long after it imported whet."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        assert thread_count(None) == 1
        assert thread_count(7) == 7
    finally:
        os.sched_setaffinity(0, before)
    assert thread_count(None) == usable_cores()


def test_little_address_space_is_no_bug(model_file: Path, tmp_path: Path) -> None:
    """Under a limit that Python can live with, whet runs, or says that memory is short."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2); "
        "from whet.cli.main import main; main(['run', sys.argv[2], '-i', 'x=2000x4'])"
    )
    environment = os.environ | {"WHET_CACHE_DIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    for megabytes in (300, 600):
        done = subprocess.run(
            [sys.executable, "-c", code, str(megabytes << 20), str(model_file)],
            capture_output=True, text=True, env=environment,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        assert "internal error" not in done.stderr
        assert done.returncode == 0 or "error WH1005" in done.stderr
