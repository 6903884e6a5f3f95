"""Operators merged by hand: what one product for several does to prices and times.

    python bench/merges.py [--threads 1 2] [--only qkv] [--json OUT]

Each block is built twice, with an operator per result and with one operator whose result is split.
`gain` is the time apart by the time merged, by the analytic price and as measured in turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import whet
from harness.report import Report, number, parser, say, settings_of
from harness.tuning import native_engine
from whet.build.backend import backend_of
from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Input, Value
from whet.graph.passes import expand_composites
from whet.ops import REGISTRY
from whet.tasks.plan import plan_graph
from whet.tasks.price import no_evidence
from whet.tasks.region import steps_seconds

SECONDS = 2.0
"""How long a pair of blocks is called."""


class Block:
    """A graph under construction, with weights that depend on their position alone."""

    def __init__(self) -> None:
        self.build, self.rng = GraphBuilder(), np.random.default_rng(0)

    def weights(self, *shape: int) -> Array:
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def apply(self, name: str, *values: Value, **attributes: object) -> Value:
        return self.build.one(REGISTRY[name](**attributes), *values)

    def split(self, x: Value, axis: int, *sizes: int) -> tuple[Value, ...]:
        return self.build.results(REGISTRY["split"](axis, sizes), x)

    def conv(self, x: Value, w: Array) -> Value:
        pads = tuple(n // 2 for n in w.shape[2:]) * 2
        conv = REGISTRY["conv"]((1, 1), pads, (1, 1))
        return self.build.one(conv, x, self.build.constant(w))

    def bias_relu(self, x: Value, bias: Array) -> Value:
        shaped = self.build.constant(bias.reshape(1, -1, 1, 1))
        return self.apply("relu", self.apply("add", x, shaped))

    def graph(self, x: Value, *outputs: Value) -> Graph:
        assert isinstance(x, Input)
        names = tuple(f"y{n}" for n in range(len(outputs)))
        return expand_composites(Graph((x,), outputs, names, {}))


def inception(merged: bool, relu_of_first: bool = True) -> Graph:
    """Three 1x1 convolutions of one input: one is a result, a 5x5 and a 3x3 read the others."""
    b, sizes = Block(), (64, 48, 64)
    x: Value = b.build.input("x", TensorType((1, 192, 35, 35), f32))
    x0 = b.bias_relu(b.conv(x, b.weights(192, 192, 1, 1)), b.weights(192, 1))
    weights = [b.weights(n, 192, 1, 1) for n in sizes]
    biases = [b.weights(n, 1) for n in sizes]
    if merged:
        parts = list(b.split(b.conv(x0, np.concatenate(weights)), 1, *sizes))
    else:
        parts = [b.conv(x0, w) for w in weights]
    for n, bias in enumerate(biases):
        if n or relu_of_first:
            parts[n] = b.bias_relu(parts[n], bias)
    wide = b.bias_relu(b.conv(parts[1], b.weights(64, 48, 5, 5)), b.weights(64, 1))
    narrow = b.bias_relu(b.conv(parts[2], b.weights(96, 64, 3, 3)), b.weights(96, 1))
    joined = b.apply("concat", parts[0], wide, narrow, axis=1)
    return b.graph(x, b.bias_relu(b.conv(joined, b.weights(64, 224, 1, 1)), b.weights(64, 1)))


def inception_mixed(merged: bool) -> Graph:
    """The same, but the first part goes on without bias and relu."""
    return inception(merged, relu_of_first=False)


def qkv(merged: bool) -> Graph:
    """Query, key and value of 12 heads, with biases, and their attention."""
    b, width, heads, length = Block(), 768, 12, 128
    x: Value = b.build.input("x", TensorType((length, width), f32))
    weights = [b.weights(width, width) for _ in range(3)]
    biases = [b.weights(width, 1).reshape(-1) for _ in range(3)]
    if merged:
        whole = b.apply("matmul", x, b.build.constant(np.concatenate(weights, axis=1)))
        parts = list(b.split(whole, 1, width, width, width))
    else:
        parts = [b.apply("matmul", x, b.build.constant(w)) for w in weights]
    q, k, v = (
        b.apply(
            "transpose",
            b.apply(
                "reshape",
                b.apply("add", part, b.build.constant(bias)),
                shape=(length, heads, width // heads),
            ),
            perm=perm,
        )
        for part, bias, perm in zip(parts, biases, ((1, 0, 2), (1, 2, 0), (1, 0, 2)))
    )
    scores = b.apply("softmax", b.apply("matmul", q, k), axis=2)
    return b.graph(x, b.apply("matmul", scores, v))


def swiglu(merged: bool) -> Graph:
    """Gate and up projection: silu(x @ g) * (x @ u) @ d."""
    b, width, inner, length = Block(), 512, 1408, 64
    x: Value = b.build.input("x", TensorType((length, width), f32))
    gate, up = b.weights(width, inner), b.weights(width, inner)
    if merged:
        whole = b.apply("matmul", x, b.build.constant(np.concatenate([gate, up], axis=1)))
        left, right = b.split(whole, 1, inner, inner)
    else:
        left, right = (b.apply("matmul", x, b.build.constant(w)) for w in (gate, up))
    gated = b.apply("mul", b.apply("mul", left, b.apply("sigmoid", left)), right)
    return b.graph(x, b.apply("matmul", gated, b.build.constant(b.weights(inner, width))))


def fire(merged: bool) -> Graph:
    """SqueezeNet's fire: 1x1 and 3x3 of one input; merged, the 1x1 is the middle of a 3x3."""
    b = Block()
    x: Value = b.build.input("x", TensorType((1, 128, 54, 54), f32))
    squeezed = b.bias_relu(b.conv(x, b.weights(16, 128, 1, 1)), b.weights(16, 1))
    one, three = b.weights(64, 16, 1, 1), b.weights(64, 16, 3, 3)
    first, second = b.weights(64, 1), b.weights(64, 1)
    if merged:
        enlarged = np.pad(one, ((0, 0), (0, 0), (1, 1), (1, 1)))
        both = b.conv(squeezed, np.concatenate([enlarged, three]))
        y = b.bias_relu(both, np.concatenate([first, second]))
    else:
        made = b.bias_relu(b.conv(squeezed, one), first)
        y = b.apply("concat", made, b.bias_relu(b.conv(squeezed, three), second), axis=1)
    return b.graph(x, b.bias_relu(b.conv(y, b.weights(16, 128, 1, 1)), b.weights(16, 1)))


BLOCKS: dict[str, Callable[[bool], Graph]] = {
    "inception": inception,
    "inception_mixed": inception_mixed,
    "qkv": qkv,
    "swiglu": swiglu,
    "fire": fire,
}


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(1, 2))
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BLOCKS))
    return made


def main() -> None:
    given = arguments().parse_args()
    report = Report("Merges", settings_of(given))
    for threads in given.threads:
        rows = []
        for name in given.only or BLOCKS:
            say(f"{name}, {threads} threads")
            pair = [BLOCKS[name](merged) for merged in (False, True)]
            prices = [priced(graph, threads) for graph in pair]
            times = measured(pair, threads)
            rows.append([
                name,
                *(number(1e6 * t) for t in prices), number(prices[0] / prices[1]),
                *(number(1e6 * t) for t in times), number(times[0] / times[1]),
            ])  # fmt: skip
        header = ["block", "price apart us", "merged", "gain", "time apart us", "merged", "gain"]
        report.add_table(f"Apart and merged, {threads} threads", header, rows)
    report.finish(given.json)


def priced(graph: Graph, threads: int) -> float:
    """Seconds by the analytic price."""
    target = native_engine().target
    backend = backend_of(target)
    price = backend.price(target, threads, "real", no_evidence, graph.constant_bytes)
    plan = plan_graph(graph, price, backend.holds)
    return sum(steps_seconds(part.steps, price) for part in plan.plans.values())


def measured(graphs: list[Graph], threads: int) -> list[float]:
    """The least time of a call of each, in turns; results must be equal but for rounding."""
    models = [whet.compile(graph, threads=threads) for graph in graphs]
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(v.tensor_type.shape).astype(np.float32) for v in graphs[0].inputs]
    for a, b in zip(*(results(model, values) for model in models)):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    times: list[list[float]] = [[] for _ in models]
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for model, own in zip(models, times):
            for _ in range(5):
                start = time.perf_counter()
                model(*values)
                own.append(time.perf_counter() - start)
    return [min(own) for own in times]


def results(model: Callable[..., object], values: list[Array]) -> list[Array]:
    found = model(*values)
    return list(found.values()) if isinstance(found, dict) else [np.asarray(found)]


if __name__ == "__main__":
    main()
