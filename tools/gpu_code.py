"""The machine code of a network's kernels for NVIDIA GPUs, one warp replayed:

    python tools/gpu_code.py resnet50 --precision fp16 [--target cuda-sm_90a] [--only gpu_mma]

Prints every kind of kernel of the plan: how often it runs, its price, its registers, what one warp
runs of it, and in which cycle it stores its last result if each load from memory takes 500 (see
`tools.machine_code`).  Needs NVRTC (the extra `cuda`) and nvdisasm, and no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["WHET_CALIBRATE"] = "0"

from harness.gpu_networks import BUILDERS
from tools.machine_code.replay import Way, way
from tools.machine_code.sass import disassembled, nvdisasm, registers
from whet.api.compiler import Options
from whet.api.engines import default_engine
from whet.build.tasks import graph_steps
from whet.codegen.cuda.emit import emit_program
from whet.codegen.cuda.nvrtc import compile_cubin
from whet.core.gpu import PRESETS, GpuTarget
from whet.core.precision import PRECISIONS, find_precision
from whet.frontend.onnx import import_model
from whet.schedule.default import draft
from whet.schedule.families.gpu_contraction.match import GpuContraction
from whet.tasks.task import Task


def main() -> int:
    parser = argparse.ArgumentParser(description="Kernels of a network, one warp replayed")
    parser.add_argument("network", choices=BUILDERS)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--target", choices=PRESETS, default="cuda-sm_90a")
    parser.add_argument("--only", metavar="SKETCH", default="", help="kernels of this sketch")
    given = parser.parse_args()
    if nvdisasm() is None:
        print("this takes nvdisasm: pip install nvidia-cuda-nvdisasm", file=sys.stderr)
        return 1
    target, tasks = tasks_of(given.network, given.target, given.precision)
    total: Counter[str] = Counter()
    for task, count in tasks.items():
        drafted = draft(task, target, 1, "real")
        if given.only not in drafted.sketch.name:
            continue
        form = drafted.sketch.fits(task)
        text, _ = emit_program(drafted.sketch.lower(form, drafted.holes, "k").program, target)
        for code in disassembled(compile_cubin(text, target.architecture)).values():
            operation, times = products_of(form, drafted.holes)
            found = way(code, operation, times)
            total["cycles"] += count * found.last_store
            spilled = " SPILLED" if any(i.operation in ("LDL", "STL") for i in code) else ""
            print(f"{count:3d} x {drafted.sketch.name:22s} {drafted.nanoseconds / 1000:6.2f} us  "
                  f"{registers(code):3d} registers{spilled}  {described(found)}  "
                  f"{dict(drafted.holes)}", flush=True)  # fmt: skip
    print(f"all: {total['cycles']} cycles")
    return 0


def tasks_of(network: str, name: str, precision: str) -> tuple[GpuTarget, dict[Task, int]]:
    """The tasks of a network as it is compiled, and how often each occurs."""
    engine = default_engine(None, name, precision)
    options = Options(engine, 1, "real", find_precision(precision), lambda _: None, lambda _: None)
    graph = options.optimize(import_model(BUILDERS[network]()).graph)
    target: GpuTarget = engine.target  # type: ignore[attr-defined]
    found: dict[str, tuple[Task, int]] = {}
    for step, count in graph_steps(graph, target, 1, "real")[0]:
        task, before = found.get(step.task.key, (step.task, 0))
        found[step.task.key] = (task, before + count)
    return target, dict(found.values())


def products_of(form: object, holes: dict[str, int]) -> tuple[str, int]:
    """The instruction that multiplies in a contraction, and how many of it a warp runs."""
    if not isinstance(form, GpuContraction):
        return "", 0
    steps = -(-form.depth // (holes["bk"] * holes["splits"]))
    if not form.leaf.is_matrix:
        return "FFMA", steps * holes["bk"] * holes["tm"] * holes["tn"]
    matrices = holes["tm"] // 16 * (holes["tn"] // 8)
    depth = holes["bk"] // (form.leaf.depth(form.a.dtype))
    return "HMMA", steps * matrices * depth * form.leaf.products


def described(found: Way) -> str:
    counts = found.counts()
    kinds = ("LDG", "LDGSTS", "LDS", "LDSM", "HMMA", "FFMA", "SHFL", "BAR", "STG")
    shown = " ".join(f"{kind}:{counts[kind]}" for kind in kinds if counts[kind])
    return (
        f"{counts.total():5d} instructions ({shown}), inputs awaited in cycle "
        f"{found.inputs_awaited}, last store in {found.last_store}"
    )


if __name__ == "__main__":
    sys.exit(main())
