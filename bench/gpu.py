"""Networks at batch 1 on an NVIDIA GPU, against torch in the same precision.

    python bench/gpu.py [--only resnet50] [--precision fp32 tf32] [--budget 60s] [--inductor]

torch runs the same ONNX graph, whose batch norms are folded: eager in a CUDA graph in both memory
formats with `cudnn.benchmark`, and with `--inductor` compiled (reduce-overhead, freezing).  Both
sides are replayed in turns; times are medians over rounds.  fp32x3 is compared with torch's fp32.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import whet
from harness.gpu_networks import BUILDERS, Replay, networks, replay_of
from harness.onnx_torch import Translated, channels_last, translated
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
ROUNDS, REPLAYS = 9, 20


def main() -> None:
    given = arguments().parse_args()
    report = Report("Networks on a GPU, batch 1", settings_of(given))
    report.notes.append(str(named_target("cuda")))
    with tempfile.TemporaryDirectory() as name:
        for precision in given.precision:
            rows, ratios = [], []
            for network in networks(Path(name), given.only or list(BUILDERS)):
                say(f"{network.name}, {precision}")
                found = compared(network, precision, given)
                report.rows.append({"network": network.name, "precision": precision, **found})
                rows.append(row(network.name, found))
                say("  ".join(rows[-1]))
                ratios.append(found["ratio"])
                wanted = MILLISECONDS.get((network.name, precision))
                if wanted is not None:
                    what = f"{network.name} {precision}, ms"
                    report.goals.append(Goal(what, found["whet_ms"], wanted, at_least=False))
            report.add_table(precision, ["network", "torch, ms", "by", "whet, ms", "ratio", "error",
                                         "compiled in, s"], rows)  # fmt: skip
            if precision in MEANS:
                mean = math.exp(statistics.fmean(map(math.log, ratios)))
                goal = Goal(f"geometric mean, {precision}", mean, MEANS[precision])
                report.goals += [goal, Goal(f"least ratio, {precision}", min(ratios), 1.0)]
    report.finish(given.json)


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(1,))
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--precision", nargs="+", default=list(MEANS), choices=[*MEANS, "bf16"])
    made.add_argument("--budget", default="0", metavar="TIME", help="search, per network")
    made.add_argument("--inductor", action="store_true", help="compile with torch, too")
    return made


def compared(network: Network, precision: str, given: argparse.Namespace) -> dict[str, Any]:
    """The best of torch and whet in turns, and whet's difference from ONNX Runtime."""
    sample = network.sample()
    start = time.perf_counter()
    model = whet.compile(
        str(network.path), target="cuda", precision=precision, budget=given.budget
    )  # fmt: skip
    seconds = time.perf_counter() - start
    error = error_of(model, network, sample)
    contenders = {"whet": replay_of(model._first.executable)}
    contenders |= torch_replays(network, sample, precision, inductor=given.inductor)
    times = in_turns(contenders)
    best = min((name for name in times if name != "whet"), key=lambda name: times[name])
    return {
        "whet_ms": times["whet"] * 1e3, "torch_ms": times[best] * 1e3, "by": best,
        "ratio": times[best] / times["whet"], "error": error, "compile_s": seconds,
        "all_ms": {name: t * 1e3 for name, t in times.items()}, "kernels": model.describe()[0],
    }  # fmt: skip


def error_of(model: Any, network: Network, sample: Mapping[str, Array]) -> float:
    """The largest difference of an output from ONNX Runtime's in f32, relative to its norm."""
    session = onnxruntime.InferenceSession(network.path, providers=["CPUExecutionProvider"])
    wanted = session.run(None, dict(sample))
    return max(
        float(np.linalg.norm(np.asarray(got, np.float64) - want) / np.linalg.norm(want))
        for got, want in zip(model.results(**sample).values(), wanted, strict=True)
    )


# ----------------------------------------------------------------------------------------- torch
def torch_replays(
    network: Network, sample: Mapping[str, Array], precision: str, *, inductor: bool
) -> dict[str, Replay]:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16}
    kind = kinds.get(precision, torch.float32)
    inputs = [torch.from_numpy(a).cuda() for a in sample.values()]
    inputs = [x.to(kind) if x.is_floating_point() else x for x in inputs]
    found: dict[str, Replay] = {}
    with torch.no_grad():
        for name, change in (("graph nchw", lambda m: m), ("graph nhwc", channels_last)):
            module = change(moved(translated(str(network.path)), kind))
            shaped = inputs
            if name == "graph nhwc":
                formats = {4: torch.channels_last, 5: torch.channels_last_3d}
                shaped = [x.contiguous(memory_format=formats[x.ndim]) if x.ndim in formats else x
                          for x in inputs]  # fmt: skip
            found[name] = recorded(module, shaped)
        if inductor:
            found["inductor"] = compiled(moved(translated(str(network.path)), kind), inputs)
    return found


def moved(module: Translated, kind: torch.dtype) -> Translated:
    made = module.eval().cuda()
    for name, buffer in list(made.named_buffers()):
        if buffer.is_floating_point():
            setattr(made, name, buffer.to(kind))
    return made


def recorded(module: Translated, inputs: list[Any]) -> Replay:
    """Eager calls as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*inputs)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = module(*inputs)
    held = (graph, kept, module, inputs)  # memory that the recorded kernels read and write
    return lambda: held[0].replay()


def compiled(module: Translated, inputs: list[Any]) -> Replay:
    import torch._inductor.config as settings

    settings.freezing = True
    made = torch.compile(module, mode="reduce-overhead")
    for _ in range(4):
        made(*inputs)

    def call() -> None:
        with torch.no_grad():
            made(*inputs)

    return call


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


def row(name: str, found: Mapping[str, Any]) -> list[str]:
    return [
        name, number(found["torch_ms"]), found["by"] or ABSENT, number(found["whet_ms"]),
        number(found["ratio"]), f"{found['error']:.1e}", f"{found['compile_s']:.0f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
