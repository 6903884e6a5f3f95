"""Recurrences written out: the same results, and nothing left that loops."""

from __future__ import annotations

import numpy as np
import pytest

import whet
from tests.build.comparing import sample_graph
from tests.graph.meaning import assert_same_meaning, f, operators
from tests.graph.test_lift_steps import do, scan_graph
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.backend import gpu_in_this_process
from whet.api.engines import default_engine
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.interpret import interpret
from whet.graph.passes import write_out as module
from whet.graph.passes.write_out import has_recurrence, write_out
from whet.ops.base import REGISTRY

RECURRENT = ("rnn", "gru", "lstm", "scan")


def cell(h: Value, x: Value, u: Value) -> tuple[Value, Value]:
    new = do("tanh", do("add", x, do("matmul", h, u)))
    return new, do("mul", new, x)


def recurrence(length: int = 5, **options: object) -> Graph:
    """tanh(x_t + h @ u), and its product with x_t."""
    return scan_graph(
        cell, states=[f(2, 3)], slices=[f(2, 3)], wholes=[f(3, 3)], length=length,
        output_axes=[1], **options,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("name", RECURRENT)
def test_samples_mean_the_same(name: str) -> None:
    rng = np.random.default_rng(2)
    for sample in (*REGISTRY[name].samples(), *(REGISTRY[name].sample(rng) for _ in range(4))):
        graph = sample_graph(sample)
        after = write_out(graph, "exact")
        assert not has_recurrence(after)
        assert not {*operators(after)} & {*RECURRENT}
        # What is made of an operator may round otherwise than its definition.
        assert_same_meaning(graph, after, exact=name == "scan")


@pytest.mark.parametrize("backward", [False, True])
def test_steps_follow_each_other(backward: bool) -> None:
    graph = recurrence(reverse_inputs=[backward], reverse_outputs=[not backward])
    after = write_out(graph)
    assert operators(after).count("matmul") == 5
    assert operators(after).count("scan") == 0
    assert_same_meaning(graph, after)


def test_a_recurrence_within_another() -> None:
    inner = recurrence(3).nodes[0].op

    def step(h: Value, u: Value) -> tuple[Value, Value]:
        xs = do("concat", *(do("reshape", h, shape=(1, 2, 3)) for _ in range(3)), axis=0)
        last, _ = GraphBuilder().results(inner, h, xs, u)
        return last, last

    graph = scan_graph(step, states=[f(2, 3)], wholes=[f(3, 3)], length=4, output_axes=[0])
    after = write_out(graph)
    assert operators(after).count("matmul") == 12
    assert_same_meaning(graph, after)


def test_long_recurrences_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 40)
    short, long = recurrence(10), recurrence(11)  # four nodes a step
    assert write_out(long) is long
    assert "scan" not in operators(write_out(short))


def test_graphs_without_any_stay_as_they_are() -> None:
    graph = sample_graph(REGISTRY["softmax"].samples()[0])
    assert not has_recurrence(graph)
    assert write_out(graph) is graph


@needs_text_runner
@pytest.mark.parametrize("name", RECURRENT)
def test_gpus_run_recurrences_in_one_segment(name: str) -> None:
    graph = sample_graph(REGISTRY[name].samples()[0])
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(v.tensor_type.shape).astype(v.tensor_type.dtype.numpy)
              for v in graph.inputs]  # fmt: skip
    with gpu_in_this_process(checked=False):
        compiled = whet.compile(graph, target="cuda-sm_90a")
        found = compiled(*arrays)
    assert "1 native segments" in compiled.describe()[0]
    results = found if isinstance(found, tuple) else (found,)
    for got, want in zip(results, interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_processors_run_loops() -> None:
    graph = recurrence(50)
    assert default_engine(None, "x86-64-v3").written_out(graph, "real") is graph
