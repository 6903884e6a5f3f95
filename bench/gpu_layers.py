"""Convolutions and products of networks on an NVIDIA GPU, one by one, against cuDNN and cuBLAS.

    python bench/gpu_layers.py [--only resnet50 bert_base] [--precision fp32 tf32] [--others 20]
                               [--reference KERNELS.jsonl.xz] [--kernels OUT.jsonl]

Of every distinct layer the `--first` candidates that are ranked first are measured, and `--others`
by chance of each sketch: each replayed in a graph of calls behind itself, with weights that lie
elsewhere in every call.  whet's kernels compute what follows the layer, too (bias, residual,
activation), torch's the layer alone; torch's are graphs of calls in the better of both memory
formats.  fp32x3 is compared with torch's fp32.

`--reference` takes a file of measured kernels (`harness/gpu_kernels.py`), and shows the best of the
same leaf for the same product.  `--kernels` writes all kernels that were measured in that form, so
that `gpu_law.py` can be fitted to them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from harness.gpu_kernels import LEAVES as KINDS, Layer, own_rows, read_kernels
from harness.gpu_layers import (
    GpuLayer,
    any_ones,
    first_ones,
    layers_of,
    tables_of,
)
from harness.gpu_library import library_seconds
from harness.gpu_networks import BUILDERS
from harness.report import ABSENT, Goal, Report, number, parser, say, settings_of
from whet.build.backend import backend_of
from whet.core.gpu import GpuTarget
from whet.measure.results import Measured
from whet.measure.runner import Runner
from whet.schedule.families.gpu_contraction.match import find_gpu_contraction

LEAVES = {"fp32": "ffma", "fp32x3": "fp32x3", "tf32": "tf32", "fp16": "mma", "bf16": "mma"}
NEAR = 1.05
"""The wanted time by that of the reference."""
BEHIND = 3.0
"""Percent that the best of the first may be behind the best of all."""
Reference = dict[str, list[Layer]]


def main() -> None:
    given = arguments().parse_args()
    report = Report("Layers on a GPU, batch 1", settings_of(given))
    known: Reference = read_kernels(given.reference) if given.reference else {}
    rng, rows = np.random.default_rng(0), []
    for precision in given.precision:
        for network in given.only:
            target, layers = layers_of(network, "cuda", precision)
            report.notes.append(f"{network}: {target}")
            with closing(backend_of(target).runner()) as runner:
                for layer in layers:
                    found = measured(layer, target, precision, given, runner, rng)
                    found |= {
                        "network": network,
                        "precision": precision,
                        "layer": layer.name,
                        "count": layer.count,
                        "reference": nearest(layer, precision, known),
                    }
                    rows.append(found)
                    say("  ".join([network, precision, *row(found)]))
                    if given.kernels:
                        write(given.kernels, layer, network, found["trials"])
        mine = [r for r in rows if r["precision"] == precision]
        report.add_table(precision, ["layer", "times", "torch, us", "by", "whet, us", "ratio",
                                     "first of all, %", "reference, us", "by it", "refused"],
                         [row(r) for r in mine])  # fmt: skip
        report.goals += goals(mine, precision)
    report.rows = [{k: v for k, v in r.items() if k != "trials"} for r in rows]
    report.finish(given.json)


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(1,))
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS),
                      default=["resnet50", "bert_base"])  # fmt: skip
    made.add_argument("--precision", nargs="+", choices=list(LEAVES),
                      default=["fp32", "fp32x3", "tf32", "fp16"])  # fmt: skip
    made.add_argument("--first", type=int, default=8, help="candidates by their prices")
    made.add_argument("--others", type=int, default=0, help="candidates by chance")
    made.add_argument("--reference", type=Path, metavar="KERNELS", help="kernels to compare with")
    made.add_argument("--kernels", type=Path, metavar="OUT", help="write what was measured")
    return made


def measured(
    layer: GpuLayer, target: GpuTarget, precision: str, given: argparse.Namespace,
    runner: Runner[Any], rng: np.random.Generator,
) -> dict[str, Any]:  # fmt: skip
    """A layer by torch and by whet, one after the other."""
    library, by = library_seconds(layer, precision)
    tables = tables_of(layer.task, target)
    first = first_ones(tables, given.first)
    others = list(any_ones(tables, given.others, target, rng))
    start = time.perf_counter()
    trials = list(runner.trials(layer.task, [*first, *others], 1, target))
    best_of_first = min((t.seconds for t in trials[: len(first)]), default=math.inf)
    best = min(trials, key=lambda t: t.seconds)
    return {
        "torch": library, "by": by, "first": best_of_first, "best": best.seconds,
        "candidate": str(best.candidate), "trials": trials, "seconds": time.perf_counter() - start,
        "refused": [f"{t.candidate}: {t.message}" for t in trials if not t.ok],
    }  # fmt: skip


def nearest(layer: GpuLayer, precision: str, known: Reference) -> float | None:
    """Seconds of the best kernel of the reference for that product; its depth may be filled up."""
    s = layer.shape
    same = [
        r for r in known.get(LEAVES[precision], ())
        if (r.shape.rows, r.shape.columns) == (s.rows, s.columns)
        and s.depth * 0.7 <= r.shape.depth <= s.depth * 1.8
    ]  # fmt: skip
    return min((float(t.min()) * 1e-9 for r in same for t in r.times.values()), default=None)


def row(found: dict[str, Any]) -> list[str]:
    best, reference = found["best"], found["reference"]
    by_it = ABSENT if reference is None else number(best / reference)
    return [
        found["layer"], str(found["count"]), number(found["torch"] * 1e6), found["by"],
        number(best * 1e6), number(found["torch"] / best),
        number(100 * (found["first"] / best - 1)),
        ABSENT if reference is None else number(reference * 1e6), by_it,
        str(len(found["refused"]) or ABSENT),
    ]  # fmt: skip


def goals(rows: Sequence[dict[str, Any]], precision: str) -> list[Goal]:
    """The reference, the ranking, and how many layers are lost to torch."""
    known = [r for r in rows if r["reference"] is not None]
    by_it = [r["best"] / r["reference"] for r in known]
    behind = [100 * (r["first"] / r["best"] - 1) for r in rows]
    losers = [r["layer"] for r in rows if r["best"] > r["torch"]]
    return [
        Goal(f"{precision}: largest time by the reference", max(by_it, default=None), NEAR, False),
        Goal(f"{precision}: mean percent that the first are behind", statistics.fmean(behind),
             BEHIND, at_least=False),
        Goal(f"{precision}: layers that torch computes faster", len(losers), 0, at_least=False),
    ]  # fmt: skip


def write(path: Path, layer: GpuLayer, network: str, trials: Sequence[Measured]) -> None:
    """Adds the kernels that gave right results to the file."""
    with path.open("a") as file:
        for leaf in KINDS.values():
            mine = [t for t in trials if t.candidate.sketch == f"gpu_{leaf.name}"]
            form = find_gpu_contraction(layer.task, leaf) if mine else None
            for line in own_rows(layer.name, network, form, mine) if form else ():
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
