"""Models made small: delta debugging, parts of graphs, and trials that crash or hang."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st

from tests.frontend.small_models import model, node, tensor
from tests.graph.meaning import f, graph_of, random_arrays
from whet.api.compare import Tolerance
from whet.api.reduce.cutting import Case, Cutter
from whet.api.reduce.extents import with_extent
from whet.api.reduce.findings import Finding, Question
from whet.api.reduce.judge import Judge
from whet.api.reduce.models import Reduced, reduce_model
from whet.api.reduce.search import fewest, smallest_case
from whet.build.cpu.backend import CpuBackend
from whet.core.errors import UsageError
from whet.frontend.onnx import import_model
from whet.graph.export import export_bytes
from whet.graph.graph import Graph, apply, make_constant, make_input
from whet.graph.interpret import interpret
from whet.ops import REGISTRY

LAYERS = 6


# ------------------------------------------------------------------------------ delta debugging
@given(st.integers(1, 60), st.data())
def test_what_is_left_is_what_is_needed(count: int, data: st.DataObject) -> None:
    needed = set(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=4)))
    assert set(fewest(range(count), lambda few: needed <= set(few))) == needed


@given(st.integers(2, 40), st.data())
def test_of_what_is_left_nothing_can_go(count: int, data: st.DataObject) -> None:
    """Also where the problem comes and goes without rule."""
    odd = data.draw(st.sets(st.integers(0, 1 << 12)))

    def shows(few: Sequence[int]) -> bool:
        return len(few) == count or sum(n * n for n in few) in odd or 0 in few

    left = fewest(range(count), shows)
    assert shows(left)
    assert len(left) == 1 or not any(shows([x for x in left if x != n]) for n in left)


# ---------------------------------------------------------------------------------------- parts
def tower(layers: int = LAYERS) -> Graph:
    """Layers of exp, mul, add and a split, each of which reads what is before twice."""
    term = "x"
    for _ in range(layers):
        term = f"add(tanh({term}), mul({term}, y))"
    return graph_of(term, x=f(2, 3), y=f(3))


@given(st.sets(st.integers(0, 3 * LAYERS - 1), min_size=1))
def test_any_part_gives_what_it_gave_in_the_whole(numbers: set[int]) -> None:
    graph = tower()
    cutter = Cutter(graph, random_arrays(graph))
    nodes = [graph.nodes[n] for n in sorted(numbers)]
    case = cutter.case(nodes)
    results = interpret(case.graph, [case.arrays[v.name] for v in case.graph.inputs])
    assert len(case.graph.nodes) == len(nodes)
    for got, value in zip(results, cutter.outputs_of(nodes), strict=True):
        np.testing.assert_array_equal(got, cutter.known[value])
    read_back = import_model(export_bytes(case.graph), case.arrays)
    assert {v.name for v in read_back.graph.inputs} == set(case.arrays)


def test_only_what_shows_it_is_left() -> None:
    graph = tower()
    cutter = Cutter(graph, random_arrays(graph))
    seen: list[int] = []

    def shows(case: Case) -> bool:
        return {"tanh", "mul"} <= {n.op.name for n in case.graph.nodes}

    case = smallest_case(cutter, shows, lambda c: seen.append(len(c.graph.nodes)))
    assert sorted(n.op.name for n in case.graph.nodes) == ["mul", "tanh"]
    assert seen == sorted(seen, reverse=True)


def test_extents_become_small_where_that_keeps_the_problem() -> None:
    """A product and a reshape whose attribute follows; rows must be three or more."""
    graph = graph_of("reshape(relu(matmul(x, w)), shape=[16, 5, 6])", x=f(16, 64), w=f(64, 30))
    cutter = Cutter(graph, random_arrays(graph))

    def shows(case: Case) -> bool:
        names = [n.op.name for n in case.graph.nodes]
        return names == ["matmul", "relu", "reshape"] and case.arrays["x"].shape[0] > 2

    case = smallest_case(cutter, shows, lambda c: None)
    assert [v.tensor_type.shape for v in case.graph.inputs] == [(4, 1), (1, 30)]
    assert case.graph.outputs[0].tensor_type.shape == (4, 5, 6)
    assert {n: a.shape for n, a in case.arrays.items()} == {"x": (4, 1), "w": (1, 30)}
    same = smallest_case(cutter, shows, lambda c: None, extents=False)
    assert same.arrays["x"].shape == (16, 64)


def test_constants_are_cut_too_and_what_fits_nowhere_stays() -> None:
    weights = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
    x = make_input("x", f(4, 64))
    outputs = apply(REGISTRY["matmul"](), x, make_constant(weights))
    graph = Graph((x,), outputs, ("y",))
    case = Case(graph, {"x": np.ones((4, 64), np.float32)})
    cut = with_extent(case, 64, 2)
    assert cut is not None
    (constant,) = cut.graph.constants
    np.testing.assert_array_equal(constant.array, weights[:2])
    split = graph_of("split(x, axis=1, sizes=[5, 3])", x=f(2, 8))
    assert with_extent(Case(split, {"x": np.ones((2, 8), np.float32)}), 8, 1) is None


# --------------------------------------------------------------------------------------- trials
PLANTED = """
import os, signal, time
from whet.graph.passes import PASSES, Pass
from whet.graph.rewrite import rebuild
from whet.ops.arithmetic import Exp

def step(b, node, inputs):
    if node.op.name == "{operator}":
        {what}

PASSES.append(Pass("planted", lambda graph, numerics: rebuild(graph, step)))
"""
NUMBERS = itertools.count()
WRONG = "return b.results(Exp(), *inputs)"


@pytest.fixture
def planted(tmp_path: Path) -> Any:
    """Writes a module with a pass that does something at every operator of a name."""

    def write(operator: str, what: str) -> str:
        # Modules of one process have names of their own.
        plain = tmp_path.name.replace("-", "_")
        path = tmp_path / f"planted_{operator}_{plain}_{os.getpid()}_{next(NUMBERS)}.py"
        path.write_text(PLANTED.format(operator=operator, what=what))
        return str(path)

    return write


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a planted module adds is gone after the test."""
    from whet.graph import passes

    monkeypatch.setattr(passes, "PASSES", passes.PASSES.copy())


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve layers, of which one has a sigmoid and one a softplus."""
    rng = np.random.default_rng(2)
    nodes, weights, last = [], {}, "x"
    for n in range(12):
        activation = {4: "Sigmoid", 9: "Softplus"}.get(n, "Relu")
        weights[f"w{n}"] = (rng.standard_normal((8, 8)) / 3).astype(np.float32)
        nodes += [
            node("MatMul", f"{last} w{n}", f"m{n}"),
            node(activation, f"m{n}", f"r{n}"),
            node("Add", f"r{n} {last}", f"a{n}"),
        ]
        last = f"a{n}"
    path = tmp_path_factory.mktemp("deep") / "deep.onnx"
    made = model(nodes, [tensor("x", [4, 8])], [tensor(last), tensor("r3")], weights)
    onnx.save(made, path)
    return str(path)


def reduced(path: str, module: str, timeout: float = 60.0, **options: Any) -> Reduced:
    return reduce_model(path, Question(**options), modules=[module], timeout=timeout)


def operators(found: Reduced) -> list[str]:
    return [n.op.name for n in found.case.graph.nodes]


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        (WRONG, "wrong", "off by"),
        ("raise ValueError('planted')", "error", "ValueError: planted"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crash", "SIGSEGV"),
    ],
)
def test_a_planted_fault_is_reduced_to_its_node(
    deep: str, planted: Any, what: str, kind: str, text: str
) -> None:
    seen: list[Reduced] = []
    found = reduce_model(
        deep, Question(), modules=[planted("sigmoid", what)], watch=seen.append, timeout=60.0
    )
    assert operators(found) == ["sigmoid"]
    assert (found.before.kind, found.after.kind) == (kind, kind)
    assert text in found.after.text
    assert not found.values_matter
    assert found.case.graph.inputs[0].tensor_type.size <= 2
    assert found.nodes_before == 36
    sizes = [len(r.case.graph.nodes) for r in seen]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1


@pytest.mark.usefixtures("passes")
def test_a_trial_that_hangs(deep: str, planted: Any) -> None:
    """With one that answers at once in front, the wait is for the fault alone."""
    module = planted("softplus", "time.sleep(600)")
    graph = import_model(deep).graph
    (lone,) = (n for n in graph.nodes if n.op.name == "softplus")
    cutter = Cutter(graph, random_arrays(graph))
    with Judge(Question(), [module], timeout=10.0) as judge:
        others = cutter.case([n for n in graph.nodes if n is not lone])
        assert judge.of_case(others).kind == "fine"
        assert judge.of_case(cutter.case([lone])) == Finding("hang", "no answer within 10 s")
        assert judge.of_case(others).kind == "fine"


@pytest.mark.usefixtures("passes")
def test_a_fault_that_needs_two_nodes_and_its_values(tmp_path: Path, planted: Any) -> None:
    """The sum of a matrix product and something else is wrong where it is large."""
    what = """
        pair = {getattr(getattr(v, "node", None), "op", None).__class__.__name__ for v in inputs}
        if "Sigmoid" in pair:
            from whet.ops.arithmetic import Add, Minimum
            import numpy as np
            whole = b.results(Add(), *inputs)
            return b.results(Minimum(), *whole, b.constant(np.float32(50)))
    """.strip()
    nodes = [
        node("Mul", "x hundred", "scaled"),
        node("Sigmoid", "scaled", "gate"),
        node("Exp", "gate", "grown"),
        node("Mul", "grown hundred", "high"),
        node("Add", "gate high", "sum"),
        node("Tanh", "sum", "y"),
        node("Neg", "sum", "z"),
    ]
    made = model(nodes, [tensor("x", [5])], [tensor("y"), tensor("z")],
                 {"hundred": np.float32(100)})  # fmt: skip
    path = tmp_path / "pair.onnx"
    onnx.save(made, path)
    found = reduced(str(path), planted("add", what))
    assert sorted(operators(found)) == ["add", "sigmoid"]
    assert found.values_matter
    assert len(found.case.graph.outputs) == 1
    assert max(a.max() for a in found.case.arrays.values()) > 50


@pytest.mark.usefixtures("passes")
def test_another_failure_on_the_way_is_not_followed(deep: str, planted: Any) -> None:
    """Parts without the softplus would fail otherwise, and are no parts of this failure."""
    what = "raise ValueError('planted')"
    other = planted("sigmoid", WRONG)
    found = reduce_model(deep, Question(), modules=[planted("softplus", what), other])
    assert found.before.kind == "error"
    assert operators(found) == ["softplus"]


CLOCK = """
from whet.build.cpu.backend import CpuBackend
from whet.core.outcomes import Outcome
from whet.ir.tensor import describe
from whet.measure.results import Measured
from whet.schedule.default import default_choice

class Clock:
    '''Times that are as expected, but for what has a sigmoid, and a little for what has exp.'''

    def trials(self, task, candidates, threads, target):
        text = describe(*task.outputs)
        late = 1.0 if "sigmoid(" in text else 1e-3 if "exp(" in text else 0.0
        expected = default_choice(task, target, threads).nanoseconds * 1e-9
        for candidate in candidates:
            yield Measured(candidate, Outcome.OK, (expected + late,))

    def close(self):
        pass

CpuBackend.runner = lambda self: Clock()
"""


def test_mispriced_kernels_are_found_by_what_they_cost(
    deep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuBackend, "runner", CpuBackend.runner)
    clock = tmp_path / f"clock_{os.getpid()}_{next(NUMBERS)}.py"
    clock.write_text(CLOCK)
    found = reduced(deep, str(clock), factor=3.0, threads=1)
    assert found.before.kind == found.after.kind == "mispriced"
    assert operators(found) == ["sigmoid"]
    assert "times off" in found.after.text


def test_prices_and_times_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    made = model([node("Relu", "x", "y")], [tensor("x", [64, 64])], [tensor("y", [64, 64])])
    onnx.save(made, path)
    with pytest.raises(UsageError, match="off its price by more than 1e\\+09 times"):
        reduce_model(str(path), Question(factor=1e9, threads=1))


def test_a_model_without_a_problem(deep: str) -> None:
    with pytest.raises(UsageError, match="gives what the reference gives"):
        reduce_model(deep, Question())


def test_a_tolerance_of_nothing_is_a_problem_of_rounding(deep: str) -> None:
    found = reduce_model(deep, Question(Tolerance(0.0)))
    assert found.after.kind == "wrong"
    assert len(operators(found)) <= 2


def test_a_model_whose_values_do_not_fit(tmp_path: Path) -> None:
    table = {"table": np.arange(6, dtype=np.float32)}
    made = model([node("Gather", "table n", "y")], [tensor("n", [2], onnx.TensorProto.INT64)],
                 [tensor("y")], table)  # fmt: skip
    path = tmp_path / "gather.onnx"
    onnx.save(made, path)
    with pytest.raises(UsageError, match="cannot be tried: the reference fails: WH1302"):
        reduce_model(str(path), Question(), values={"n": np.array([0, 9])})


def test_random_numbers_are_not_compared(tmp_path: Path) -> None:
    made = model(
        [node("RandomNormalLike", "x", "r"), node("Add", "r x", "y")],
        [tensor("x", [3])],
        [tensor("y", [3])],
    )
    path = tmp_path / "random.onnx"
    onnx.save(made, path)
    with pytest.raises(UsageError, match="gives what the reference gives"):
        reduce_model(str(path), Question())
