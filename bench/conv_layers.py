"""Convolution layers of ResNet-50 and MobileNet-V2 against other runtimes, batch 1.

    python bench/conv_layers.py [--threads 1 2] [--group resnet50] [--only '64-64 3x3 @56']

Every layer has bias and relu.  A layer that fits onto itself is measured as four of them in a
row, so that conversions at the edges of the model matter less; others are measured alone.
whet, ONNX Runtime and OpenVINO each get the model with channels first and with channels last
at the edges, and the better one counts; torch runs eager in both layouts and with weights that
oneDNN has packed, and the best one counts.  Errors are against float64, relative to the largest
value, next to those of a direct convolution in float32.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from harness.peers import Field, Peer, error_of_range
from harness.report import (
    ABSENT,
    Goal,
    Report,
    any_disturbed,
    count,
    fastest,
    geometric_mean,
    milliseconds,
    number,
    parser,
    say,
    settings_of,
)
from harness.turns import Measurement, settings_from, take_turns
from whet.core.types import Array
from zoo.layers import (
    ConvLayer,
    conv_model,
    direct_convolution,
    mobilenet_v2_depthwise_layers,
    resnet50_layers,
    strided_3x3_layers,
)

COPIES = 4
GROUPS = {
    "resnet50": resnet50_layers,
    "strided 3x3": strided_3x3_layers,
    "depthwise": mobilenet_v2_depthwise_layers,
}
VARIANTS: Mapping[str, tuple[tuple[str, bool], ...]] = {
    "whet": (("whet", False), ("whet", True)),
    "onnxruntime": (("onnxruntime", False), ("onnxruntime", True)),
    "openvino": (("openvino", False), ("openvino", True)),
    "torch": (("torch", False), ("torch_channels_last", False), ("torch_prepacked", False)),
}
"""Each contestant's runtimes, and whether the model has channels last at its edges."""
PEERS = tuple(name for name in VARIANTS if name != "whet")
LARGEST_ERROR = 2.0
"""How many times the error of a direct convolution is allowed."""


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__)
    made.add_argument("--group", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    made.add_argument("--only", nargs="+", metavar="LAYER", help="layers, as the table names them")
    made.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    return made


def required_ratio(group: str, layer: ConvLayer) -> float:
    """How many times as fast as the best peer a layer should be at least."""
    if group == "resnet50" and layer.kernel == 3:
        return 1.3 if layer.size == 7 else 2.2
    return {"resnet50": 0.9, "strided 3x3": 0.9, "depthwise": 1.7}[group]


def key_of(runtime: str, channels_last: bool) -> str:
    return f"{runtime} (channels-last edges)" if channels_last else runtime


def copies_of(layer: ConvLayer) -> int:
    return COPIES if layer.stackable else 1


def results(
    layer: ConvLayer, model: onnx.ModelProto, x: Array, dtype: type[np.floating[Any]]
) -> Array:
    """What the model means, computed directly in the given precision."""
    weights = [onnx.numpy_helper.to_array(t).astype(dtype) for t in model.graph.initializer]
    y = x.astype(dtype)
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        y = direct_convolution(y, weight, bias, layer)
    return y


class Bench:
    """Measures layers on one number of threads."""

    def __init__(self, field: Field, folder: Path, given: argparse.Namespace) -> None:
        self.field, self.folder, self.settings = field, folder, settings_from(given)
        self.names = ["whet", *given.peers]

    def measure(self, layer: ConvLayer) -> tuple[dict[str, Measurement], dict[str, float]]:
        """Times per layer and errors by variant; the error `direct` is that of float32."""
        copies = copies_of(layer)
        x = np.random.default_rng(7).standard_normal((1, layer.cin, layer.size, layer.size))
        x = x.astype(np.float32)
        model = conv_model(layer, copies)
        expected = results(layer, model, x, np.float64)
        errors = {"direct": error_of_range(results(layer, model, x, np.float32), expected)}
        peers: dict[str, Peer] = {}
        for channels_last in (False, True):
            path = self.folder / f"layer{int(channels_last)}.onnx"
            onnx.save(conv_model(layer, copies, channels_last), path)
            values = {"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if channels_last else x}
            for name in self.names:
                for runtime, last in VARIANTS[name]:
                    if last != channels_last:
                        continue
                    key = key_of(runtime, last)
                    peer = self.field.load(key, str(path), values)
                    if peer is not None:
                        found = peer.run()[0]
                        found = found.transpose(0, 3, 1, 2) if last else found
                        peers[key], errors[key] = peer, error_of_range(found, expected)
        times = take_turns(peers, self.settings, failed=self.field.note)
        return {key: m.per(copies) for key, m in times.items()}, errors


def best_variant(name: str, times: dict[str, Measurement]) -> str | None:
    return fastest(times, [key_of(*v) for v in VARIANTS[name]])


def judge(
    report: Report,
    group: str,
    layer: ConvLayer,
    threads: int,
    times: dict[str, Measurement],
    errors: dict[str, float],
) -> tuple[list[str], float | None]:
    """Adds to the report; the line of the table and the ratio to the best peer."""
    chosen = {name: best_variant(name, times) for name in VARIANTS}
    own = chosen["whet"]
    best = fastest(times, [c for name, c in chosen.items() if c and name != "whet"])
    ratio = times[best].median / times[own].median if own and best else None
    error = errors[own] / errors["direct"] if own else None
    report.rows.append(
        {"group": group, "layer": str(layer), "threads": threads, "flops": layer.flops,
         "copies": copies_of(layer), "times": times, "errors": errors, "best_peer": best,
         "ratio": ratio, "error_over_direct": error}
    )  # fmt: skip
    where = f"{group} {layer}, {count(threads)}"
    unsure = any_disturbed(*(times[c] for c in (own, best) if c))
    report.goals.append(
        Goal(f"{where}: ratio", ratio, required_ratio(group, layer), disturbed=unsure)
    )
    report.goals.append(Goal(f"{where}: error over direct", error, LARGEST_ERROR, at_least=False))
    cells = [milliseconds(times[c]) if c else ABSENT for c in chosen.values()]
    line = [str(layer), *cells, best or ABSENT, number(ratio),
            number(own and layer.flops / times[own].median / 1e9), number(error, 2)]  # fmt: skip
    return line, ratio


def main() -> None:
    given = arguments().parse_args()
    report = Report("Convolution layers", settings_of(given))
    missing: dict[str, str] = {}
    for threads in given.threads:
        entries = {
            key_of(runtime, last): (runtime, threads)
            for variants in VARIANTS.values()
            for runtime, last in variants
        }
        with Field(entries) as field, tempfile.TemporaryDirectory() as folder:
            bench = Bench(field, Path(folder), given)
            for group in given.group:
                measure_group(report, bench, group, threads, given.only)
            missing |= field.missing
    report.notes += [f"{name}: {why}" for name, why in missing.items()]
    report.finish(given.json)


def measure_group(
    report: Report, bench: Bench, group: str, threads: int, only: list[str] | None
) -> None:
    lines, ratios = [], []
    for layer in GROUPS[group]():
        if only and str(layer) not in only:
            continue
        say(f"{group} {layer}, {count(threads)}")
        line, ratio = judge(report, group, layer, threads, *bench.measure(layer))
        lines.append(line)
        ratios += [ratio] if ratio else []
    header = ("layer", *VARIANTS, "best peer", "ratio", "GFLOP/s", "error / direct")
    mean = geometric_mean(ratios)
    if ratios:
        lines.append(["geometric mean", *[""] * (len(VARIANTS) + 1), number(mean), "", ""])
    report.add_table(f"{group}, {count(threads)}, milliseconds per layer", header, lines)
    if group == "resnet50" and not only:
        complete = mean if len(ratios) == len(GROUPS[group]()) else None
        what = f"{group}, {count(threads)}: geometric mean"
        report.goals.append(Goal(what, complete, 1.2))


if __name__ == "__main__":
    main()
