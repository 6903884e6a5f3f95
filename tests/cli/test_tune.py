"""whet tune: several models, objectives, and a clean stop."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from rich.console import Console

from whet.cli.tune import lines_of_progress, live_table
from whet.db.store import Database
from whet.tune.report import Refining, Report, Status

Whet = Callable[..., Any]


def products(path: Path, *widths: int) -> Path:
    """Matrix products one after the other, of 8 columns and then those widths."""
    shapes = [8, *widths]
    nodes = " ".join(f"h{n + 1} = MatMul(h{n}, w{n})" for n in range(len(widths)))
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[16, 8] h0) => (float[16, {widths[-1]}] h{len(widths)}) {{ {nodes} }}
    """)
    rng = np.random.default_rng(0)
    for n, shape in enumerate(pairwise(shapes)):
        w = rng.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(w, f"w{n}"))
    path.write_bytes(made.SerializeToString())
    return path


def test_models_share_their_tasks(whet: Whet, records: Path, tmp_path: Path) -> None:
    a = products(tmp_path / "a.onnx", 32)
    b = products(tmp_path / "b.onnx", 32, 48)
    done = whet("tune", a, b, "--trials", 8, "--threads", 1, "--json", "-q")
    assert done.returncode == 0, done.stderr
    tasks = json.loads(done.stdout)["tasks"]
    assert sum(t["trials"] for t in tasks) == 8
    assert 2 in {t["count"] for t in tasks}
    assert sum(t["share"] for t in tasks) == pytest.approx(1.0)
    with Database(records) as database:
        assert sum(database.stats().measurements.values()) >= 8


def test_a_target_that_is_met_ends_the_search(whet: Whet, records: Path, tmp_path: Path) -> None:
    model = products(tmp_path / "a.onnx", 32)
    done = whet("tune", model, "--trials", 500, "--objective", "targets", "--target-ms", 1000,
                "--threads", 1, "--json", "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] <= 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--objective", "fast"), "there is no objective 'fast'"),
        (("--objective", "targets"), "0 targets for 1 models"),
        (("--target-ms", "5"), "the objective 'total' has no targets"),
        (("--policy", "good"), "there is no policy 'good'"),
        (("--policy", "learned", "--model", "good"), "there is no cost model 'good'"),
        (("--model", "ranking"), "the policy 'default' has no learned cost model"),
    ],
)
def test_options_that_make_no_sense(
    whet: Whet, model: Path, records: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = whet("tune", model, "-i", "x=3x8", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_cost_model_by_name(whet: Whet, records: Path, tmp_path: Path) -> None:
    done = whet("tune", products(tmp_path / "a.onnx", 32), "--policy", "learned", "--model",
                "ranking", "--trials", 24, "--threads", 1, "--json", "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 24


def test_the_live_table() -> None:
    reports = [
        Report("first", 3, 16, 4e-6, 2e-6, {"ok": 15, "crash": 1}, 4e5, 1e-6),
        Report("second", 1, 8, math.inf, 2e-6, {"ok": 8}, 1e4, 1e-7),
        Report("untried", 1, 0, math.inf, math.inf, {}, 1e4, 1e-7),
    ]
    console = Console(width=160)
    with console.capture() as shown:
        console.print(live_table(reports, Status(24, 4.0, 26.0, 12), 160))
    text = shown.get()
    assert "24 trials, 6.0 per second, 2 s left, 1 tasks untried" in text
    (line,) = [x for x in text.splitlines() if "first" in x]
    assert line.split() == [
        "first", "3", "16", "4.0", "2.0", "2.00", "200.0", "50", "%", "75.0", "%", "1",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_narrow_terminals_cut_off_names_and_no_numbers(width: int) -> None:
    report = Report(
        "a_convolution_with_a_long_name", 3, 160, 4.1e-3, 2.1e-3, {"ok": 150}, 4e9, 1e-3
    )
    console = Console(width=width)
    with console.capture() as shown:
        console.print(live_table([report], Status(24, 4.0, 26.0, 12), width))
    *_, head, line = shown.get().splitlines()
    name, *numbers = line.replace(" %", "%").split()
    assert name.startswith("a_conv")
    names = head.replace(" us", "_us").split()
    cells = dict(zip(names[1:], numbers, strict=True))
    everything = {
        "weight": "3", "trials": "160", "default_us": "4100.0", "best_us": "2100.0",
        "gain": "1.95", "GFLOP/s": "1904.8", "roofline": "48%", "share": "100.0%", "failed": "0",
    }  # fmt: skip
    assert cells.items() <= everything.items()
    assert {"best_us", "gain"} <= cells.keys()
    assert width < 100 or cells == everything


def test_without_a_terminal_lines_tell_how_it_is_going() -> None:
    lines: list[str] = []
    watch = lines_of_progress(lines.append)
    reports = [
        Report("first", 3, 16, 4e-3, 2e-3, {"ok": 16}, 4e5, 1e-6),
        Report("untried", 1, 0, math.inf, math.inf, {}, 1e4, 1e-7),
    ]
    for elapsed in (1.0, 2.0, 10.9, 11.0, 12.0, 25.0):
        watch(reports, Status(int(elapsed), elapsed, 60 - elapsed))
    assert [line.split(" trials")[0] for line in lines] == ["1", "11", "25"]
    assert lines[0] == (
        "1 trials, 1.0 per second, 59 s left, 1 tasks untried; tuned tasks take 6.000 ms, "
        "by default 12.000 ms"
    )


def test_what_goes_on_inside_a_network_is_told() -> None:
    lines: list[str] = []
    watch = lines_of_progress(lines.append)
    reports = [Report("first", 3, 16, 4e-3, 2e-3, {"ok": 16}, 4e5, 1e-6)]
    watch(reports, Status(16, 50.0, 10.0))
    first = Refining("network", before=5e-4)
    for elapsed, state in (
        (50.1, first),
        (61.0, replace(first, tried=40, changed=2, seconds=4.8e-4)),
        (61.5, replace(first, tried=42, changed=2, seconds=4.8e-4)),
        (62.0, replace(first, tried=50, changed=3, seconds=4.7e-4, ended=True)),
        (62.5, Refining("network 2 of 2", ended=True, problem="crash: the process ended")),
    ):
        watch(reports, Status(16, elapsed, 70.0 - elapsed, refining=state))
    assert lines[1:] == [
        "network: 40 exchanges tried, 2 tasks changed, 0.500 -> 0.480 ms, 9 s left",
        "network: 50 exchanges tried, 3 tasks changed, 0.500 -> 0.470 ms, 8 s left",
        "network 2 of 2: not timed as a whole, crash: the process ended, 8 s left",
    ]
    shown = Console(width=200, record=True, file=io.StringIO())
    shown.print(live_table(reports, Status(16, 51.0, 9.0, refining=first), 200))
    assert "network: 0 exchanges tried, 0 tasks changed, 9 s left" in shown.export_text()


def test_tasks_without_names_are_told_apart(whet: Whet, records: Path, tmp_path: Path) -> None:
    model = products(tmp_path / "a.onnx", 32, 48)
    done = whet("tune", model, "--trials", 2, "--threads", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert "note: 2 trials" in done.stderr
    names = [t["task"] for t in json.loads(done.stdout)["tasks"]]
    assert len(set(names)) == len(names)
    assert names[0].endswith(" 16x8, 8x32 -> 16x32")


def test_an_interrupt_keeps_everything(records: Path, tmp_path: Path) -> None:
    model = products(tmp_path / "a.onnx", 32, 48, 64)
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "tune", str(model), "--budget", "5m", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {},
        start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 300
    while time.monotonic() < end and count(records) < 16:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    found = json.loads(out)
    assert found["trials"] >= 8  # rounds that have ended
    assert found["interrupted"]
    (line,) = [x for x in err.splitlines() if "interrupted" in x]
    assert line == f"note: interrupted, {count(records)} trials kept"
    with Database(records) as database:
        assert database.problems() == []


def count(path: Path) -> int:
    if not path.exists():
        return 0
    with Database(path) as database:
        return sum(database.stats().measurements.values())
