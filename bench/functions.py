"""What elementary functions cost, in multiply-adds per vector, next to the table of the prices.

    python -m bench.functions [--only exp log] [--rounds 300]

A kernel of one function over numbers in the first cache, called with two lengths; the least times
count, and their difference is free of what a call costs.  `priced` is `whet.ir.functions.SLOTS`.
"""

from __future__ import annotations

import argparse
import ctypes
import time

import numpy as np

from tests.schedule.windows import native
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.cpu import CpuTarget, named_target, with_measured
from whet.core.dtypes import DType, f32, i32
from whet.ir.expr import Expr, binary, call
from whet.ir.functions import FUNCTIONS, INFIX, SLOTS
from whet.ir.program import Buffer
from whet.ir.tensor import compute, placeholder
from whet.schedule.cost.rates import rates_of
from whet.schedule.default import default_choice
from whet.tasks.task import Task

SHORT, LONG = 1024, 3072
CALLS = 20
WHOLE = ("floordiv", "mod", "truncdiv", "truncmod")
TWO = {"div", "pow", *WHOLE}
FUNCTIONS_OF_NUMBERS = (
    "sqrt", "exp", "log", "tanh", "sigmoid", "erf", "pow", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
)  # fmt: skip


def least_seconds(name: str, dtype: DType, length: int, target: CpuTarget, rounds: int) -> float:
    """The least time of a kernel of the function over so many numbers."""
    given = [placeholder((length,), dtype, n) for n in ("x", "z")[: 2 if name in TWO else 1]]

    def value(i: Expr) -> Expr:
        args = [t[i] for t in given]
        return binary(name, *args) if name in INFIX else call(name, *args)

    y = compute((length,), value, "y")
    buffers = {t: Buffer(t.name, t.shape, t.dtype) for t in (*given, y)}
    kernel = default_choice(Task((y,), buffers, frozenset(), {}), target, 1).kernel("k")
    library = native(kernel, target)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("k"))
    random = np.random.default_rng(0)
    numbers = random.uniform(0.1, 0.9, (2, length)) + (name == "acosh")
    if not dtype.is_float:
        numbers = random.integers(1, 100, (2, length))
    arrays = {"x": numbers[0].astype(dtype.numpy), "z": numbers[1].astype(dtype.numpy),
              "y": np.zeros(length, y.dtype.numpy)}  # fmt: skip
    passed = (*kernel.program.inputs, *kernel.program.outputs)
    addresses = np.array([arrays[b.name].ctypes.data for b in passed], np.int64)
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(CALLS):
            function(addresses.ctypes.data)
        best = min(best, (time.perf_counter() - start) / CALLS)
    return best


def slots(name: str, dtype: DType, target: CpuTarget, rounds: int) -> float:
    """Multiply-adds that take as long as the function of one vector."""
    rates, lanes = rates_of(target), target.lanes(dtype.bits)
    short, long = (least_seconds(name, dtype, n, target, rounds) for n in (SHORT, LONG))
    cycles = (long - short) * 1e9 * rates.clock / ((LONG - SHORT) / lanes)
    return cycles * rates.operations / float(rates.passes(np.asarray(lanes), dtype.bits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=sorted({*FUNCTIONS, *INFIX}))
    parser.add_argument("--rounds", type=int, default=300)
    given = parser.parse_args()
    target = with_measured(named_target("cpu"), FileCache(process_config().cache))
    print(f"{'':12}{'type':6}{'measured':>10}{'priced':>10}")
    for name in given.only or ("div", *WHOLE, *FUNCTIONS_OF_NUMBERS):
        dtype = i32 if name in WHOLE else f32
        found = slots(name, dtype, target, given.rounds)
        print(f"{name:12}{dtype.name:6}{found:10.1f}{SLOTS.get(name, 1):10}", flush=True)


if __name__ == "__main__":
    main()
