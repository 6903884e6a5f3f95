"""whet in one minute: a small network, before and after.

    python examples/demo.py [--seconds 2]

Builds a convolutional network with random (seeded) weights as an exporter would write it,
compiles it, checks the results against ONNX Runtime and times both in turns.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import whet
from whet.api.compare import Tolerance, compare
from whet.cli.peers.process import Worker
from whet.cli.peers.turns import Ratio, Timing, ratio, take_turns
from whet.frontend.onnx import import_model

CLASSES = 10
IMAGE = (1, 3, 64, 64)


class NetworkWriter:
    """Writes ONNX nodes the way exporters do: small steps, shapes computed at run time."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, array: np.ndarray[Any, Any]) -> str:
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def conv(self, x: str, channels: int, filters: int, stride: int = 1) -> str:
        """Convolution and batch normalization, as two nodes."""
        scale = (2 / (9 * channels)) ** 0.5
        w = self.rng.normal(0, scale, (filters, channels, 3, 3)).astype(np.float32)
        y = self.node(
            "Conv", x, self.weight(w), kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4
        )
        gamma, beta = self.rng.uniform(0.5, 1.5, filters), self.rng.normal(0, 0.1, filters)
        mean, var = self.rng.normal(0, 0.1, filters), self.rng.uniform(0.5, 1.5, filters)
        parts = [self.weight(p.astype(np.float32)) for p in (gamma, beta, mean, var)]
        return self.node("BatchNormalization", y, *parts)

    def block(self, x: str, channels: int, filters: int, stride: int) -> str:
        """A residual block."""
        y = self.node("Relu", self.conv(x, channels, filters, stride))
        y = self.conv(y, filters, filters)
        shortcut = x if channels == filters else self.conv(x, channels, filters, stride)
        return self.node("Relu", self.node("Add", y, shortcut))

    def flatten(self, x: str) -> str:
        """A flatten as it is often exported: read the shape, build the new one, reshape."""
        shape = self.node("Shape", x)
        batch = self.node("Gather", shape, self.weight(np.array(0)), axis=0)
        batch = self.node("Unsqueeze", batch, self.weight(np.array([0])))
        target = self.node("Concat", batch, self.weight(np.array([-1])), axis=0)
        return self.node("Reshape", x, target)


def build_network() -> onnx.ModelProto:
    """Three residual blocks, global pooling and a classifier."""
    net = NetworkWriter()
    x = net.node("Relu", net.conv("image", 3, 16))
    for channels, filters, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        x = net.block(x, channels, filters, stride)
    x = net.flatten(net.node("GlobalAveragePool", x))
    w = net.rng.normal(0, 0.1, (64, CLASSES)).astype(np.float32)
    x = net.node("Gemm", x, net.weight(w), net.weight(np.zeros(CLASSES, np.float32)))
    net.nodes.append(helper.make_node("Softmax", [x], ["scores"], "scores", axis=-1))
    graph = helper.make_graph(
        net.nodes,
        "demo",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (IMAGE[0], CLASSES))],
        net.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def time_both(path: Path, image: Any, seconds: float) -> tuple[dict[str, Timing], Ratio, float]:
    """Timings by runtime, how many times longer ONNX Runtime takes, and the largest error."""
    with Worker("whet", 1) as own, Worker("onnxruntime", 1) as other:
        for worker in (own, other):
            worker.load(str(path), {"image": image})
        error = compare("scores", own.run()[0], other.run()[0], Tolerance()).of_range
        timings = take_turns({"whet": own, "onnxruntime": other}, seconds)
    return timings, ratio(timings["onnxruntime"], timings["whet"]), error


def main() -> None:
    parser = argparse.ArgumentParser(description="whet in one minute")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of timing per runtime")
    seconds: float = parser.parse_args().seconds
    console = Console(highlight=False)
    image = np.random.default_rng(1).standard_normal(IMAGE).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path, artifact = Path(folder) / "demo.onnx", Path(folder) / "demo.whet"
        model = build_network()
        path.write_bytes(model.SerializeToString())
        imported = import_model(path)
        whet.compile(path, note=lambda message: console.print(f"note: {message}")).save(artifact)
        f = whet.load(artifact)
        nodes = len(f.graph.nodes)
        timings, speed, error = time_both(path, image, seconds)
    before, after = timings["onnxruntime"], timings["whet"]
    table = Table(title="A small residual network, one thread", title_justify="left")
    for column in ("", "before (ONNX Runtime)", "after (whet)"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("nodes in the model", str(len(model.graph.node)), str(nodes))
    table.add_row("  once imported", "", str(len(imported.graph.nodes)))
    table.add_row("median ms", f"{before.median * 1e3:.3f}", f"{after.median * 1e3:.3f}")
    table.add_row("p90 ms", f"{before.p90 * 1e3:.3f}", f"{after.p90 * 1e3:.3f}")
    table.add_row("speed-up", "1.00", f"{speed.value:.2f} ({speed.low:.2f} to {speed.high:.2f})")
    table.add_row("largest error, of the range", "", f"{error:.1e}")
    table.add_row("engine", "native", f.engine)
    console.print(table)
    if error > Tolerance().max_error:
        raise SystemExit("the results differ")


if __name__ == "__main__":
    main()
