"""The benchmark networks in small, compiled and compared with the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import whet
from tests.targets import HOST, LEVELS
from whet.core.types import Array
from whet.frontend.onnx import import_model
from whet.graph.interpret import interpret
from zoo.networks import BUILDERS, Network, described
from zoo.reduced import REDUCED, TOKENS
from zoo.writer import Writer

TOLERANCE = 1e-5
"""Largest error, as a part of the largest value of an output."""

OTHERS = [name for name in ("x86-64-v3", "x86-64-v2") if name in LEVELS and name != HOST.name]
WAYS: list[tuple[str | None, int]] = [(None, 1), (None, 2), *((name, 1) for name in OTHERS[:1])]
"""Targets, where None is this machine as settings have it, and numbers of threads."""


@pytest.mark.parametrize("name", REDUCED)
def test_native_code_computes_what_the_interpreter_does(
    name: str, configured: Callable[..., None]
) -> None:
    configured(CACHE_ENABLED=0)
    model = REDUCED[name]()
    arrays = sample(model)
    expected = interpret(import_model(model).graph, list(arrays.values()))
    for target, threads in WAYS:
        compiled = whet.compile(model, threads=threads, target=target)
        what = f"{name} for {target or HOST.name} with {threads} threads"
        assert compiled.engine == "native", what
        assert not [line for line in compiled.describe() if line.startswith("not native: ")], what
        for (_, got), want in zip(compiled.results(**arrays).items(), expected, strict=True):
            assert_near(got, np.asarray(want), what)


def sample(model: onnx.ModelProto) -> dict[str, Array]:
    inputs = tuple(described(value) for value in model.graph.input)
    return Network(model.graph.name, Path(), inputs).sample(tokens=TOKENS)


def assert_near(got: Array, want: Array, what: str) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    assert np.ptp(want) > 0.01, f"{what}: the inputs make nothing happen"
    error = np.abs(got - want).max() / np.abs(want).max()
    assert error <= TOLERANCE, what


def test_every_network_is_there_in_small() -> None:
    assert list(REDUCED) == list(BUILDERS)


@pytest.mark.parametrize("name", REDUCED)
def test_small_networks_have_all_kinds_of_layers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "normal", shape_alone)
    assert layers(REDUCED[name]()) == layers(BUILDERS[name]())


def shape_alone(self: Writer, shape: tuple[int, ...], *_: float, **__: float) -> str:
    """In place of `Writer.normal`, which draws the hundred million weights of BERT."""
    name = f"w{len(self.weights)}"
    tensor = onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT)
    self.weights.append(tensor)
    return name


def layers(model: onnx.ModelProto) -> set[str]:
    """Operators with their attributes; of groups of channels, whether each has one channel."""
    sizes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    found = set()
    for node in model.graph.node:
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if given.get("group", 1) > 1:
            given["group"] = "one each" if sizes[node.input[1]][1] == 1 else "several each"
        found.add(f"{node.op_type} {sorted(given.items())}")
    return found
