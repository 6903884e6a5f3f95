"""Code for the levels of x86-64, whatever this machine is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import guarded_results
from tests.codegen.examples import EXAMPLES, make_example, sketch_first
from tests.codegen.foreign import compile_for
from tests.codegen.loops import busiest_loop
from tests.ops.test_properties import check_same
from tests.targets import skip_unless_it_runs_here
from whet.build.native import NO_CACHE, build
from whet.core.cpu import PRESETS, CpuTarget, named_target
from whet.core.dtypes import f32, i32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ops.arithmetic import Round
from whet.ops.casting import Cast

OLD, NARROW, WIDE = (PRESETS[f"x86-64-v{n}"] for n in (2, 3, 4))


# ----------------------------------------------------------------------------------- assembly
@pytest.mark.parametrize(
    ("name", "target", "register"),
    [
        ("matmul", NARROW, "%ymm"),
        # Where a whole vector takes twice as long as half of one, either will do.
        ("matmul", WIDE.calibrated(fma_per_ns_512=6.6), "%zmm"),
        ("convolution", NARROW, "%ymm"),
        # 20 channels take 24 lanes of half vectors, but 32 of whole ones.
        ("convolution", WIDE, "%ymm"),
    ],
)
def test_products_use_the_registers_that_fill(name: str, target: CpuTarget, register: str) -> None:
    graph, _ = make_example(name)
    loop = busiest_loop(compile_for(graph, target, sketch_first(target)).assembly(), "vfmadd")
    fused = [line for line in loop if line.startswith("vfmadd")]
    assert len(fused) >= 8, "too few independent sums to hide the latency"
    assert all(register in line for line in fused)
    assert not [line for line in loop if "(%rsp" in line]


@pytest.mark.parametrize("name", ["softmax", "functions", "layer_norm"])
@pytest.mark.parametrize("target", [OLD, NARROW, WIDE], ids=lambda t: t.name)
def test_registers_of_other_levels_are_not_used(name: str, target: CpuTarget) -> None:
    graph, _ = make_example(name)
    text = compile_for(graph, target, sketch_first(target)).assembly()
    assert ("%zmm" in text) == (target is WIDE)
    assert ("%ymm" in text) <= (target is not OLD)
    called = {line.split()[1] for line in text.splitlines() if line.split()[:1] == ["callq"]}
    assert called <= {"whet_parallel@PLT"}


# ------------------------------------------------------------------------------------ results
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("target", [OLD, NARROW, WIDE], ids=lambda t: t.name)
def test_results_are_those_of_the_interpreter(name: str, target: CpuTarget) -> None:
    skip_unless_it_runs_here(target)
    graph, arrays = make_example(name)
    executable = build(graph, target, 1, NO_CACHE, schedule=sketch_first(target, name))
    with np.errstate(all="ignore"):
        expected = interpret(graph, arrays)
    for results in guarded_results(executable, graph, arrays):
        for got, want in zip(results, expected, strict=True):
            check_same(got, np.asarray(want), name)


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("length", [4, 17, 33])
def test_rounded_numbers_become_integers_wherever_they_lie(name: str, length: int) -> None:
    """The last vector overlaps the one before, so it is not aligned."""
    b = GraphBuilder()
    x = b.input("x", TensorType((length,), f32))
    graph = Graph((x,), (b.one(Cast(i32), b.one(Round(), x)),), ("y",))
    values = np.linspace(-5, 5, length + 1, dtype=np.float32)[1:]
    target = named_target(name)
    skip_unless_it_runs_here(target)
    (found,) = build(graph, target, 1, NO_CACHE)((values,))
    assert found.tolist() == np.rint(values).astype(np.int32).tolist()
