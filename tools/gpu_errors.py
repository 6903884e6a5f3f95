"""Errors of networks on NVIDIA GPUs, without one:  python tools/gpu_errors.py

    [--only resnet50 bert_base] [--precision fp32 tf32] [--target cuda-sm_90a] [--reduced]

Runs the CUDA text of whole networks on this CPU (`tools.cuda_on_cpu`) and prints how far results
are from ONNX Runtime's in f32, relative to their norm.  A network takes minutes: `--reduced` takes
the networks in small.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["WHET_CALIBRATE"] = "0"
os.environ["WHET_STRICT"] = "1"
os.environ["WHET_CACHE_ENABLED"] = "0"  # it would hold code of this CPU under a GPU's name

import numpy as np
import onnxruntime

import whet
from harness.gpu_networks import BUILDERS
from tools.cuda_on_cpu.backend import gpu_in_this_process
from tools.cuda_on_cpu.compiled import lacking
from whet.core.gpu import PRESETS
from whet.core.precision import PRECISIONS
from whet.core.types import Array
from zoo.reduced import REDUCED


def main() -> int:
    parser = argparse.ArgumentParser(description="Errors of networks on GPUs, without one")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(BUILDERS))
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS,
                        default=["fp32", "fp32x3", "tf32", "fp16"])  # fmt: skip
    parser.add_argument("--target", choices=PRESETS, default="cuda-sm_90a")
    parser.add_argument("--reduced", action="store_true", help="the networks in small")
    given = parser.parse_args()
    missing = lacking()
    if missing is not None:
        print(f"this takes a {missing}", file=sys.stderr)
        return 1
    builders = REDUCED if given.reduced else BUILDERS
    for name in given.only:
        model = builders[name]().SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        inputs = inputs_of(session)
        wanted = session.run(None, inputs)
        for precision in given.precision:
            start = time.perf_counter()
            error = error_of(model, inputs, wanted, given.target, precision)
            seconds = time.perf_counter() - start
            print(f"{name:14s} {precision:8s} {error:.1e}   {seconds:.0f} s", flush=True)
    return 0


def inputs_of(session: onnxruntime.InferenceSession) -> dict[str, Array]:
    """Random numbers, small ones where they are integers."""
    rng = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for given in session.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in given.shape]
        if "int64" in given.type:
            found[given.name] = rng.integers(0, 500, shape)
        else:
            found[given.name] = rng.standard_normal(shape).astype(np.float32)
    return found


def error_of(
    model: bytes, inputs: dict[str, Array], wanted: list[Array], target: str, precision: str
) -> float:
    """The largest error of an output."""
    with gpu_in_this_process(checked=False):
        compiled = whet.compile(model, target=target, precision=precision, note=lambda text: None)
        results = compiled.results(**inputs).values()
    return max(
        float(np.linalg.norm(np.asarray(got, np.float64) - want) / np.linalg.norm(want))
        for got, want in zip(results, wanted, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
