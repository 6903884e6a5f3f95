"""A stranger's operator: defined here, outside the package, and usable everywhere.

One decorated class and one mapping line are enough for graphs, the interpreter and the ONNX
front end with a domain of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper

from whet.core.dtypes import f32
from whet.core.errors import ModelError
from whet.core.types import Array, TensorType
from whet.frontend.onnx import import_model
from whet.frontend.onnx.mapping import CONVERTERS, Context, maps
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.interpret import interpret
from whet.ir.evaluate import evaluate
from whet.ir.expr import Expr
from whet.ir.tensor import Compute, Tensor, compute, placeholder
from whet.ops.base import REGISTRY, NoAlgebra, Op, Sample, operator, require

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def swirl() -> Iterator[type[Op]]:
    """The operator and its mapping, registered while this module's tests run."""

    @operator("swirl", "x")
    class Swirl(Op):
        """Rows rotated: row i is shifted by `step` * i places."""

        step: int = 1

        def infer(self, x: TensorType) -> TensorType:
            require(x.rank == 2, self, "the input is no matrix", x)
            return x

        def reference(self, x: Array) -> Array:
            return np.stack([np.roll(row, self.step * i) for i, row in enumerate(x)])

        def compute(self, x: Tensor) -> Compute:
            rows, columns = x.shape

            def body(i: Expr, j: Expr) -> Expr:
                return x[i, (j + i * (-self.step % columns)) % columns]

            return compute((rows, columns), body, "swirl")

        axioms = NoAlgebra("an example")

        @classmethod
        def samples(cls) -> tuple[Sample, ...]:
            return (Sample(cls(2), (TensorType((3, 4), f32),)),)

        @classmethod
        def sample(cls, rng: np.random.Generator) -> Sample:
            return Sample(cls(int(rng.integers(0, 4))), (TensorType((2, 5), f32),))

    @maps("Swirl", domain="my.domain")
    def convert(c: Context) -> Value:
        return c(Swirl(c.attr("step", 1)), c.input(0))

    yield Swirl
    del REGISTRY["swirl"], CONVERTERS["my.domain", "Swirl"]


def expected(x: Array, step: int) -> Array:
    return np.stack([np.roll(row, step * i) for i, row in enumerate(x)])


def test_in_a_graph_and_its_interpreter(swirl):
    b = GraphBuilder()
    x = b.input("x", TensorType((2, 3), f32))
    graph = Graph((x,), (b.one(swirl(2), x),), ("y",))
    (y,) = interpret(graph, [X])
    np.testing.assert_array_equal(y, expected(X, 2))


def test_compute_equals_reference(swirl):
    rng = np.random.default_rng(0)
    for sample in (*swirl.samples(), *(swirl.sample(rng) for _ in range(5))):
        (array,) = sample.arrays(rng)
        x = placeholder(array.shape, f32, "x")
        (y,) = evaluate(sample.op.compute_tensors((x,)), {x: array})
        np.testing.assert_array_equal(y, sample.op.reference(array))


def test_in_the_onnx_front_end(swirl):
    graph = helper.make_graph(
        [
            helper.make_node("Swirl", ["x"], ["s"], domain="my.domain", step=2),
            helper.make_node("Neg", ["s"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)]
    imported = import_model(helper.make_model(graph, opset_imports=opsets))
    assert [n.op.name for n in imported.graph.nodes] == ["swirl", "neg"]
    (y,) = interpret(imported.graph, [X])
    np.testing.assert_array_equal(y, -expected(X, 2))


def test_its_type_errors_name_the_node(swirl):
    graph = helper.make_graph(
        [helper.make_node("Swirl", ["x"], ["y"], name="odd", domain="my.domain")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("my.domain", 1)]
    with pytest.raises(ModelError, match="Swirl node 'odd': swirl: the input is no matrix"):
        import_model(helper.make_model(graph, opset_imports=opsets))
