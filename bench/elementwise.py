"""Operators that move memory against memcpy, and functions of numbers and rows against torch.

    python bench/elementwise.py [--threads 1 2] [--only add exp]

Results go into arrays that exist already, on both sides, so that fresh pages are not timed; what
is bound by memory uses the same memory on all sides, memcpy included (see `harness.shared`).
Bandwidth counts every array that is read or written once.
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
    Goal,
    Report,
    any_disturbed,
    count,
    milliseconds,
    number,
    parser,
    rate,
    say,
    settings_of,
)
from harness.shared import folder_in_memory, write_shared
from harness.turns import Measurement, settings_from, take_turns
from whet.core.types import Array
from zoo.layers import elementwise_model, row_model

MOVED = {"add": 3, "relu": 2, "copy": 2}
"""Arrays read and written by the operators that are bound by memory."""
ROWS = ("softmax", "layer_norm")
AGAINST_TORCH = {"exp": 2.0, "tanh": 2.0, "softmax": 1.2, "layer_norm": 1.2}
"""How many times as fast as torch each function should be."""
AGAINST_MEMCPY = 0.9
SHAPES: Mapping[str, tuple[int, ...]] = {
    "exp": (1024, 1024),
    "tanh": (1024, 1024),
    "softmax": (1536, 128),
    "layer_norm": (128, 768),
}
"""A megabyte of numbers; attention scores of 12 heads; the activations of BERT-base."""
NAMES = (*MOVED, *AGAINST_TORCH)
CONTESTANTS: Mapping[bool, Mapping[str, str]] = {
    True: {"whet": "whet_shared", "torch": "torch_shared", "memcpy": "memcpy_shared"},
    False: {"whet": "whet_into", "torch": "torch_function"},
}
"""Their runtimes, where memory is what counts and elsewhere."""


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__)
    made.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    made.add_argument("--megabytes", type=int, default=64, help="arrays of add, relu and copy")
    return made


def shape_of(name: str, megabytes: int) -> tuple[int, ...]:
    return SHAPES.get(name, (megabytes << 18,))


def inputs_of(name: str, shape: tuple[int, ...]) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(shape, np.float32)]
    if name == "add":
        arrays.append(rng.standard_normal(shape, np.float32))
    if name == "layer_norm":
        arrays += [rng.standard_normal(shape[-1:], np.float32) for _ in range(2)]
    return {f"x{n}": a for n, a in enumerate(arrays)}


def meaning(name: str, *arrays: Array) -> Array:
    """The operator in float64."""
    x, *rest = (a.astype(np.float64) for a in arrays)
    if name == "add":
        return x + rest[0]
    if name == "softmax":
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    if name == "layer_norm":
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * rest[0] + rest[1]
    functions: dict[str, Any] = {
        "relu": lambda v: np.maximum(v, 0),
        "copy": lambda v: v,
        "exp": np.exp,
        "tanh": np.tanh,
    }
    return functions[name](x)


def main() -> None:
    given = arguments().parse_args()
    report = Report("Elementwise operators and rows", settings_of(given))
    missing: dict[str, str] = {}
    for threads in given.threads:
        names = {name for contestants in CONTESTANTS.values() for name in contestants.values()}
        moving, computing = [], []
        with (
            Field({n: (n, threads) for n in names}) as field,
            tempfile.TemporaryDirectory(dir=folder_in_memory()) as folder,
        ):
            for name in given.only:
                say(f"{name}, {count(threads)}")
                times, work, errors = measure(field, Path(folder), name, given)
                judged = judge(report, name, threads, given.megabytes, times, work, errors)
                (moving if name in MOVED else computing).append(judged)
            missing |= field.missing
        report.add_table(
            f"Bound by memory, arrays of {given.megabytes} MB, {count(threads)}",
            ("operator", "whet ms", "torch ms", "whet GB/s", "memcpy GB/s", "ratio", "error"),
            moving,
        )
        report.add_table(
            f"Functions and rows, {count(threads)}",
            ("operator", "whet ms", "torch ms", "torch / whet", "error", "torch error"),
            computing,
        )
    report.notes += [f"{name}: {why}" for name, why in missing.items()]
    report.finish(given.json)


def measure(
    field: Field, folder: Path, name: str, given: argparse.Namespace
) -> tuple[dict[str, Measurement], float | None, dict[str, float]]:
    """Times by contestant, the bytes of a memcpy, errors by contestant."""
    shape = shape_of(name, given.megabytes)
    model = (row_model if name in ROWS else elementwise_model)(name, shape)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    values = inputs_of(name, shape)
    if name in MOVED:
        write_shared(folder, values)
    peers: dict[str, Peer] = {}
    for who, runtime in CONTESTANTS[name in MOVED].items():
        loaded = field.load(runtime, name if runtime == "torch_function" else str(path), values)
        if loaded is not None:
            peers[who] = loaded
    work = peers["memcpy"].work() if "memcpy" in peers else None
    expected = meaning(name, *values.values())
    errors = {key: error_of_range(p.run()[0], expected) for key, p in peers.items()
              if key != "memcpy"}  # fmt: skip
    return take_turns(peers, settings_from(given), failed=field.note), work, errors


def judge(
    report: Report,
    name: str,
    threads: int,
    megabytes: int,
    times: dict[str, Measurement],
    work: float | None,
    errors: dict[str, float],
) -> list[str]:
    """Adds to the report; the line of the table."""
    own, torch, copy = (times.get(n) for n in ("whet", "torch", "memcpy"))
    over_torch = torch.median / own.median if own and torch else None
    what = f"{name}, {count(threads)}"
    row = {"operator": name, "shape": shape_of(name, megabytes), "threads": threads,
           "times": times, "errors": errors, "torch_over_whet": over_torch}  # fmt: skip
    report.rows.append(row)
    if name not in MOVED:
        unsure = any_disturbed(own, torch)
        goal = Goal(f"{what}: over torch", over_torch, AGAINST_TORCH[name], disturbed=unsure)
        report.goals.append(goal)
        return [f"{name} {list(SHAPES[name])}", milliseconds(own), milliseconds(torch),
                number(over_torch), number(errors.get("whet"), 2),
                number(errors.get("torch"), 2)]  # fmt: skip
    nbytes = float(MOVED[name] * (megabytes << 20))
    reached = (nbytes / own.median) / (work / copy.median) if own and copy and work else None
    row["over_memcpy"] = reached
    unsure = any_disturbed(own, copy)
    goal = Goal(f"{what}: over memcpy's bandwidth", reached, AGAINST_MEMCPY, disturbed=unsure)
    report.goals.append(goal)
    return [name, milliseconds(own), milliseconds(torch),
            rate(own, lambda seconds: nbytes / seconds / 1e9),
            rate(copy, lambda seconds: (work or 0.0) / seconds / 1e9),
            number(reached), number(errors.get("whet"), 2)]  # fmt: skip


if __name__ == "__main__":
    main()
