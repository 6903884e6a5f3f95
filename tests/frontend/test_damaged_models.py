"""Damaged model files: a whet error each time, never a traceback, a hang or 1 GiB of memory."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.frontend.damage import damaged, limit_memory, use_damaged
from tests.frontend.small_models import BOOL, I64, graph, model, node, tensor

FILES = 200
LONGEST_SECONDS = 60.0
"""A file that takes longer hangs, and not the machine."""


def seeds() -> list[Any]:
    """Small models that together use most of the front end."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    network = model(
        [
            node("Conv", "x w", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
            node("BatchNormalization", "a s b m v", "n"),
            node("Relu", "n", "r"),
            node("MaxPool", "r", "p", kernel_shape=[2, 2]),
            node("Resize", "p _ scales", "q", mode="linear"),
            node("Flatten", "q", "f"),
            node("Gemm", "f g", "h", transB=1),
            node("Softmax", "h", "y", axis=-1),
        ],
        [tensor("x", ["batch", 3, 8, 8])],
        [tensor("y", ["batch", 5])],
        {
            "w": weights(4, 3, 3, 3),
            **{name: np.abs(weights(4)) for name in "sbmv"},
            "scales": np.float32([1, 1, 2, 2]),
            "g": weights(5, 144),
        },
        values=[tensor("r", [1, 4, 4, 4])],
    )
    shapes = model(
        [
            node("Shape", "x", "shape"),
            node("Gather", "shape zero", "rows"),
            node("Unsqueeze", "rows axis", "one"),
            node("Concat", "one minus", "wanted", axis=0),
            node("Reshape", "x wanted", "flat"),
            node("Slice", "flat start stop axes", "part"),
            node("Split", "part sizes", "l r", axis=1),
            node("Pad", "l pads", "padded"),
            node("Transpose", "r", "turned", perm=[1, 0]),
            node("MatMul", "padded turned", "y"),
            node("ConstantOfShape", "wide", "filled"),
            node("Tile", "filled sizes", "tiled"),
        ],
        [tensor("x", ["n", 2, 4])],
        [tensor("y"), tensor("tiled")],
        {
            "zero": np.array(0),
            "axis": np.array([0]),
            "minus": np.array([-1]),
            "start": np.array([1]),
            "stop": np.array([9]),
            "axes": np.array([1]),
            "sizes": np.array([3, 4]),
            "pads": np.array([0, 1, 0, 0]),
            "wide": np.array([4, 4]),
        },
    )
    body = graph(
        [node("Mul", "v half", "next"), node("Identity", "c", "go"), node("Relu", "next", "item")],
        [tensor("n", [], I64), tensor("c", [], BOOL), tensor("v", [2])],
        [tensor("go", [], BOOL), tensor("next", [2]), tensor("item", [2])],
        {"half": np.float32([0.5])},
    )
    control = model(
        [
            node("Loop", "rounds _ x", "last all", body=body),
            node(
                "If",
                "flag",
                "chosen",
                then_branch=graph([node("Neg", "last", "t")], [], [tensor("t")]),
                else_branch=graph([node("Abs", "last", "e")], [], [tensor("e")]),
            ),
            node("SplitToSequence", "all", "items", axis=0),
            node("SequenceAt", "items where", "second"),
            node("NonZero", "second", "places"),
            node("GatherND", "second places", "y"),
            node("Reshape", "all shape3", "all3"),
            node("LSTM", "all3 lw lr", "_ hidden", hidden_size=2),
        ],
        [tensor("x", [2]), tensor("flag", [], BOOL)],
        [tensor("chosen", [2]), tensor("hidden")],
        {
            "rounds": np.array(3),
            "where": np.array(1),
            "shape3": np.array([3, 1, 2]),
            "lw": weights(1, 8, 2),
            "lr": weights(1, 8, 2),
        },
    )
    return [network, shapes, control]


def damaged_files(folder: Path) -> list[Path]:
    rng = np.random.default_rng(7)
    models = seeds()
    paths = []
    for n in range(FILES):
        path = folder / f"{n}.onnx"
        path.write_bytes(damaged(models[n % len(models)], rng))
        paths.append(path)
    return paths


def test_the_seeds_are_sound():
    for made in seeds():
        assert use_damaged(made.SerializeToString()) == "accepted"


def test_damaged_files_are_refused_or_harmless(tmp_path):
    """In a process of its own, with 1 GiB of memory."""
    answers: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(1, limit_memory) as pool:
        pool.apply(use_damaged, (b"",))  # starting the process takes a while
        for path in damaged_files(tmp_path):
            answer = pool.apply_async(use_damaged, (path,)).get(LONGEST_SECONDS)
            answers[answer] += 1
    assert answers.total() == FILES
    assert answers["accepted"] < FILES // 3
