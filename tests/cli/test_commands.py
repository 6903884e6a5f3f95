"""The commands as processes: results, exit codes, and what goes to which stream."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from whet import compile as compile_model

Whet = Callable[..., Any]


def test_version_and_help(whet: Whet) -> None:
    assert whet("--version").stdout == "whet 0.1.0\n"
    shown = whet("--help").stdout
    for command in ("compile", "run", "check", "bench", "inspect"):
        assert command in shown
        assert "Usage: whet " + command in whet(command, "--help").stdout


def test_compile_then_run_the_artifact(whet: Whet, model: Path, tmp_path: Path) -> None:
    stored = tmp_path / "m.whet"
    done = whet("compile", model, "-o", stored, "--input", "x=3x8", "--json", "--budget", "1s")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["inputs"] == ["x: f32[3, 8]"]
    assert document["bytes"] == stored.stat().st_size
    assert stored.exists()

    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    results = tmp_path / "out.npz"
    done = whet("run", stored, "--input", f"x={tmp_path / 'x.npy'}", "-o", results, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert "(native" in done.stdout
    expected = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})
    with np.load(results) as got:
        np.testing.assert_allclose(got["y"], expected[0], rtol=1e-5)
        assert np.array_equal(got["best"], expected[1])


def test_random_inputs_follow_the_seed(whet: Whet, model: Path) -> None:
    outputs = [
        json.loads(whet("run", model, "--json", "-q", "--seed", seed).stdout)["outputs"]
        for seed in (1, 1, 2)
    ]
    assert outputs[0] == outputs[1] != outputs[2]


def test_numbers_that_are_none_are_counted_apart(whet: Whet, tmp_path: Path) -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x) => (float[4] y) { y = Identity(x) }
    """)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    np.save(tmp_path / "x.npy", np.array([1, np.nan, 4, -np.inf], np.float32))
    arguments = ("run", tmp_path / "m.onnx", "-i", f"x={tmp_path / 'x.npy'}")
    (row,) = json.loads(whet(*arguments, "--json").stdout)["outputs"]
    assert (row["min"], row["max"], row["mean"], row["nan"], row["inf"]) == (1, 4, 2.5, 1, 1)
    head, shown, _ = whet(*arguments).stdout.splitlines()
    assert head.split() == ["output", "type", "min", "max", "mean", "nan", "inf"]
    assert shown.split()[2:] == ["1", "4", "2.5", "1", "1"]
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    assert "nan" not in whet(*arguments).stdout


@pytest.mark.parametrize("against", ["reference", "onnxruntime"])
def test_check_passes(whet: Whet, model: Path, against: str) -> None:
    done = whet("check", model, "--against", against, "--json", "-i", "x=2x8")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"]
    assert [o["output"] for o in document["outputs"]] == ["y", "best"]
    assert 0 <= document["outputs"][0]["of_range"] < 1e-5


def test_check_fails_with_code_6(whet: Whet, model: Path) -> None:
    done = whet("check", model, "--max-error", "0", "-q")
    assert done.returncode == 6
    assert "differs" in done.stdout
    assert done.stderr.startswith("error WH3004 1 of 2 outputs differ from reference")
    assert whet("check", model, "--atol", "1e-3", "-q").returncode == 0
    assert json.loads(whet("check", model, "--max-error", "0", "--json").stdout)["ok"] is False


def test_inspect(whet: Whet, model: Path, tmp_path: Path) -> None:
    done = whet("inspect", model)
    assert done.stderr == "note: dimension 'N' of input 'x' is not given and set to 1\n"
    assert "matmul(i0, c0)" in done.stdout
    exported = tmp_path / "optimised.onnx"
    document = json.loads(whet("inspect", model, "--json", "--onnx", exported, "-q").stdout)
    assert document["nodes"] == sum(document["operators"].values())
    assert document["flops"] >= 2 * 8 * 32
    onnx.checker.check_model(onnx.load(exported))
    assert whet("check", exported, "-q", "--against", "onnxruntime").returncode == 0


def test_bench_takes_turns_and_reports_spread(whet: Whet, model: Path) -> None:
    done = whet("bench", model, "--seconds", "0.1", "--threads", "1", "--json", "-i", "x=2x8")
    assert done.returncode == 0, done.stderr
    own, other = json.loads(done.stdout)["runtimes"]
    assert (own["runtime"], other["runtime"]) == ("whet", "onnxruntime")
    for row in (own, other):
        low, high = row["median_ms_interval"]
        assert 0 < low <= high
        assert 0 < row["median_ms"] <= row["p90_ms"] <= row["p99_ms"]
        assert row["calls"] >= 10
    low, high = other["ratio_interval"]
    assert low <= other["ratio_to_whet"] <= high
    assert other["error_of_range"] < 1e-5
    shown = whet("bench", model, "--seconds", "0.1", "--against", "none").stdout
    assert "median ms" in shown
    assert "p99 ms" in shown
    assert "mean" not in shown


@pytest.fixture(scope="session")
def stored(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of the model for three rows."""
    path = tmp_path_factory.mktemp("stored") / "m.whet"
    compile_model(model, {"x": (3, 8)}, note=lambda message: None).save(path)
    return path


def test_artifacts_are_timed_and_checked_like_models(whet: Whet, stored: Path) -> None:
    done = whet("bench", stored, "--seconds", "0.05", "--json")
    assert done.returncode == 0, done.stderr
    assert [r["runtime"] for r in json.loads(done.stdout)["runtimes"]] == ["whet"]
    done = whet("check", stored, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [o["output"] for o in document["outputs"]] == ["y", "best"]
    assert 0 < document["outputs"][0]["of_range"] < 1e-5
    assert whet("check", stored, "--max-error", "0", "-q").returncode == 6
    assert whet("run", stored, "-i", "x=3x8", "-q").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "-i", "x=2x8"), "input 'x' of the artifact is f32[3, 8], not of shape 2x8"),
        (("run", "-i", "x:=5"), "input 'x' of the artifact is f32[3, 8], not of shape scalar"),
        (("run", "-i", "image=3x8"), "the artifact has no input 'image'"),
        (("inspect", "-i", "x=2x8"), "input 'x' of the artifact is f32[3, 8], not of shape 2x8"),
        (("check", "-i", "x=2x8"), "input 'x' of the artifact is f32[3, 8], not of shape 2x8"),
        (("bench", "-i", "x=2x8"), "input 'x' of the artifact is f32[3, 8], not of shape 2x8"),
        (("inspect", "--numerics", "exact"), "was compiled with --numerics real"),
        (("check", "--against", "onnxruntime"), "other runtimes cannot read an artifact"),
        (("bench", "--against", "openvino"), "other runtimes cannot read an artifact"),
        (("bench", "--budget", "1s"), "an artifact is timed as it is"),
    ],
)
def test_what_an_artifact_cannot_do_is_not_ignored(
    whet: Whet, stored: Path, arguments: tuple[str, ...], message: str
) -> None:
    command, *rest = arguments
    done = whet(command, stored, *rest)
    assert done.returncode == 2
    assert done.stderr.startswith("error WH3007 ")
    assert message in done.stderr
    assert done.stdout == ""


def test_bench_names_a_missing_runtime(
    whet: Whet, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openvino.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    done = whet("bench", model, "--against", "openvino", "-q")
    assert done.returncode == 1
    assert "error WH3005 openvino is not installed" in done.stderr
    assert "hint: pip install openvino" in done.stderr


def test_exit_codes_and_messages(whet: Whet, model: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(model.read_bytes()[:-40])
    strange = tmp_path / "strange.onnx"
    strange.write_bytes(
        onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
            g (float[1] x) => (float[1] y) { t = custom.Foo(x)  y = custom.Bar(t) }
        """).SerializeToString()
    )
    artifact = tmp_path / "damaged.whet"
    artifact.write_bytes(b"PK\3\4" + b"\0" * 200)
    missing = tmp_path / "missing.onnx"
    for arguments, code, message in (
        (("run", missing), 4, "WH2001"),
        (("run", damaged), 4, "WH2"),
        (("compile", strange, "-o", tmp_path / "o.whet"), 3, "Bar"),
        (("run", artifact), 5, "WH3001"),
        (("bench", artifact, "--against", "openvino"), 2, "cannot read an artifact"),
        (("bench", model, "--against", "abacus"), 2, "runtimes are onnxruntime, openvino"),
        (("check", model, "--against", "abacus"), 2, "reference or onnxruntime"),
        (("run", model, "--input", "x"), 2, "is not NAME=VALUE"),
        (("run", model, "--input", "x=none.npy"), 2, "neither a shape nor an array"),
        (("run", model, "--input", "x:=abc"), 2, "no number and no list"),
        (("run", model, "--input", "x=2x9"), 2, "WH2007"),
        (("compile", model, "-o", tmp_path / "no" / "o.whet"), 2, "WH3006"),
        (("compile", model, "-o", tmp_path / "o.whet", "--budget", "soon"), 2, "time budget"),
        (("compile", model), 2, "--output"),
        (("sharpen", model), 2, "sharpen"),
    ):
        done = whet(*arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert message in done.stderr, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_unsupported_parts_are_all_named(whet: Whet, tmp_path: Path) -> None:
    path = tmp_path / "strange.onnx"
    path.write_bytes(
        onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
            g (float[1] x) => (float[1] y, float[1] z) { y = custom.Foo(x)  z = custom.Bar(x) }
        """).SerializeToString()
    )
    done = whet("check", path)
    assert done.returncode == 3
    assert "Foo" in done.stderr
    assert "Bar" in done.stderr


def test_colours_only_when_asked_for(whet_process: Whet) -> None:
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert "\x1b[1;31m" in whet_process("run", "missing.onnx", env=forced).stderr
    plain = whet_process("run", "missing.onnx", env={**forced, "NO_COLOR": "1"}).stderr
    assert "31m" not in plain  # NO_COLOR forbids colours; bold text may stay
    assert "\x1b" not in whet_process("run", "missing.onnx").stderr


def test_a_bug_is_one_block_without_a_traceback(
    whet: Whet, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("whet.cli.inspect.summarize", broken)
    done = whet("inspect", model, "-q")
    assert done.returncode == 70
    assert "internal error" in done.stderr
    assert "ZeroDivisionError: oops" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_whet_fails_to_compile_runs_and_says_so(
    whet: Whet,
    model: Path,
    configured: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("x7")

    configured(STRICT=None, CACHE_DIR=tmp_path / "cache")
    monkeypatch.setattr("whet.tasks.plan.plan_segment", broken)
    done = whet("run", model, "-i", "x=2x8")
    assert done.returncode == 0
    assert "(interpreter)" in done.stdout
    assert "note: whet failed to compile the model, which runs in the interpreter" in done.stderr
    (report,) = (tmp_path / "cache" / "report").iterdir()
    assert str(report) in done.stderr


def test_the_reader_of_the_output_may_leave(model: Path) -> None:
    command = f"{sys.executable} -m whet inspect {model} -q | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""


def test_interrupt_ends_with_130(model: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "bench", str(model), "--seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and not workers.read_text():
        time.sleep(0.05)  # until the measuring has begun
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in errors
