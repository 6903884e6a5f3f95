"""Networks at batch 1 on an NVIDIA GPU, against torch in the same precision.

    python bench/gpu.py [--only resnet50] [--precision fp32 tf32] [--budget 60s] [--inductor]
                        [--processes 16]

torch runs the same ONNX graph, whose batch norms are folded: eager in a CUDA graph in both memory
formats with `cudnn.benchmark`, and with `--inductor` compiled (reduce-overhead, freezing).  Both
sides are replayed in turns; times are medians over rounds.  fp32x3 is compared with torch's fp32.

Networks are compiled side by side, and timed one after the other when all are; what is searched
with a budget is searched then, too.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import whet
from harness.gpu_networks import (
    BUILDERS,
    REPLAYS,
    Replay,
    error_of,
    networks,
    reference,
    replay_of,
)
from harness.gpu_torch import TorchNetwork
from harness.gpu_workers import measured_alone
from harness.report import ABSENT, Goal, Report, number, parser, say, settings_of
from whet.build.backend import named_target
from whet.core.types import Array
from zoo.networks import Network

MEANS = {"fp32": 2.3, "fp32x3": 2.8, "tf32": 1.8, "fp16": 1.8}
"""The wanted geometric mean of ratios to torch, by precision."""
MILLISECONDS = {
    ("resnet50", "fp32"): 0.52, ("resnet50", "fp32x3"): 0.43, ("resnet50", "tf32"): 0.31,
    ("resnet50", "fp16"): 0.24, ("bert_base", "fp32"): 1.0, ("bert_base", "fp32x3"): 0.72,
    ("bert_base", "tf32"): 0.50, ("bert_base", "fp16"): 0.38, ("mobilenet_v2", "fp32"): 0.22,
}  # fmt: skip
"""Wanted times."""
ROUNDS = 9
NOTHING = "0"
"""No search."""
Compiled = tuple[Any, float]


@dataclass(frozen=True)
class Job:
    """A network in precisions that are compared with one of torch's."""

    network: Network
    precisions: tuple[str, ...]
    budget: str
    inductor: bool


def main() -> None:
    given = arguments().parse_args()
    report = Report("Networks on a GPU, batch 1", settings_of(given))
    report.notes.append(str(named_target("cuda")))
    with tempfile.TemporaryDirectory() as name:
        names = given.only or list(BUILDERS)
        with multiprocessing.get_context("spawn").Pool(min(given.processes, len(names))) as pool:
            pool.starmap(networks, [(Path(name), [n]) for n in names])
        jobs = [
            Job(network, precisions, given.budget, given.inductor)
            for precisions in beside_each_other(given.precision)
            for network in networks(Path(name), names)
        ]
        missing = len(jobs)
        try:
            for job, found in measured_alone(prepared, jobs, given.processes):
                missing -= found is not None
                for precision, figures in (found or {}).items():
                    where = {"network": job.network.name, "precision": precision}
                    report.rows.append({**where, **figures})
                    say("  ".join([precision, *row(job.network.name, figures)]))
        except KeyboardInterrupt:
            report.notes.append("interrupted: what had been measured until then")
    for precision in given.precision:
        rows = [r for r in report.rows if r["precision"] == precision]
        head = ["network", "torch, ms", "by", "whet, ms", "ratio", "error", "compiled in, s"]
        report.add_table(precision, head, [row(r["network"], r) for r in rows])
        report.goals += goals(precision, rows)
    report.finish(given.json)
    if missing:
        raise SystemExit(f"{missing} of {len(jobs)} were not measured")


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(1,))
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--precision", nargs="+", default=list(MEANS), choices=[*MEANS, "bf16"])
    made.add_argument("--budget", default=NOTHING, metavar="TIME", help="search, per network")
    made.add_argument("--inductor", action="store_true", help="compile with torch, too")
    made.add_argument("--processes", type=int, default=1, metavar="N",
                      help="networks that are compiled at the same time")  # fmt: skip
    return made


def beside_each_other(precisions: list[str]) -> list[tuple[str, ...]]:
    """Groups of precisions that are compared with the same of torch's."""
    strict = tuple(p for p in precisions if p in ("fp32", "fp32x3"))
    others = [(p,) for p in precisions if p not in strict]
    return [strict, *others] if strict else others


# ---------------------------------------------------------------------------- one network
def prepared(job: Job) -> Callable[[], dict[str, Any]]:
    """Compiles with both; what is given takes the times."""
    sample = job.network.sample()
    wanted = reference(job.network, sample)
    models = {p: compiled(job, p, NOTHING) for p in job.precisions}
    side = TorchNetwork(job.network, sample, job.precisions[-1], inductor=job.inductor)
    return lambda: compared(job, models, side, sample, wanted)


def compiled(job: Job, precision: str, budget: str) -> Compiled:
    """The model, and the seconds that it took."""
    start = time.perf_counter()
    model = whet.compile(
        str(job.network.path), target="cuda", precision=precision, budget=budget
    )  # fmt: skip
    return model, time.perf_counter() - start


def compared(
    job: Job, models: dict[str, Compiled], side: TorchNetwork, sample: Mapping[str, Array],
    wanted: list[Array],
) -> dict[str, Any]:  # fmt: skip
    """The best of torch and whet in turns, and whet's difference from ONNX Runtime."""
    if job.budget != NOTHING:
        models = {p: compiled(job, p, job.budget) for p in job.precisions}
    errors = {p: error_of(m, sample, wanted) for p, (m, _) in models.items()}
    contenders = {p: replay_of(m._first.executable) for p, (m, _) in models.items()}
    times = in_turns({**contenders, **dict(side.replays())})
    theirs = {name: t for name, t in times.items() if name not in models}
    best = min(theirs, key=lambda name: theirs[name])
    return {
        p: {
            "whet_ms": times[p] * 1e3, "torch_ms": times[best] * 1e3, "by": best,
            "ratio": times[best] / times[p], "error": errors[p], "compile_s": seconds,
            "kernels": model.describe()[0],
            "all_ms": {name: t * 1e3 for name, t in theirs.items()},
        }
        for p, (model, seconds) in models.items()
    }  # fmt: skip


def in_turns(contenders: Mapping[str, Replay]) -> dict[str, float]:
    """Seconds of a replay: medians over rounds in which all take their turn."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, replay in contenders.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(REPLAYS):
                replay()
            torch.cuda.synchronize()
            samples[name].append((time.perf_counter() - start) / REPLAYS)
    return {name: statistics.median(s) for name, s in samples.items()}


# ---------------------------------------------------------------------------------- the report
def row(name: str, found: Mapping[str, Any]) -> list[str]:
    return [
        name, number(found["torch_ms"]), found["by"] or ABSENT, number(found["whet_ms"]),
        number(found["ratio"]), f"{found['error']:.1e}", f"{found['compile_s']:.0f}",
    ]  # fmt: skip


def goals(precision: str, rows: list[dict[str, Any]]) -> list[Goal]:
    found: list[Goal] = []
    for r in rows:
        wanted = MILLISECONDS.get((r["network"], precision))
        if wanted is not None:
            what = f"{r['network']} {precision}, ms"
            found.append(Goal(what, r["whet_ms"], wanted, at_least=False))
    if precision in MEANS and rows:
        ratios = [r["ratio"] for r in rows]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        found.append(Goal(f"geometric mean, {precision}", mean, MEANS[precision]))
        found.append(Goal(f"least ratio, {precision}", min(ratios), 1.0))
    return found


if __name__ == "__main__":
    main()
