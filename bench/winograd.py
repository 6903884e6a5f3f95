"""Winograd against direct convolution, both as the analytic model schedules them.

    python -m bench.winograd [--target cpu] [--threads 1] [--rounds 40] [--cold] [--guard]

The layers are the 3x3 convolutions with stride 1 of ResNet-50, with bias, residual and relu, the
phases of DCGAN's transposed convolutions (windows of 2x2), dilated ones, and some others.  Both
kernels are called in turn in one process; the least time counts.  With --cold the weights come
from memory: more copies than the caches hold take turns.  Errors are against double precision: the
largest relative to the range, and how many times the largest one and the root mean square of direct
sums cut at 384 terms, as libraries cut them.  With --guard, a third kernel is the Winograd one that
watches what it reads for outliers (`numerics="guarded"`), and the last column is its least time
over that of the plain one.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import numpy as np

from tests.build.guard_pages import GuardedMemory
from tests.schedule.cheapest import best_tiling, best_winograd
from tests.schedule.windows import Bound, Windows, native
from whet.codegen.llvm.poolcode import process_pool
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.cpu import named_target, with_measured
from whet.core.types import Array
from whet.ir.tensor import Compute, Tensor
from whet.schedule.families.contraction.lower import lower_contraction
from whet.schedule.families.contraction.match import find_contraction
from whet.schedule.families.winograd.lower import lower_winograd
from whet.schedule.families.winograd.match import find_winograd
from whet.schedule.families.winograd.precision import DIRECT_SUM
from whet.schedule.program.kernel import Kernel

LAYERS = {
    "64@56": (Windows((56, 56), 64, 64, epilogue=True), 2.2),
    "128@28": (Windows((28, 28), 128, 128, epilogue=True), 2.2),
    "256@14": (Windows((14, 14), 256, 256, epilogue=True), 2.2),
    "512@7": (Windows((7, 7), 512, 512, epilogue=True), 1.3),
    "64@112": (Windows((112, 112), 64, 64, epilogue=True), None),
    "128@56": (Windows((56, 56), 128, 128, epilogue=True), None),
    "256@400 (1-D)": (Windows((400,), 256, 256, epilogue=True), None),
    "64@8x28x28 (3-D)": (Windows((8, 28, 28), 64, 64, epilogue=True), None),
    "512-256@4 2x2 b16": (Windows((5, 5), 512, 256, 16, 2, 0), None),
    "256-128@8 2x2": (Windows((9, 9), 256, 128, 1, 2, 0), None),
    "256-128@8 2x2 b16": (Windows((9, 9), 256, 128, 16, 2, 0), None),
    "128-64@16 2x2": (Windows((17, 17), 128, 64, 1, 2, 0), None),
    "48-64@35 5x5": (Windows((35, 35), 48, 64, 1, 5, 2, epilogue=True), None),
    "256@14 by 2": (Windows((14, 14), 256, 256, dilation=2), None),
    "512@7 by 2 b16": (Windows((7, 7), 512, 512, 16, dilation=2), None),
    "512-256@33 by 12": (Windows((33, 33), 512, 256, 1, 3, 12, dilation=12), None),
    "128@400 by 16 (1-D)": (Windows((400,), 128, 128, 1, 3, 16, dilation=16), None),
    "192@17x17 1x7": (Windows((17,), 192, 192, 17, 7, 3, epilogue=True), None),
}
"""Layers, and how many times faster than direct convolution they should be."""
COLD_BYTES = 128 << 20


class Contestant:
    """One kernel of a layer, with the least time of a call so far."""

    def __init__(self, case: Windows, kernel: Kernel, bound: Bound, cold: bool) -> None:
        self.bound, self.best, self.calls = bound, float("inf"), 0
        (self.slot,) = (n for n, a in enumerate(kernel.arguments) if isinstance(a, Compute))
        self.copies = weight_copies(case, kernel.arguments[self.slot]) if cold else []
        bound.call()
        self.errors = errors_of(bound.result, case)

    def turn(self) -> None:
        if self.copies:
            self.bound.addresses[self.slot] = self.copies[self.calls].ctypes.data
            self.calls = (self.calls + 1) % len(self.copies)
        start = time.perf_counter()
        self.bound.call()
        self.best = min(self.best, time.perf_counter() - start)


def errors_of(found: Array, case: Windows) -> tuple[float, float]:
    """The largest error and the root mean square, relative to the range."""
    error = np.abs(found.astype(np.float64) - case.expected) / np.abs(case.expected).max()
    return float(error.max()), float(np.sqrt(np.mean(error**2)))


def weight_copies(case: Windows, argument: Tensor) -> list[Array]:
    """Enough copies of the packed weights to find each cold again when its turn comes."""
    memory = GuardedMemory(at_end=False)
    first = case.argument(argument, memory)
    count = COLD_BYTES // argument.type.nbytes + 1
    return [first, *(memory.copy(first, argument.type) for _ in range(count))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cold", action="store_true", help="weights come from memory")
    parser.add_argument("--guard", action="store_true", help="also watch for outliers")
    arguments = parser.parse_args()
    cache = FileCache(process_config().cache)
    target, threads = with_measured(named_target(arguments.target), cache), arguments.threads
    pool = process_pool(cache)
    pool.set_threads(threads)
    print(f"{target.cpu}, {threads} threads, {'cold' if arguments.cold else 'hot'} weights, us")
    print(f"{'layer':20}{'direct':>9}{'model':>9}{'Winograd':>10}{'model':>9}{'ratio':>7}"
          f"{'wanted':>8}{'error':>10}{'of direct':>10}{'rms':>6}"
          f"{'guarded' if arguments.guard else '':>9}  schedule")  # fmt: skip
    for name, (case, wanted) in LAYERS.items():
        c, w = find_contraction(case.task), find_winograd(case.task)
        assert c is not None
        assert w is not None
        chosen = best_winograd(w, target, threads)
        assert chosen is not None
        direct_ns, tiling = best_tiling(c, target, threads)
        kernels = [lower_contraction(c, tiling, "k"), lower_winograd(w, chosen[1], "k")]
        if arguments.guard:
            watching = find_winograd(dataclasses.replace(case.task, guarded=True))
            assert watching is not None
            kernels.append(lower_winograd(watching, chosen[1], "k"))
        contestants = [
            Contestant(
                case, k,
                case.bind(k, native(k, target, pool.symbols), GuardedMemory(at_end=False)),
                arguments.cold,
            )
            for k in kernels
        ]  # fmt: skip
        direct, fast = contestants[:2]
        cut = lower_contraction(c, dataclasses.replace(tiling, terms=DIRECT_SUM), "k")
        usual = errors_of(case.run(cut, target), case)
        for _ in range(arguments.rounds):
            for contestant in contestants:
                contestant.turn()
        guarded = f"{contestants[-1].best / fast.best:9.3f}" if arguments.guard else f"{'':9}"
        print(f"{name:20}{direct.best * 1e6:9.0f}{direct_ns / 1e3:9.0f}{fast.best * 1e6:10.0f}"
              f"{chosen[0] / 1e3:9.0f}{direct.best / fast.best:7.2f}{wanted or '':>8}"
              f"{fast.errors[0]:10.1e}{fast.errors[0] / usual[0]:10.2f}"
              f"{fast.errors[1] / usual[1]:6.2f}{guarded}  {chosen[1]}")  # fmt: skip


if __name__ == "__main__":
    main()
