"""Derived candidates on two threads of the real pool: tiles that overlap, borders, odd extents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, TARGET, guarded_results
from tests.build.random_graphs import random_graph
from tests.build.schedules import RandomSchedule, check_results
from tests.schedule.windows import Windows, relative_error
from whet.build.native import build
from whet.core.dtypes import f32
from whet.core.errors import ScheduleError
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.ir.interpreter import run
from whet.ir.program import Loop, walk
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.ops.reduce import ReduceSum
from whet.ops.softmax import Softmax
from whet.schedule.derive.sketch import Derived
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.primitives import naive_program
from whet.schedule.space.sketch import Population
from whet.tasks.task import Task

THREADS = 2
CALLS = 2
"""Two threads meet in an overlap at some of the calls."""
DERIVED = Derived()
B = GraphBuilder()


class SharedOut:
    """A schedule that draws from what the rules derive, preferring what runs on both threads."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.parallel = 0
        self.overlapping = 0
        self.shown: list[str] = []

    def __call__(self, task: Task, name: str) -> Kernel:
        form = DERIVED.fits(task)
        assert form is not None
        population = DERIVED.space(form, TARGET, THREADS)
        if not len(population["structure"]):
            return RandomSchedule(self.rng, THREADS)(task, name)
        shared: Array = np.zeros(len(population["structure"]), np.int64)
        for hole, column in population.items():
            shared += column if hole.endswith(".parallel") else 0
        rows = np.flatnonzero(shared > 0) if shared.any() else np.arange(len(shared))
        kernel, holes = self.lowered(form, population, rows, name)
        loops = [s for s in walk(kernel.program.body) if isinstance(s, Loop)]
        self.parallel += any(s.kind == "parallel" for s in loops)
        self.overlapping += "min(" in str(kernel.program)
        self.shown.append(f"{holes}")
        return kernel

    def lowered(
        self, form: object, population: Population, rows: Array, name: str
    ) -> tuple[Kernel, dict[str, int]]:
        """One of the rows; rules judge structures, and the primitives may refuse a single row."""
        for row in self.rng.permutation(rows):
            holes = {hole: int(column[row]) for hole, column in population.items()}
            try:
                return DERIVED.lower(form, holes, name), holes
            except ScheduleError as error:
                refusal = error
        raise refusal


def check(graph: Graph, seed: int) -> SharedOut:
    rng = np.random.default_rng(seed)
    arrays = tuple(rng.uniform(-1, 1, v.tensor_type.shape).astype(np.float32) for v in graph.inputs)
    schedule = SharedOut(seed)
    executable = build(graph, TARGET, THREADS, NO_CACHE, schedule=schedule)
    for _ in range(CALLS):
        found = list(guarded_results(executable, graph, arrays))
        check_results(found, graph, arrays, f"seed {seed}: {schedule.shown}\n{graph}")
    return schedule


def weights(*shape: int) -> Value:
    rng = np.random.default_rng(len(shape))
    return B.constant(rng.uniform(-1, 1, shape).astype(np.float32))


def product(x: Value) -> Value:
    return B.one(Relu(), B.one(MatMul(), x, weights(19, 23)))


def two_products(x: Value) -> Value:
    t = B.one(Relu(), B.one(MatMul(), x, weights(17, 29)))
    return B.one(Add(), B.one(MatMul(), t, weights(29, 13)), weights(13))


def padded_windows(x: Value) -> Value:
    """The second one reads what has a border of zeros in memory."""
    same = Conv((1, 1), (1, 1, 1, 1), (1, 1), 1)
    t = B.one(Relu(), B.one(same, x, weights(7, 5, 3, 3)))
    return B.one(same, t, weights(6, 7, 3, 3))


def strided_windows(x: Value) -> Value:
    return B.one(Relu(), B.one(Conv((2, 2), (1, 1, 1, 1), (1, 1), 2), x, weights(10, 3, 3, 3)))


def normalized(x: Value) -> Value:
    return B.one(Softmax(1), x)


def sums(x: Value) -> Value:
    return B.one(ReduceSum((1,)), x)


DAGS: dict[Callable[[Value], Value], tuple[int, ...]] = {
    product: (13, 19),
    two_products: (11, 17),
    padded_windows: (1, 5, 9, 11),
    strided_windows: (2, 6, 13, 10),
    normalized: (7, 37),
    sums: (3, 301),
}
"""Small DAGs with the shapes of their inputs: few tiles divide the extents."""
CONTRACTIONS = (product, two_products, padded_windows, strided_windows)


@pytest.mark.parametrize("dag", DAGS)
def test_two_threads_give_what_the_interpreter_gives(dag: Callable[[Value], Value]) -> None:
    x = B.input("x", TensorType(DAGS[dag], f32))
    graph = Graph((x,), (dag(x),), ("y",))
    found = [check(graph, seed) for seed in range(4)]
    assert sum(s.parallel for s in found) >= 3
    if dag in CONTRACTIONS:
        assert any(s.overlapping for s in found)


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_on_two_threads(seed: int) -> None:
    check(random_graph(np.random.default_rng(100 + seed), 3), seed)


# --------------------------------------------------------------------------------------- borders
BORDERED = {
    "odd": Windows((3, 5), 2, 5),
    "followed": Windows((4, 3), 2, 4, epilogue=True),
    "strided": Windows((5, 7), 2, 3, stride=2),
    "far apart": Windows((5, 4), 2, 3, dilation=2, pad=2),
    "by channel": Windows((4, 5), 4, 4, groups=4),
}


@pytest.mark.parametrize("name", BORDERED)
def test_zeros_around_an_input_are_read(name: str) -> None:
    """No bounds check is left, and native code and the definition of the program agree."""
    case = BORDERED[name]
    border = case.task.borders[case.x]
    padded: Array = np.pad(case.arrays[case.x], border)
    program = naive_program(case.task)
    assert program.inputs[0].shape == padded.shape
    assert "select" not in str(program)
    given = {t: padded if t is case.x else case.arrays[t] for t in case.task.inputs}
    (plain,) = run(program, [given[t] for t in case.task.inputs])
    assert relative_error(plain, case.expected) < 1e-5
    schedule = SharedOut(len(name))
    for n in range(2):
        kernel = schedule(case.task, f"k{n}")
        arguments = [given[t] for t in kernel.arguments if t in given]
        if len(arguments) == len(kernel.arguments):
            (meant,) = run(kernel.program, arguments)
            assert relative_error(meant, case.expected) < 1e-5
        for at_end in (True, False):
            got = case.run(kernel, TARGET, at_end=at_end)
            assert relative_error(got, case.expected) < 1e-5, schedule.shown[-1]
