"""A kind of machine that somebody else adds is one like whet's own: no file of the package knows
it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import whet
from tests.build.loops_target import KIND, LoopsBackend, LoopsTarget, Plain
from whet.api import engines
from whet.build.backend import BACKENDS, add_backend, backend_of, find_target, target_names
from whet.build.native import NO_CACHE
from whet.build.views import kernel_views
from whet.cli.main import main
from whet.core.cpu import PRESETS
from whet.core.errors import UsageError, WhetError
from whet.core.target import READERS, target_from_json
from whet.core.types import Array
from whet.db.store import Database
from whet.graph.interpret import interpret
from whet.schedule.space.registry import SKETCHES, add_sketch
from whet.tasks.steps import Step

RNG = np.random.default_rng(4)


@pytest.fixture
def loops(configured: Callable[..., None]) -> Iterator[LoopsTarget]:
    """The target, while its backend and sketch are there, and settings name no other."""
    configured(TARGET=None)
    add_backend(LoopsBackend())
    add_sketch(Plain())
    yield LoopsTarget()
    for added in (BACKENDS.added, READERS, engines._Process.engines):
        added.pop(KIND, None)
    del SKETCHES.added[Plain.name]


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> onnx.ModelProto:
    """A convolution with batch normalisation, a pool, a product and a softmax."""
    weights = {
        "w": normal(4, 2, 3, 3), "b": normal(4), "scale": normal(4), "shift": normal(4),
        "mean": normal(4), "variance": np.abs(normal(4)) + 1, "dense": normal(16, 3),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "dense"], ["d"]),
        helper.make_node("Softmax", ["d"], ["y"]),
    ]
    return model(nodes, {"x": (1, 2, 4, 4)}, {"y": (1, 3)}, weights)


def looping() -> onnx.ModelProto:
    """A recurrent layer, which is a loop, and a branch that its result decides."""
    weights = {"w": normal(1, 3, 4), "r": normal(1, 3, 3), "zero": np.zeros((), np.float32)}
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["h"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2, 3))],
        )
        for name, op in (("then", "Exp"), ("else", "Tanh"))
    }
    nodes = [
        helper.make_node("RNN", ["x", "w", "r"], ["s", "h"], hidden_size=3),
        helper.make_node("ReduceSum", ["h"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "zero"], ["negative"]),
        helper.make_node("If", ["negative"], ["y"], **branches),
    ]
    return model(nodes, {"x": (5, 2, 4)}, {"y": (1, 2, 3), "s": (5, 1, 2, 3)}, weights)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    outputs: dict[str, tuple[int, ...]],
    weights: dict[str, Array],
) -> onnx.ModelProto:
    values = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in v.items()]
        for v in (inputs, outputs)
    ]
    stored = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", *values, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("make", [network, looping])
def test_a_network_runs_on_it(loops: LoopsTarget, tmp_path: Path, make: object) -> None:
    assert callable(make)
    notes: list[str] = []
    f = whet.compile(make(), target="loops", threads=1, note=notes.append)
    assert (f.engine, f.target, notes) == ("native", "loops", [])
    assert "1 native segments" in f.describe()[0]
    assert len(f.describe()) == 1, "everything runs on it"
    (spec,) = f.inputs
    for sign in (1, -1):  # either branch
        x = sign * np.abs(normal(*(d or 1 for d in spec.shape)))
        wanted = interpret(f.graph, [x])
        for got, want in zip(f.results(x).values(), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    f.save(tmp_path / "m.whet")
    loaded = whet.load(tmp_path / "m.whet", note=notes.append)
    assert (loaded.engine, loaded.target) == ("native", "loops")
    for got, want in zip(loaded.results(x).values(), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_its_kernels_come_from_its_sketch_and_those_of_cpus_do_not(loops: LoopsTarget) -> None:
    graph = whet.compile(network(), target="loops").graph
    views = kernel_views(graph, loops, 1)
    steps = [v.step for v in views if isinstance(v.step, Step)]
    assert steps
    for view in views:
        assert view.costs()
        assert all(Plain.name in line for line in view.costs() if isinstance(view.step, Step))
        assert view.assembly == view.program
        assert "--- loops\n" in view.text()
    assert not any(Plain.name in line for v in kernel_views(graph, CPU, 1) for line in v.costs())


CPU = PRESETS["x86-64-v3"]


def test_its_kernels_are_tuned_by_its_runner(loops: LoopsTarget, records: Path) -> None:
    """The cost model prefers one way, measurements the other."""
    f = whet.compile(network(), target="loops", threads=1)
    assert f.schedules(f.graph) == ()
    reports = whet.tune_model(network(), threads=1, trials=40, target="loops")
    assert {r.schedule for r in reports} == {f"{Plain.name} way=2"}
    assert [r.gain for r in reports] == pytest.approx([4] * len(reports))
    assert max(r.of_roofline for r in reports) > 0
    engines._Process.engines.pop("loops")
    tuned = whet.compile(network(), target="loops", threads=1)
    stored = tuned.schedules(tuned.graph)
    assert {(s.sketch, s.holes["way"]) for s in stored} == {(Plain.name, 2)}
    with Database(records) as database:
        assert {r.target for r in database.records()} == {loops}


def test_a_backend_without_a_runner(loops: LoopsTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopsBackend, "can_tune", False)
    notes: list[str] = []
    whet.compile(network(), target="loops", budget=1, note=notes.append)
    assert notes == ["the budget is not used: kernels for loops cannot be measured"]
    with pytest.raises(UsageError, match="WH3007 kernels for loops cannot be measured"):
        whet.tune_model(network(), target="loops", trials=1)


def test_an_artifact_where_its_backend_is_missing(loops: LoopsTarget, tmp_path: Path) -> None:
    whet.compile(network(), target="loops").save(tmp_path / "m.whet")
    del BACKENDS.added[KIND]
    with pytest.raises(WhetError, match=r"WH3002 .* target 'loops', which this version"):
        whet.load(tmp_path / "m.whet")
    assert whet.load(tmp_path / "m.whet", target="cpu").target == "cpu"


def test_names_are_found_in_one_place(loops: LoopsTarget) -> None:
    assert target_names()[0] == "cpu"
    assert target_names()[-1] == "loops"
    assert find_target("loops", NO_CACHE) == loops
    assert isinstance(backend_of(loops), LoopsBackend)
    with pytest.raises(UsageError, match="WH1002 no target is named 'z80'") as error:
        whet.compile(network(), target="z80")
    assert error.value.hint == f"targets are {', '.join(target_names())}"
    with pytest.raises(WhetError, match="WH1009 there is already a backend for 'loops'"):
        add_backend(LoopsBackend())


def test_commands_know_it(
    loops: LoopsTarget, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    for arguments in (["target", "loops"], ["run", str(tmp_path / "m.onnx"), "--target", "loops"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code
        assert "loops" in capfd.readouterr().out
    with pytest.raises(SystemExit):
        main(["target", "loops", "--measure"])
    assert "there is nothing to measure on 'loops'" in capfd.readouterr().err


def test_a_name_that_is_taken() -> None:
    class Taken(LoopsBackend):
        kind = "others"
        names = ("x86-64-v3",)

    with pytest.raises(WhetError, match="WH1009 there is already a target 'x86-64-v3'"):
        add_backend(Taken())
    assert "others" not in BACKENDS


def test_descriptions_say_their_kind_unless_they_are_of_cpus(loops: LoopsTarget) -> None:
    assert target_from_json(loops.to_json()) == loops
    assert json.loads(loops.to_json())["kind"] == KIND
    assert "kind" not in json.loads(CPU.to_json())
    assert target_from_json(CPU.to_json()) == CPU
    del READERS[KIND]
    with pytest.raises(WhetError, match="WH1009 nothing describes targets of the kind 'loops'"):
        target_from_json(loops.to_json())
