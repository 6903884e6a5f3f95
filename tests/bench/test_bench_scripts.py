"""The parts of the benchmarks that judge: statistics, tables, goals, models."""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

from harness import costs, report, turns
from harness.onnx_nodes import read_steps
from harness.peers import Field, error_of_range, number
from harness.probes import BANDWIDTH_KINDS, bandwidth_probe, fma_probe
from harness.shared import map_shared, write_shared
from harness.turns import Settings, Turn
from whet.core.errors import WhetError
from whet.core.types import Array
from zoo import layers, sequential
from zoo.networks import BUILDERS, build_networks, read_networks

BENCH = Path(__file__).resolve().parents[2] / "bench"
SCRIPTS = ("peak", "gemm", "conv_layers", "elementwise", "networks")


# ------------------------------------------------------------------------------------ statistics
@dataclass
class Scripted:
    """A contestant that always takes as long, on a machine with scripted noise."""

    machine: Machine
    seconds: float
    noise: Iterator[float]
    used: float = 0.0
    taken: int = 0

    def time(self, seconds: float) -> list[float]:
        foreign = next(self.noise)
        self.taken += 1
        self.used += 1.0
        self.machine.busy += 1.0 + foreign
        return [self.seconds * (1 + foreign)] * 3

    def cpu_seconds(self) -> float:
        return self.used


@dataclass
class Machine:
    busy: float = 0.0
    order: list[str] = field(default_factory=list)


def test_disturbed_turns_do_not_count() -> None:
    machine = Machine()
    noise = iter([0.0, 9.0, 0.0, 9.0, 0.0, 0.0])
    who = Scripted(machine, 2.0, noise)
    found = turns.take_turns({"a": who}, Settings(6, 0.01, 0.15), lambda: machine.busy)
    assert (found["a"].median, found["a"].clean_turns, found["a"].turns) == (2.0, 4, 6)
    assert not found["a"].disturbed


def test_who_is_always_disturbed_gets_more_turns_and_a_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)), sleep=lambda seconds: None)
    monkeypatch.setattr(turns, "time", clock)  # every turn takes as long
    machine = Machine()
    who = Scripted(machine, 1.0, iter([8.0, 5.0, 6.0, 7.0, 9.0, 4.0]))
    found = turns.take_turns({"a": who}, Settings(3, 0.01, 0.15), lambda: machine.busy)["a"]
    assert (who.taken, found.clean_turns, found.disturbed) == (6, 0, True)
    assert found.median == 6.0  # the cleaner half: 4, 5, 6 cores of noise
    assert report.milliseconds(found) == "~6000"


def test_who_fails_is_left_out() -> None:
    machine = Machine()

    class Broken(Scripted):
        def time(self, seconds: float) -> list[float]:
            raise WhetError("WH3005", "it died")

    broken = Broken(machine, 1.0, iter([]))
    sound = Scripted(machine, 1.0, iter([0.0] * 4))
    said: list[str] = []
    found = turns.take_turns(
        {"broken": broken, "sound": sound},
        Settings(4, 0.01, 0.15),
        lambda: machine.busy,
        lambda name, error: said.append(f"{name}: {error.message}"),
    )
    assert (list(found), said, sound.taken) == (["sound"], ["broken: it died"], 4)


def test_summary_of_calls() -> None:
    taken = [Turn((1.0, 2.0, 3.0, 4.0), 0.0), Turn((5.0, 6.0, 7.0, 8.0), 0.1)]
    found = turns.summarize(taken, Settings(2, 0.1, 0.15))
    assert (found.median, found.low, found.high, found.best) == (4.5, 3.0, 7.0, 2.5)
    assert found.per(2).median == 2.25


def test_busy_time_leaves_out_idling(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 200 300 99999 8888 10 20 30 0 0\ncpu0 1 2 3\n")
    assert turns.machine_busy_seconds(stat) == pytest.approx(660 / turns._TICKS)


# ---------------------------------------------------------------------------------------- report
def test_tables_are_markdown() -> None:
    text = report.table(("what", "ms"), [["a", "1.5"], ["longer", "12"]])
    assert text.splitlines() == [
        "| what   |  ms |",
        "|--------|----:|",
        "| a      | 1.5 |",
        "| longer |  12 |",
    ]
    with pytest.raises(ValueError, match="cells"):
        report.table(("a", "b"), [["1"]])


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (float("nan"), "-"), (0.0, "0"), (1.2345, "1.23"), (123.45, "123"),
     (98765.4, "98765"), (0.01234, "0.0123"), (1.234e-7, "1.23e-07")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert report.number(value) == text


def test_goals() -> None:
    def verdict(goal: report.Goal) -> str:
        return goal.row()[-1]

    assert verdict(report.Goal("x", 1.2, 1.0)) == "met"
    assert verdict(report.Goal("x", 0.9, 1.0)) == "**missed**"
    assert verdict(report.Goal("x", 0.9, 1.0, at_least=False)) == "met"
    assert verdict(report.Goal("x", 1.2, 1.0, disturbed=True)) == "met, disturbed"
    assert verdict(report.Goal("x", None, 1.0)) == "not measured"


def test_reports_are_stored_as_json_and_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = turns.summarize([Turn((1.0,), 0.0)], Settings(1, 0.1, 0.15))
    made = report.Report("Test", {"threads": [1]})
    made.rows.append({"time": m, "error": float("inf")})
    made.goals.append(report.Goal("speed", 2.0, 1.0))
    made.add_table("Empty", ("a",), [])
    made.finish(tmp_path / "new" / "out.json")
    data = json.loads((tmp_path / "new" / "out.json").read_text())
    assert data["rows"][0]["time"]["median"] == 1.0
    assert data["rows"][0]["error"] is None
    assert data["goals"][0]["met"] is True
    assert data["machine"]["cores"] >= 1
    text = (tmp_path / "new" / "out.md").read_text()
    assert "| speed | " in text
    assert "Empty" not in text, "a table without rows shows nothing"
    assert text in capsys.readouterr().out


def test_geometric_mean() -> None:
    assert report.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert report.geometric_mean([]) is None


def test_largest_live_sum() -> None:
    assert costs.largest_sum([{"a": 5}, {"a": 5, "b": 3}, {"b": 3, "c": 4}]) == 8
    assert costs.largest_sum([]) == 0


# --------------------------------------------------------------------------------------- scripts
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_have_help_and_the_common_options(name: str) -> None:
    module = importlib.import_module(name)
    parser = module.arguments()
    given = parser.parse_args(["--threads", "1", "--json", "x.json", "--rounds", "2"])
    assert (given.threads, given.rounds, given.json) == ([1], 2, Path("x.json"))
    assert parser.parse_args([]).threads == [1, 2]
    assert module.__doc__.splitlines()[0] in parser.format_help()
    assert "json" not in report.settings_of(given)


def test_scripts_start_on_their_own() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "gemm.py"), "--help"],
        cwd=BENCH.parent, env={"PYTHONPATH": str(BENCH.parent)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "--only" in done.stdout


def test_probes_count_their_work() -> None:
    probe = fma_probe(1)
    probe.call()
    assert probe.work > 1e7
    for kind, arrays in BANDWIDTH_KINDS.items():
        moved = bandwidth_probe(kind, 2 << 20, 1)
        moved.call()
        assert moved.work == arrays * (2 << 20)


def eventually_stopped(pid: int) -> bool:
    """Whether the process is stopped, as everybody is who does not have a turn."""
    for _ in range(200):
        if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T":
            return True
        time.sleep(0.01)
    return False


def test_peers_take_turns_and_missing_ones_are_said(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(layers.elementwise_model("relu", (64,)), path)
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    entries = {"ort": ("onnxruntime", 1), "fma": ("fma", 1), "none": ("bandwidth", 1)}
    with Field(entries) as peers:
        ready = peers.load_all(["ort"], str(path), {"x0": x})
        ready |= peers.load_all(["fma"], "", number(0))
        assert peers.load("none", "no such traffic", number(1 << 20)) is None
        assert error_of_range(ready["ort"].run()[0], np.maximum(x, 0)) == 0
        assert ready["fma"].work() > 1e7
        found = turns.take_turns(ready, Settings(1, 0.01, 100.0))
        assert all(eventually_stopped(peer.process.pid) for peer in peers.peers.values())
        assert ready["fma"].work() > 1e7  # and goes on when it is asked
    assert set(found) == {"ort", "fma"}
    assert set(peers.missing) == {"none"}


def test_contestants_share_their_arrays(tmp_path: Path) -> None:
    path = tmp_path / "add.onnx"
    onnx.save(layers.elementwise_model("add", (256,)), path)
    values = {f"x{n}": np.arange(n, n + 256, dtype=np.float32) for n in range(2)}
    write_shared(tmp_path, values)
    with Field({n: (n, 1) for n in ("whet_shared", "memcpy_shared")}) as peers:
        ready = peers.load_all(["whet_shared", "memcpy_shared"], str(path), values)
        _, result = map_shared(tmp_path, [])
        (found,) = ready["whet_shared"].run()
        assert np.array_equal(found, values["x0"] + values["x1"])
        assert np.array_equal(result, found)
        assert ready["memcpy_shared"].work() == 2 * 256 * 4
        assert np.array_equal(result, values["x0"])


# ---------------------------------------------------------------------------------------- models
def test_the_layers_are_those_of_the_networks() -> None:
    assert (len(layers.resnet50_layers()), len(BUILDERS)) == (20, 12)
    found = grouped_convolutions(BUILDERS["mobilenet_v2"]())
    assert found == set(layers.mobilenet_v2_depthwise_layers())
    found = grouped_convolutions(BUILDERS["resnext50"]())
    assert found == set(layers.resnext50_grouped_layers())


def grouped_convolutions(model: onnx.ModelProto) -> set[layers.ConvLayer]:
    graph = model.graph
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*graph.input, *graph.value_info)
    }
    grouped = set()
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Conv" and attributes["group"] > 1:
            _, channels, size, _ = shapes[node.input[0]]
            stride, groups = attributes["strides"][0], attributes["group"]
            grouped.add(layers.ConvLayer(size, channels, channels, 3, stride, groups))
    return grouped


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "layer",
    [
        layers.ConvLayer(9, 4, 6, 3, 2),
        layers.ConvLayer(8, 5, 5, 3, groups=5),
        layers.ConvLayer(8, 3, 4, 1),
        layers.ConvLayer(11, 3, 4, 7, 2),
    ],
    ids=str,
)
def test_direct_convolution_is_what_the_model_says(
    layer: layers.ConvLayer, channels_last: bool
) -> None:
    import conv_layers

    copies = 2 if layer.stackable else 1
    model = layers.conv_model(layer, copies, channels_last)
    x = np.random.default_rng(0).standard_normal((1, layer.cin, layer.size, layer.size), np.float32)
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if channels_last else x
    found = run(model, {"x": given})
    found = found.transpose(0, 3, 1, 2) if channels_last else found
    assert found.shape[2] == layer.out_size
    expected = conv_layers.results(layer, model, x, np.float64)
    assert error_of_range(found, expected) < 1e-6


def run(model: onnx.ModelProto, inputs: dict[str, Array]) -> Array:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, inputs)
    return np.asarray(result)


@pytest.mark.parametrize("name", ["add", "relu", "copy", "exp", "tanh", "softmax", "layer_norm"])
def test_elementwise_meanings(name: str) -> None:
    import elementwise

    shape = (6, 16)
    rows = name in elementwise.ROWS
    model = (layers.row_model if rows else layers.elementwise_model)(name, shape)
    values = elementwise.inputs_of(name, shape)
    assert error_of_range(run(model, values), elementwise.meaning(name, *values.values())) < 1e-6


def test_matrix_products() -> None:
    import gemm

    for constant in (True, False):
        model, values = layers.matmul_model(3, 5, 4, constant), gemm.inputs_of(3, 5, 4, constant)
        assert error_of_range(run(model, values), gemm.product(model, values)) < 1e-6
    assert gemm.shapes(["1x2x3"]) == [(1, 2, 3)]


def test_networks_are_built_and_read(tmp_path: Path) -> None:
    (built,) = build_networks(tmp_path, ["dcgan"])
    entry = {"kind": "network", "name": "dcgan", "batch": 1, "file": built.path.name,
             "inputs": [[n, list(s), d] for n, s, d in built.inputs]}  # fmt: skip
    index = {"dcgan_b1": entry, "dcgan_b16": entry | {"batch": 16}}
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert read_networks(tmp_path) == [built]
    assert run(onnx.load(built.path), built.sample()).shape == (1, 3, 64, 64)


def test_a_small_transformer_runs() -> None:
    model = sequential.bert_base(layers=1, tokens=8, vocabulary=32)
    onnx.checker.check_model(model)
    found = run(model, {"x0": np.arange(8).reshape(1, 8)})
    assert found.shape == (1, 768)


def test_values_that_nobody_reads_again_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(layers.conv_model(layers.ConvLayer(4, 2, 2, 3), 2), path)
    table = {"Conv": lambda node: lambda x, w, b: x + 1, "Relu": lambda node: lambda x: x}
    steps = read_steps(str(path), table)
    values = {"x": 1, **dict.fromkeys(steps.constants, 0)}
    assert steps.run(values) == (3,)
    assert set(values) == {*steps.constants, *steps.outputs}
    with pytest.raises(WhetError, match="not translated: Conv"):
        read_steps(str(path), {"Relu": table["Relu"]})
