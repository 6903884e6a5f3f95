"""Whole plans for GPUs mean their graphs, whatever lies where in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import TARGET, Run
from tests.schedule.gpu.lockstep_plans import run_plan
from tests.schedule.gpu.random_networks import Grower
from whet.core.gpu import PRESETS
from whet.core.precision import PRECISIONS
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.graph.passes.half_precision import half_precision
from whet.ir.lockstep import run_threads
from whet.schedule.gpu_prices import GpuPrice

ALLOWED = {"fp32": 1e-5, "fp32x3": 1e-5, "tf32": 2e-2, "fp16": 5e-2}
"""Errors relative to the largest result; layers behind each other make those of rounding grow."""


def check_network(
    graph: Graph, precision: str, seed: int, preset: str = TARGET.name, run: Run = run_threads
) -> None:
    storage = PRECISIONS[precision].storage
    planned = graph if storage is None else half_precision(graph, storage)
    shape = graph.inputs[0].tensor_type.shape
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    price = GpuPrice(replace(PRESETS[preset], precision=precision), "real")
    results = run_plan(planned, price, [x], seed, run)
    for got, want in zip(results, interpret(graph, (x,)), strict=True):
        wanted = np.asarray(want, np.float64)
        off = np.abs(got.astype(np.float64) - wanted).max()
        assert off <= ALLOWED[precision] * max(np.abs(wanted).max(), 1e-3), f"{off}\n{graph}"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int, precision: str) -> None:
    check_network(Grower(seed).network(5), precision, seed)
