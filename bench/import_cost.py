"""What it costs to read models: time and memory of the import and of all graph passes.

    python bench/import_cost.py resnet50.onnx bert.onnx [--runs 3]

Every run is a process of its own.  The time on the processor is given too, because on a busy
machine the time on the wall says little.  Memory is the peak of the whole process, Python and the
onnx package included, next to the size of the weights.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from whet.frontend.onnx import import_model
from whet.graph.passes import optimize

LONGEST_SECONDS, MOST_MEMORY = 3.0, 3.0
"""What a model may cost: seconds, and multiples of its weights."""


def peak_bytes() -> int:
    """The most memory that this process has had."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


def measure(path: Path) -> dict[str, float]:
    """Seconds, weights and peak memory in bytes, of one import in this process."""
    start, used = time.perf_counter(), time.process_time()
    imported = import_model(path, note=lambda message: None)
    read = time.perf_counter()
    graph = optimize(imported.graph, numerics="real")
    end = time.perf_counter()
    return {
        "import": read - start,
        "passes": end - read,
        "processor": time.process_time() - used,
        "peak": peak_bytes(),
        "weights": path.stat().st_size,
        "nodes": len(graph.nodes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="time and memory of reading models")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=3, help="processes per model; the best counts")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.models[0])))
        return
    within = True
    for path in arguments.models:
        command = [sys.executable, __file__, "--child", str(path)]
        runs = [json.loads(subprocess.check_output(command)) for _ in range(arguments.runs)]
        best = min(runs, key=lambda r: r["import"] + r["passes"])
        seconds, memory = best["import"] + best["passes"], best["peak"] / best["weights"]
        within &= seconds <= LONGEST_SECONDS and memory <= MOST_MEMORY
        print(
            f"{path.name}: {best['nodes']} nodes, import {best['import']:.2f} s, "
            f"passes {best['passes']:.2f} s (processor {best['processor']:.2f} s), "
            f"peak {best['peak'] / 2**20:.0f} MiB "
            f"= {memory:.2f} x {best['weights'] / 2**20:.0f} MiB"
        )
    raise SystemExit(not within)


if __name__ == "__main__":
    main()
