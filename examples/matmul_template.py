"""A matrix product scheduled by hand, with knobs that the search turns (AutoTVM's way).

    python examples/matmul_template.py [--size 512] [--trials 64] [--threads 1]

The template says how the loops are arranged: B packed into panels as wide as a tile, a tile of C
in registers, panels or rows outermost.  How large everything is stays open.  It is tuned with
the same searchers and the same database as whet's own sketches, which are tuned beside it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from whet.api.engines import default_engine
from whet.api.native import Native
from whet.api.tuning import tune_tasks, weighted_tasks
from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.ir.expr import Reduce
from whet.ops.matmul import MatMul
from whet.schedule.space.sketch import Population
from whet.tasks.task import Task
from whet.tune.report import Report
from whet.tune.search import WeightedTask
from whet.tune.template import Schedule, template
from whet.tune.template_config import Config
from whet.tune.tuner import Budget

NAME = "example_matmul"
REGISTERS = 32


def is_product(task: Task) -> bool:
    """c[i, j] = sum over k of a[i, k] * b[k, j], where b is a constant."""
    (output, *others) = task.outputs
    plain = not others and len(output.axes) == 2 and len(task.inputs) == 2
    one_sum = isinstance(output.body, Reduce) and len(output.body.axes) == 1
    return plain and one_sum and len(task.constants) == 1


@template(NAME, fits=is_product)
def matmul(s: Schedule, cfg: Config) -> None:
    i, j, _ = s.loops
    lanes = s.lanes
    (b,) = (t.name for t in s.task.constants)

    cfg.define_knob("rows", [n for n in range(1, 15) if n <= s.extent(i)])
    cfg.define_knob("vectors", [n for n in (1, 2, 3, 4) if s.extent(j) % (n * lanes) == 0])
    cfg.define_knob("panels_outside", [0, 1])
    cfg.define_filter(fits_registers)
    # Rows that overlap with those of the last tile are written twice: not by two threads.
    rows = s.extent(i)
    cfg.define_filter(lambda c: (c["panels_outside"] == 1) | (rows % c["rows"] == 0))

    width = cfg["vectors"] * lanes
    s.rewrite_layout(b, order=(1, 0, 2), splits=(1, width))
    s.register_tile(i, j, cfg["rows"], cfg["vectors"], lanes, "overlap")
    outer = f"{i}o"
    if cfg["panels_outside"]:
        outer = f"{j}o"
        s.reorder(f"{j}o", f"{i}o")
    s.parallel(outer)


def fits_registers(columns: Population) -> Array:
    """Sums, a row of B and a broadcast number, all at once."""
    used = columns["rows"] * columns["vectors"] + columns["vectors"] + 1
    return (used <= REGISTERS) & (used >= 8)


def product_task(size: int, threads: int, engine: Native) -> WeightedTask:
    b = GraphBuilder()
    x = b.input("x", TensorType((size, size), f32))
    w = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    graph = Graph((x,), (b.one(MatMul(), x, b.constant(w)),), ("y",))
    (task,) = weighted_tasks([graph], engine.target, threads, "real")
    return task


def tune_both(size: int, trials: int, threads: int) -> tuple[Report, Report]:
    """The template alone, and whet's own sketches without it."""
    engine = default_engine()
    assert isinstance(engine, Native), "only native code can be tuned"
    task = product_task(size, threads, engine)
    found = []
    for is_template in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            (report,) = tune_tasks(
                [task], engine.target, threads, Budget(trials=trials),
                sketches=lambda name, wanted=is_template: (name == NAME) == wanted,
                database=Path(folder) / "records.db",
            )  # fmt: skip
        found.append(report)
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="A user's matmul template")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    own, automatic = tune_both(given.size, given.trials, given.threads)
    for name, r in (("template", own), ("automatic", automatic)):
        print(f"{name:10} {r.gflops:7.1f} GFLOP/s after {r.trials} trials: {r.schedule}")
    print(
        f"the template reaches {100 * own.gflops / automatic.gflops:.0f} % of the automatic speed"
    )


if __name__ == "__main__":
    main()
