"""Matrix products against the measured peak of multiply-adds.

    python bench/gemm.py [--threads 1 2] [--only 512x512x512]

Every shape is M x N x K, once with a constant second matrix, which whet stores in the order its
kernel reads, and once with both matrices given by the caller, where packing is part of the
call.  The peak is measured in the same turns, on the same number of threads.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx

from harness.peers import Field, error_of_range, number as size
from harness.report import (
    ABSENT,
    Goal,
    Report,
    any_disturbed,
    milliseconds,
    number,
    parser,
    say,
    settings_of,
)
from harness.turns import Measurement, settings_from, take_turns
from whet.core.types import Array
from zoo.layers import matmul_model

SHAPES = ((512, 512, 512), (1024, 1024, 1024), (128, 3072, 768), (3136, 64, 576))
PEAK_SHARE = {True: 0.90, False: 0.82}
"""The share of the peak that one thread should reach, by whether the matrix is constant."""
SPEEDUP = 1.85


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__)
    made.add_argument("--only", nargs="+", metavar="MxNxK", help="shapes to measure")
    return made


def shapes(only: list[str] | None) -> list[tuple[int, int, int]]:
    """The shapes to measure; any shape may be asked for."""
    if only is None:
        return list(SHAPES)
    return [_shape(text) for text in only]


def _shape(text: str) -> tuple[int, int, int]:
    m, n, k = map(int, text.split("x"))
    return m, n, k


def inputs_of(m: int, n: int, k: int, constant: bool) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    given: dict[str, Array] = {"a": rng.standard_normal((m, k), np.float32)}
    return given if constant else given | {"b": rng.standard_normal((k, n), np.float32)}


def product(model: onnx.ModelProto, given: dict[str, Array]) -> Array:
    """The result in float64."""
    constant = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer]
    a, b = [*given.values(), *constant]
    return a.astype(np.float64) @ b.astype(np.float64)


def main() -> None:
    given = arguments().parse_args()
    report = Report("Matrix products", settings_of(given))
    settings, threads = settings_from(given), given.threads
    entries = {f"{r} {t}t": (r, t) for t in threads for r in ("whet", "fma")}
    shown = []
    with Field(entries) as field, tempfile.TemporaryDirectory() as folder:
        for shape in shapes(given.only):
            for constant in (True, False):
                name = "x".join(map(str, shape)) + (", constant B" if constant else ", packed B")
                say(name)
                model, path = matmul_model(*shape, constant), Path(folder) / "model.onnx"
                onnx.save(model, path)
                values = inputs_of(*shape, constant)
                peers = field.load_all((f"whet {t}t" for t in threads), str(path), values)
                expected = product(model, values)
                errors = {key: error_of_range(p.run()[0], expected) for key, p in peers.items()}
                probes = field.load_all((f"fma {t}t" for t in threads), "", size(0))
                work = {key: p.work() for key, p in probes.items()}
                found = take_turns(peers | probes, settings, failed=field.note)
                shown += judge(report, name, shape, constant, threads, found, work, errors)
    report.add_table(
        "Products",
        ("M x N x K", "threads", "ms", "GFLOP/s", "peak", "% of peak", "speed-up", "error"),
        shown,
    )
    report.notes += [f"{name}: {why}" for name, why in field.missing.items()]
    report.finish(given.json)


def judge(
    report: Report,
    name: str,
    shape: tuple[int, int, int],
    constant: bool,
    threads: list[int],
    found: dict[str, Measurement],
    work: dict[str, float],
    errors: dict[str, float],
) -> list[list[str]]:
    """Adds rows and goals to the report; returns the lines of the table."""
    m, n, k = shape
    flops = 2.0 * m * n * k
    first = found.get("whet 1t")
    lines = []
    for t in threads:
        own, probe = found.get(f"whet {t}t"), found.get(f"fma {t}t")
        peak = work[f"fma {t}t"] / probe.median if probe else None
        share = flops / own.median / peak if own and peak else None
        speedup = first.median / own.median if own and first else None
        report.rows.append(
            {"shape": shape, "constant": constant, "threads": t, "flops": flops, "time": own,
             "peak_gflops": peak and peak / 1e9, "share_of_peak": share, "speedup": speedup,
             "error_of_range": errors.get(f"whet {t}t")}
        )  # fmt: skip
        if t == 1:
            what = f"{name}: share of peak, 1 thread"
            unsure = any_disturbed(own, probe)
            report.goals.append(Goal(what, share, PEAK_SHARE[constant], disturbed=unsure))
        elif t == 2 and 1 in threads:
            what, unsure = f"{name}: 2 threads over 1", any_disturbed(own, first)
            report.goals.append(Goal(what, speedup, SPEEDUP, disturbed=unsure))
        lines.append(
            [name, str(t), milliseconds(own), number(own and flops / own.median / 1e9),
             number(peak and peak / 1e9), number(share and 100 * share),
             number(speedup) if t > 1 else ABSENT, number(errors.get(f"whet {t}t"), 2)]
        )  # fmt: skip
    return lines


if __name__ == "__main__":
    main()
