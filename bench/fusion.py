"""Groups of nodes computed together against one after the other, and what the default takes.

    python bench/fusion.py [--threads 2] [--only bert_base] [--json OUT]
    WHET_TARGET=x86-64-v3 python bench/fusion.py              the same for another processor

Every kind of fusion in every network.  Whether the rows of a product are kept for what reads them
(attention, softmax or layer-norm behind a product), and whether conversions at the model's edges
are part of a kernel, is a question of price; element-wise epilogues of products and chains of
stages along rows are always computed together, and the table says whether that pays.  All kernels
are the default ones, measured in rounds, each round one after the other; the least counts.  Pairs
where the default seems to be wrong, or one way much slower, are measured again, both ways.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.report import Goal, Report, geometric_mean, number, say, settings_of
from harness.tuning import graph_of, native_engine
from whet.codegen.llvm.support import has_code
from whet.core.cpu import CpuTarget
from whet.graph.graph import Graph
from whet.graph.passes import expand_composites
from whet.measure.cpu.measurer import Measurer
from whet.measure.results import Candidate
from whet.schedule.default import default_choice
from whet.schedule.families.attention.match import find_attention
from whet.schedule.prices import AnalyticPrice
from whet.tasks.groups import Group
from whet.tasks.kernel_steps import group_steps
from whet.tasks.plan import plan_graph
from whet.tasks.steps import Plan, Step
from whet.tasks.structure import structure_of
from whet.tasks.task import Task
from zoo.networks import BUILDERS, build_networks

RIGHT, WORST = 0.95, 1.1
"""The part of choices that are right, and how many times the faster way a choice may take."""
CLOSE = 1.03
"""Ways that differ by less are equally fast: measurements of one kernel differ as much."""
MOST_ROUNDS = 4
"""How many times the rounds: on a virtual machine all of a measurement is doubled now and then,
while both threads have one processor."""
DOUBLED = 1.5
"""Ways that differ by more are measured again as well, whichever is the default."""
SHORTEST_NS = 2000.0
"""Tasks below this are left out: what would be measured is their call."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two ways to compute the same, and which of them is the default."""

    network: str
    name: str
    kind: str
    together: Task
    apart: tuple[Task, ...]
    fused: bool


def arguments() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--kinds", nargs="+", help="kinds to measure")
    made.add_argument("--json", type=Path, metavar="OUT")
    return made


# ------------------------------------------------------------------------------------- pairs
def pairs_of(graph: Graph, target: CpuTarget, threads: int, network: str) -> list[Pair]:
    """All fusions of a graph, equal ones once."""
    asked: list[tuple[Task, Sequence[Task]]] = []

    def note(together: Task, apart: Sequence[Task]) -> bool | None:
        asked.append((together, apart))
        return None

    price = AnalyticPrice(target, threads, "real", note)
    plans = plan_graph(expand_composites(graph), price, has_code).plans
    taken = {s.task.key for p in plans.values() for s in p.steps if isinstance(s, Step)}
    found: dict[tuple[str, ...], Pair] = {}

    def add(name: str, kind: str, together: Task, apart: Sequence[Task], fused: bool) -> None:
        key = (together.key, *(t.key for t in apart))
        priced = price(together)
        if priced is not None and priced.seconds * 1e9 > SHORTEST_NS:
            found.setdefault(key, Pair(network, name, kind, together, tuple(apart), fused))

    for together, apart in asked:
        fused = together.key in taken
        if fused or all(t.key in taken for t in apart):
            kind = "rows of products" if find_attention(together) else "edges"
            add("", kind, together, apart, fused)
    for plan in plans.values():
        for step in plan.steps:
            if isinstance(step, Step) and len(step.nodes) > 1 and not find_attention(step.task):
                apart = _apart(plan, step)
                if apart:
                    kind = "epilogue" if _has_product(step) else "rows"
                    add(step.name, kind, step.task, apart, True)
    return list(found.values())


def _has_product(step: Step) -> bool:
    return any((s := structure_of(n)) is not None and s.contraction for n in step.nodes)


def _apart(plan: Plan, step: Step) -> tuple[Task, ...]:
    """The step's nodes up to the first that sums, then the rest; empty where that is all."""
    sums = [n for n in step.nodes if (s := structure_of(n)) is not None and s.reduces]
    if not sums:
        return ()
    cut = step.nodes.index(sums[0]) + 1
    parts = [Group(list(part)) for part in (step.nodes[:cut], step.nodes[cut:]) if part]
    steps = [s for g in parts for s in group_steps(plan.graph, g, plan.placement)]
    made = tuple(s.task for s in steps if isinstance(s, Step))
    return made if len(parts) > 1 and len(made) == len(steps) else ()


# --------------------------------------------------------------------------------- measuring
class Clock:
    """Seconds of default kernels; every task is measured once a round."""

    def __init__(self, measurer: Measurer, target: CpuTarget, threads: int, rounds: int) -> None:
        self.measurer, self.target, self.threads = measurer, target, threads
        self.rounds = rounds

    def pair(self, pair: Pair) -> tuple[float, float]:
        """The least seconds together and apart; both ways again where that is doubtful."""
        tasks = [pair.together, *pair.apart]
        least = [math.inf] * len(tasks)
        for turn in range(MOST_ROUNDS * self.rounds):
            together, apart = least[0], sum(least[1:])
            taken = together if pair.fused else apart
            faster, slower = sorted((together, apart))
            seems_wrong, seems_doubled = taken > CLOSE * faster, slower > DOUBLED * faster
            if turn >= self.rounds and not (seems_wrong or seems_doubled):
                break
            for n, task in enumerate(tasks):
                least[n] = min(least[n], self.seconds(task))
        return least[0], sum(least[1:])

    def seconds(self, task: Task) -> float:
        choice = default_choice(task, self.target, self.threads)
        candidate = Candidate(choice.sketch.name, choice.holes)
        (measured,) = self.measurer.measure(task, [candidate], self.threads, self.target)
        return min(measured.samples, default=math.inf)


def main() -> None:
    given = arguments().parse_args()
    target = native_engine().target
    report = Report("Fusion", settings_of(given))
    rows = []
    with Measurer() as measurer, tempfile.TemporaryDirectory() as folder:
        clock = Clock(measurer, target, given.threads, given.rounds)
        for network in build_networks(Path(folder), given.only):
            pairs = pairs_of(graph_of(network.path), target, given.threads, network.name)
            pairs = [p for p in pairs if not given.kinds or p.kind in given.kinds]
            say(f"{network.name}: {len(pairs)} pairs")
            for pair in pairs:
                together, apart = clock.pair(pair)
                if math.isfinite(together) and math.isfinite(apart):
                    rows.append((pair, together, apart))
    add_results(report, rows)
    report.finish(given.json)


# --------------------------------------------------------------------------------- reporting
def add_results(report: Report, rows: list[tuple[Pair, float, float]]) -> None:
    shown, by_kind = [], dict[str, list[tuple[bool, float, float]]]()
    for pair, together, apart in rows:
        taken, faster = (together if pair.fused else apart), min(together, apart)
        loss = taken / faster
        by_kind.setdefault(pair.kind, []).append((loss <= CLOSE, loss, apart / together))
        shape = "x".join(map(str, pair.together.outputs[0].shape))
        shown.append([pair.network, pair.kind, f"{pair.name} {shape}".strip(),
                      number(1e6 * together), number(1e6 * apart),
                      "together" if pair.fused else "apart", number(loss)])  # fmt: skip
        report.rows.append({"network": pair.network, "kind": pair.kind, "shape": shape,
                            "together_s": together, "apart_s": apart, "fused": pair.fused,
                            "loss": loss})  # fmt: skip
    header = ("network", "kind", "task", "together µs", "apart µs", "default", "by the faster")
    report.add_table("Fused against separate", header, shown)
    summary = []
    for kind, found in by_kind.items():
        right = sum(r for r, _, _ in found) / len(found)
        worst = max(loss for _, loss, _ in found)
        gain = geometric_mean([g for _, _, g in found])
        summary.append([kind, str(len(found)), number(100 * right), number(worst), number(gain)])
        report.goals.append(Goal(f"{kind}: right choices", right, RIGHT))
        report.goals.append(Goal(f"{kind}: worst choice", worst, WORST, at_least=False))
    report.add_table(
        "Kinds", ("kind", "pairs", "% right", "worst", "apart by together, mean"), summary
    )


if __name__ == "__main__":
    main()
