"""Prices of whole networks: how long they take to find out, and how right they are.

    python bench/pricing.py [--threads 1] [--only resnet50] [--part speed error] [--json OUT]

`scratch` is the time to plan a network and to price all its kernels in a process that has priced
something else before; nothing is compiled.  `difference` is the time to price a rewrite of the
planned network, the median over rewrites at random places: a node's result goes through a function
of its own, so that a kernel appears that was never priced.  `error` compares what a network is
predicted to take with what it takes, by the least of its times.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import whet
from harness.report import Goal, Report, number, parser, say, settings_of
from harness.tuning import graph_of, native_engine
from whet.build.backend import backend_of
from whet.core.cpu import CpuTarget
from whet.graph.graph import Graph, Node, Value, apply
from whet.graph.passes import expand_composites
from whet.ops.activation import Relu
from whet.ops.arithmetic import Tanh
from whet.tasks.dag import Region
from whet.tasks.plan import GraphPlan, plan_graph
from whet.tasks.price import Price, no_evidence
from whet.tasks.region import cut_around, difference, steps_seconds
from whet.tasks.segment_plan import plan_segment
from zoo.networks import BUILDERS, Network, build_networks

LIMITS = {"resnet50": 0.1, "bert_base": 0.5, "nasnet_a": 1.0}
"""Seconds from scratch."""
REWRITES = 60
SECONDS = 1.5
"""How long a network is called."""


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(1,))
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--part", nargs="+", choices=("speed", "error"), default=["speed", "error"])
    made.add_argument("--scratch", type=Path, metavar="ONNX", help=argparse.SUPPRESS)
    return made


def main() -> None:
    given = arguments().parse_args()
    if given.scratch is not None:
        print(priced_from_scratch(given.scratch, given.threads[0]))
        return
    report = Report("Prices", settings_of(given))
    with tempfile.TemporaryDirectory() as folder:
        networks = build_networks(Path(folder), given.only or list(BUILDERS))
        for threads in given.threads:
            if "speed" in given.part:
                speed(report, networks, threads)
            if "error" in given.part:
                errors(report, networks, threads)
    report.finish(given.json)


# ------------------------------------------------------------------------------------- speed
def speed(report: Report, networks: list[Network], threads: int) -> None:
    rows = []
    for network in networks:
        say(f"pricing {network.name}")
        command = [sys.executable, __file__, "--scratch", str(network.path), "--threads"]
        runs = [
            float(subprocess.run([*command, str(threads)], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout)
            for _ in range(3)
        ]  # fmt: skip
        scratch, changes = statistics.median(runs), differences(network, threads)
        median = statistics.median(changes)
        rows.append([network.name, number(1e3 * scratch), number(1e3 * median),
                     number(1e3 * max(changes))])  # fmt: skip
        if network.name in LIMITS:
            limit = LIMITS[network.name]
            title = f"{network.name} priced from scratch, seconds"
            report.goals.append(Goal(title, scratch, limit, at_least=False))
        title = f"{network.name}, price of a rewrite, ms"
        report.goals.append(Goal(title, 1e3 * median, 5, at_least=False))
    header = ["network", "scratch ms", "difference ms", "at most"]
    report.add_table(f"Time to price, {threads} threads", header, rows)


def planned(graph: Graph, price: Price, target: CpuTarget) -> GraphPlan:
    return plan_graph(expand_composites(graph), price, backend_of(target).holds)


def priced_from_scratch(path: Path, threads: int) -> float:
    """Seconds to plan and price a network, after another graph was."""
    target = native_engine().target
    backend = backend_of(target)
    graph = graph_of(path)
    x = graph.inputs[0]
    planned(
        Graph((x,), apply(Relu(), x), ("y",)),
        backend.price(target, threads, "real", no_evidence, graph.constant_bytes),
        target,
    )
    start = time.perf_counter()
    planned(
        graph, backend.price(target, threads, "real", no_evidence, graph.constant_bytes), target
    )
    return time.perf_counter() - start


def differences(network: Network, threads: int) -> list[float]:
    """Seconds to price rewrites of a planned network."""
    target, graph = native_engine().target, graph_of(network.path)
    price = backend_of(target).price(target, threads, "real", no_evidence, graph.constant_bytes)
    plan = plan_segment(expand_composites(graph), price)
    rng = random.Random(0)
    candidates = [n for n in plan.graph.nodes if n.results[0].tensor_type.dtype.is_float]
    found = []
    for node in rng.sample(candidates, min(REWRITES, len(candidates))):
        start = time.perf_counter()
        cut = cut_around(plan, [node])
        outputs = through_function(cut.region, node)
        difference(cut, Region(cut.region.inputs, outputs, cut.region.names), price)
        found.append(time.perf_counter() - start)
    return found


def through_function(region: Region, changed: Node) -> tuple[Value, ...]:
    """The outputs of a region in which the node's result goes through a function."""
    now: dict[Value, Value] = {}
    for node in region.nodes:
        inputs = tuple(now.get(v, v) for v in node.inputs)
        results: tuple[Value, ...] = apply(node.op, *inputs)
        if node is changed:
            results = (*apply(Tanh(), results[0]), *results[1:])
        now.update((old, new) for old, new in zip(node.results, results) if old is not new)
    return tuple(now.get(v, v) for v in region.outputs)


# ------------------------------------------------------------------------------------- error
def errors(report: Report, networks: list[Network], threads: int) -> None:
    target = native_engine().target
    backend, rows, off = backend_of(target), [], []
    for network in networks:
        say(f"running {network.name}")
        graph = graph_of(network.path)
        price = backend.price(target, threads, "real", no_evidence, graph.constant_bytes)
        plan = planned(graph, price, target)
        predicted = sum(steps_seconds(p.steps, price) for p in plan.plans.values())
        measured = least_seconds(network, threads)
        off.append(abs(predicted / measured - 1))
        rows.append([network.name, number(1e3 * predicted), number(1e3 * measured),
                     number(predicted / measured)])  # fmt: skip
    report.add_table(f"Predicted and measured, {threads} threads",
                     ["network", "predicted ms", "measured ms", "ratio"], rows)  # fmt: skip
    report.goals += [
        Goal(f"median error, {threads} threads", statistics.median(off), 0.1, at_least=False),
        Goal(f"largest error, {threads} threads", max(off), 0.25, at_least=False),
    ]


def least_seconds(network: Network, threads: int) -> float:
    model = whet.compile(network.path, threads=threads)
    values = network.sample()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        model(**values)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
