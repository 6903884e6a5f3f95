"""Numbers of prices, larger and smaller: how far prices of measured kernels are off then.

    python -m bench.price_numbers [--candidates 24] [--only APART HALF] [--out bench/results]

Candidates of all sketches for a few tasks of every kind are run on one thread, their data in the
caches.  Those that take at most three times as long as the fastest of their task are priced again,
with one number after the other at a quarter, half, twice and four times what it is.  The error is
how far prices are from measured times, as a factor: the root mean square of the logarithms over the
tasks that the number has a say in, apart from what a task as a whole is off by.  Where a column is
the lowest, the prices of these kernels would be better with that number.  Numbers that change no
price here are about threads, memory, other processors or what is offered at all.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import math
import pkgutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from tests.schedule.small_tasks import argument, arrays_for, make_task, softmax
from tests.schedule.windows import Windows, native
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.cpu import CpuTarget, named_target, with_measured
from whet.core.dtypes import f32
from whet.core.types import Array
from whet.ir.tensor import compute, guarded_read, placeholder, reduce_axis, sum_
from whet.schedule.cost import numbers
from whet.schedule.cost.rates import rates_of
from whet.schedule.space.registry import SKETCHES
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task

FACTORS = (0.25, 0.5, 2.0, 4.0)
SECONDS = 0.02
"""How long a candidate is run; the least time counts."""
MOST = 400
"""Candidates are taken from so many of the cheapest."""
COMPARABLE = 3.0
"""How many times as long as the fastest a kernel may take to be counted."""


def product(m: int, n: int, k: int, *, constant: bool, turned: bool = False) -> Task:
    a, r = placeholder((m, k), f32, "a"), reduce_axis(k, "k")
    b = placeholder((n, k) if turned else (k, n), f32, "b")
    y = compute((m, n), lambda i, j: sum_(a[i, r] * (b[j, r] if turned else b[r, j]), r), "y")
    return make_task(y, constants=[b] if constant else [])


def depthwise(size: int, channels: int, *, last: bool) -> Task:
    shape = (size, size, channels) if last else (channels, size, size)
    x, w = placeholder(shape, f32, "x"), placeholder((channels, 3, 3), f32, "w")
    p, q = reduce_axis(3, "p"), reduce_axis(3, "q")
    if last:
        y = compute(shape, lambda h, v, c: sum_(
            guarded_read(x, (h + p - 1, v + q - 1, c), 0) * w[c, p, q], p, q), "y")  # fmt: skip
    else:
        y = compute(shape, lambda c, h, v: sum_(
            guarded_read(x, (c, h + p - 1, v + q - 1), 0) * w[c, p, q], p, q), "y")  # fmt: skip
    return make_task(y, constants=[w])


def transposed(size: int) -> Task:
    x = placeholder((size, size), f32, "x")
    return make_task(compute((size, size), lambda i, j: x[j, i], "y"))


def column_sums(rows: int, columns: int) -> Task:
    x, k = placeholder((rows, columns), f32, "x"), reduce_axis(rows, "k")
    return make_task(compute((columns,), lambda j: sum_(x[k, j], k), "y"))


def tasks() -> dict[str, Task]:
    return {
        "product with weights": product(128, 256, 256, constant=True),
        "product of inputs": product(96, 192, 512, constant=False),
        "inner products": product(64, 6, 1024, constant=True, turned=True),
        "window": Windows((28, 28), 64, 64, pad=1).task,
        "window, few channels": Windows((56, 56), 16, 24, pad=1).task,
        "depthwise, rows": depthwise(28, 32, last=False),
        "depthwise, vectors": depthwise(28, 64, last=True),
        "softmax": softmax(128, 200),
        "softmax, short rows": softmax(512, 40),
        "transpose": transposed(256),
        "column sums": column_sums(2048, 256),
    }


@dataclass(frozen=True, eq=False)
class Measured:
    """Candidates of a sketch for a task, and the nanoseconds that they took."""

    task: str
    sketch: Sketch[Any, CpuTarget]
    form: Any
    rows: Population
    nanoseconds: Array

    def prices(self, target: CpuTarget) -> Array:
        return self.sketch.costs(self.form, target, 1, self.rows)


def least_nanoseconds(task: Task, kernel: Any, target: CpuTarget) -> float:
    arrays = arrays_for(task)
    table = [np.ascontiguousarray(argument(a, task, arrays)) for a in kernel.arguments]
    made = (*kernel.program.outputs, *kernel.program.workspace)
    table += [np.zeros(math.prod(b.shape), b.dtype.numpy) for b in made]
    addresses = np.array([a.ctypes.data for a in table], np.uint64)
    library = native(kernel, target)
    function = library.function(kernel.program.name, ctypes.c_void_p)
    best, until = float("inf"), time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < until:
        function(addresses.ctypes.data)
        best = min(best, time.perf_counter() - start)
    return best * 1e9


def measured(target: CpuTarget, count: int) -> Iterator[Measured]:
    random = np.random.default_rng(0)
    for name, task in tasks().items():
        for sketch in (s for s in SKETCHES.values() if s.machine == "cpu" and s.drafts_default):
            form = sketch.fits(task)
            space = {} if form is None else sketch.space(form, target, 1)
            if not space or not len(next(iter(space.values()))):
                continue
            cheapest = np.argsort(sketch.costs(form, target, 1, space), kind="stable")[:MOST]
            chosen = random.permutation(cheapest)[:count]
            rows = {hole: column[chosen] for hole, column in space.items()}
            each = [dict(zip(rows, map(int, row))) for row in zip(*rows.values())]
            kernels = [sketch.lower(form, holes, "k") for holes in each]
            ns = np.array([least_nanoseconds(task, k, target) for k in kernels])
            print(f"{name:24}{sketch.name:24}{len(ns):4} kernels", file=sys.stderr, flush=True)
            yield Measured(name, sketch, form, rows, ns)


def error(prices: list[Array], found: list[Measured], asked: set[str]) -> float:
    """How far prices of these tasks are off, as a factor."""
    squares: list[Array] = []
    for task in asked:
        pairs = [(m.nanoseconds, p) for m, p in zip(found, prices) if m.task == task]
        least = min(ns.min() for ns, _ in pairs)
        logs = np.concatenate([np.log(ns / p)[ns <= COMPARABLE * least] for ns, p in pairs])
        squares.append((logs - np.median(logs)) ** 2)
    return float(np.exp(np.sqrt(np.mean(np.concatenate(squares)))))


@contextmanager
def changed(name: str, value: float, now: float) -> Iterator[None]:
    """A number with another value, wherever it was imported."""
    modules = [m for n, m in sys.modules.items() if n.startswith("whet.schedule")]
    holders = [m for m in modules if vars(m).get(name) is value]
    defaults = [f for m in modules for f in vars(m).values()
                if isinstance(value, float)
                and any(d is value for d in getattr(f, "__defaults__", None) or ())]  # fmt: skip

    def put(old: float, new: float) -> None:
        for m in holders:
            setattr(m, name, new)
        for f in defaults:
            f.__defaults__ = tuple(new if d is old else d for d in f.__defaults__)
        rates_of.cache_clear()

    put(value, now)
    try:
        yield
    finally:
        put(now, value)


def known_numbers() -> Mapping[str, float]:
    found: dict[str, float] = {}
    for info in pkgutil.iter_modules(numbers.__path__):
        module = importlib.import_module(f"{numbers.__name__}.{info.name}")
        if info.name != "origin":
            hints = get_type_hints(module, include_extras=True)
            chosen = [n for n, hint in hints.items() if hint.__metadata__[1].kind != "given"]
            found |= {n: getattr(module, n) for n in chosen}
    return found


def report(found: list[Measured], names: list[str], target: CpuTarget) -> str:
    plain = [m.prices(target) for m in found]
    rows: list[str] = []
    silent: list[str] = []
    for name in names:
        value, prices = known_numbers()[name], {}
        for factor in FACTORS:
            with changed(name, value, type(value)(value * factor)):
                prices[factor] = [m.prices(target) for m in found]
        asked = {m.task for n, m in enumerate(found)
                 if any((prices[f][n] != plain[n]).any() for f in FACTORS)}  # fmt: skip
        if asked:
            errors = [error(p, found, asked) for p in (plain, *prices.values())]
            shown = "".join(f" {e:.3f} |" for e in errors)
            rows.append(f"| `{name}` | {value:g} | {len(asked)} |{shown}")
        else:
            silent.append(f"`{name}`")
    everything = {m.task for m in found}
    count, off = sum(len(m.nanoseconds) for m in found), error(plain, found, everything)
    return "\n".join([
        "# Prices with other numbers\n",
        f"{count} kernels of {len(everything)} tasks on {target.cpu}; prices of those that come",
        f"near the fastest are off by a factor of {off:.2f}.\n",
        "| number | value | tasks | as it is |" + "".join(f" times {f:g} |" for f in FACTORS),
        "|---|---:|---:|---:|" + "---:|" * len(FACTORS),
        *rows,
        "\nNo price here depends on", ",\n".join(silent) + ".\n",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", type=int, default=24)
    parser.add_argument("--only", nargs="*", choices=sorted(known_numbers()))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    target = with_measured(named_target("cpu"), FileCache(process_config().cache))
    found = list(measured(target, given.candidates))
    text = report(found, list(given.only or known_numbers()), target)
    print(text)
    if given.out is not None:
        (given.out / "price_numbers.md").write_text(text)


if __name__ == "__main__":
    main()
