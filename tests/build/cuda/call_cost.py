"""Microseconds that the host spends on a call of one small kernel with torch's tensors.

python -m tests.build.cuda.call_cost
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

CALLS, TURNS = 200, 30


def host_microseconds(call: Callable[[], Any], settle: Callable[[], None]) -> float:
    """The median over turns of the time that a call takes to return."""
    found = []
    for _ in range(TURNS):
        settle()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - start) / CALLS * 1e6)
    settle()
    return median(found)


def main() -> None:
    import torch

    from tests.build.cuda.gpu_kernels import adding
    from tests.build.cuda.segments import sum_graph
    from tests.build.cuda.test_calls import model_of
    from whet.build.executable import NativeExecutable
    from whet.build.steps import NativeStep

    size = 1024
    segment, graph = adding(size), sum_graph(size)
    f = model_of(graph, NativeExecutable(graph, (NativeStep(segment, graph.inputs, graph.outputs),),
                                         {}))  # fmt: skip
    x, y, out = (torch.randn(size, device="cuda") for _ in range(3))
    a, b = f(x, y), f(x, y)
    host = np.ones(size, np.float32)
    held: list[Any] = [None]

    def kept() -> None:
        held[0] = f(x, y)

    for name, call in {
        "f(x, y)": lambda: f(x, y),
        "z = f(x, y), the last z held": kept,
        "f(x, y, out=z)": lambda: f(x, y, out=out),
        "f(a, b) of earlier results": lambda: f(a, b),
        "f(x, y) of NumPy": lambda: f(host, host),
        "torch.add(x, y)": lambda: torch.add(x, y),
    }.items():
        print(f"{host_microseconds(call, torch.cuda.synchronize):8.2f} us  {name}")


if __name__ == "__main__":
    main()
