"""The search over graphs: which rules fire, what rewriting alone gains, how right its prices are.

    python bench/rewrites.py [--threads 2] [--only bert_base] [--part fire gain sign speed]

`fire`: rules that match a network as it was imported, rules that the search took, and places.
`gain`: the network as it was written and as it was rewritten, both with default kernels, called in
turns; the interval is that of the median ratio (95 %).
`sign`: random rewrites of blocks that prices expect to change the block by 5 % or more, measured
against the block as it was: how often is the sign right?
`speed`: priced graphs per second, nothing measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.pairs import built, in_turns, largest_difference, price_of, random_inputs
from harness.report import Goal, Report, number, parser, say, settings_of
from harness.tuning import graph_of, native_engine
from whet.build.backend import backend_of
from whet.graph.graph import Graph, Input
from whet.joint.blocks import Block, cut_blocks, form_of
from whet.joint.kept import rewritten_graph, search, shared_matcher
from whet.joint.moves import Moves
from whet.joint.pricing import plan_whole
from whet.joint.recipe import follow_recipe, write_recipe
from whet.joint.superoptimize import Superoptimizer
from whet.superopt.apply.axis_rules import merge_rewrites, part_rewrites, slice_rewrites
from whet.superopt.apply.rewrite import Part
from zoo.networks import BUILDERS, Network, build_networks

SEARCH_SECONDS = 10.0
GAINS = {"nasrnn": 1.5, "bert_base": 1.04, "vit_tiny": 1.04}
"""Gains that rewriting should bring; others should not lose."""
REGIONS_PER_NETWORK = 16
LEAST_CHANGE = 0.05
SPEED_LIMITS = {"resnet50": 10.0, "bert_base": 10.0, "nasnet_a": 60.0}
"""Seconds for 1,000 graphs."""
STATES = 1000


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(2,))
    parts = ("fire", "gain", "sign", "speed")
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--part", nargs="+", choices=parts, default=list(parts))
    made.add_argument("--seconds", type=float, default=SEARCH_SECONDS, help="of each search")
    made.add_argument("--measure", type=float, default=10.0, help="seconds of calls per network")
    return made


def main() -> None:
    given = arguments().parse_args()
    report = Report("Rewrites", settings_of(given))
    with tempfile.TemporaryDirectory() as folder:
        networks = build_networks(Path(folder), given.only or list(BUILDERS))
        for threads in given.threads:
            if "fire" in given.part:
                fire(report, networks, threads, given.seconds)
            if "gain" in given.part:
                gain(report, networks, threads, given.seconds, given.measure)
            if "sign" in given.part:
                sign(report, networks, threads)
            if "speed" in given.part:
                speed(report, networks, threads)
    report.finish(given.json)


# ---------------------------------------------------------------------------------------- fire
def fire(report: Report, networks: Sequence[Network], threads: int, seconds: float) -> None:
    rows = []
    for network in networks:
        say(f"matching {network.name}")
        graph = graph_of(network.path)
        part = Part(graph.inputs, graph.outputs)
        generated = Counter(r.rule for r in shared_matcher("real").rewrites(part))
        axes = Counter(
            r.rule
            for found in (slice_rewrites(part), merge_rewrites(part), part_rewrites(part))
            for r in found
        )
        found = search(graph, native_engine().target, threads, "real", seconds)
        used: Counter[str] = Counter()
        for taken in found.taken:
            used.update({rule: n * taken.places for rule, n in taken.rules.items()})
        rows.append([
            network.name, str(len(generated)), str(sum(generated.values())), str(len(axes)),
            str(sum(axes.values())), str(len(used)), str(sum(used.values())),
            ", ".join(f"{rule} x{n}" for rule, n in used.most_common(6)) or "-",
        ])  # fmt: skip
        report.rows.append({"network": network.name, "generated": generated, "axes": axes,
                            "used": used})  # fmt: skip
    header = ["network", "rules", "places", "axis laws", "places", "taken", "times", "which"]
    report.add_table("Rules that match after import, and rules taken", header, rows)


# ---------------------------------------------------------------------------------------- gain
def gain(
    report: Report, networks: Sequence[Network], threads: int, seconds: float, calls: float
) -> None:
    rows = []
    for network in networks:
        say(f"rewriting {network.name}")
        graph = graph_of(network.path)
        found = search(graph, native_engine().target, threads, "real", seconds)
        expected = found.before / found.after if found.after else 1.0
        if found.recipe is None:
            rows.append([network.name, "1.00", "-", "as it was", "-"])
            continue
        inputs = list(network.sample().values())
        both = [built(g, threads) for g in (graph, rewritten_graph(graph, found))]
        off = largest_difference(*(run(inputs) for run in both))
        gained = in_turns(both, inputs, calls).ratio(0, 1)
        rows.append([network.name, number(expected), number(gained.middle),
                     f"{number(gained.low)} to {number(gained.high)}", f"{off:.0e}"])  # fmt: skip
        report.rows.append({"network": network.name, "expected": expected, "gain": gained.middle,
                            "low": gained.low, "high": gained.high, "error": off})  # fmt: skip
        if network.name in GAINS:
            report.goals.append(Goal(f"{network.name}, gain", gained.middle, GAINS[network.name]))
        report.goals.append(Goal(f"{network.name}, end of the interval", gained.high, 1.0))
    header = ["network", "expected", "measured", "95 %", "largest difference"]
    report.add_table(f"Rewriting alone, default kernels, {threads} threads", header, rows)


# ---------------------------------------------------------------------------------------- sign
def sign(report: Report, networks: Sequence[Network], threads: int) -> None:
    rows, right, total = [], 0, 0
    for network in networks:
        say(f"rewriting blocks of {network.name}")
        found = compared_blocks(graph_of(network.path), threads)
        agree = sum(c.right for c in found)
        right, total = right + agree, total + len(found)
        report.rows += [{"network": network.name, **dataclasses.asdict(c)} for c in found]
        rows.append([network.name, str(len(found)), str(agree)])
    rows.append(["all", str(total), str(right)])
    header = ["network", "blocks", "right sign"]
    report.add_table("Blocks expected to change by 5 % or more", header, rows)
    report.goals.append(Goal("blocks measured", total, 100))
    report.goals.append(Goal("right sign", right / max(total, 1), 0.9))


@dataclass(frozen=True, slots=True)
class Change:
    """A rewrite of a block: how many times faster it was expected to make it, and made it."""

    rule: str
    expected: float
    measured: float

    @property
    def right(self) -> bool:
        return (self.expected > 1) == (self.measured > 1)


def compared_blocks(graph: Graph, threads: int) -> list[Change]:
    """Some rewrites of blocks, each block compiled alone and priced as such."""
    price, rng = price_of(graph, threads), random.Random(0)
    holds = backend_of(native_engine().target).holds
    whole = plan_whole(graph, price, holds)
    if whole is None:
        return []
    blocks = {form_of(b.part, b.places).key: b for b in cut_blocks(whole)}
    steps = [
        (block, rewrites[0].rule, part)
        for block in blocks.values()
        for rewrites, part in Moves(shared_matcher("real"))(block.part)
    ]
    found: list[Change] = []
    tried: set[tuple[str, float]] = set()
    for block, rule, part in rng.sample(steps, len(steps)):
        both = graphs_of(block, part)
        planned = [plan_whole(g, price, holds) for g in both]
        if planned[0] is None or planned[1] is None:
            continue
        expected = planned[0].seconds / planned[1].seconds
        kind = (rule, round(expected, 2))
        if abs(np.log(expected)) < np.log1p(LEAST_CHANGE) or kind in tried:
            continue
        tried.add(kind)
        turns = in_turns([built(g, threads) for g in both], random_inputs(both[0]), 0.3)
        found.append(Change(rule, expected, turns.ratio(0, 1).middle))
        if len(found) == REGIONS_PER_NETWORK:
            break
    return found


def graphs_of(block: Block, part: Part) -> tuple[Graph, Graph]:
    """The block and the part that may replace it, as graphs."""
    inputs = tuple(v for v in block.part.inputs if isinstance(v, Input))
    names = tuple(f"y{n}" for n in range(len(block.part.outputs)))
    first = Graph(inputs, block.part.outputs, names)
    recipe = write_recipe(first, part.outputs)
    assert recipe is not None
    return first, follow_recipe(recipe, first)


# --------------------------------------------------------------------------------------- speed
def speed(report: Report, networks: Sequence[Network], threads: int) -> None:
    rows = []
    holds = backend_of(native_engine().target).holds
    for network in networks:
        graph = graph_of(network.path)
        rates = []
        for _ in range(2):
            made = Superoptimizer(
                price_of(graph, threads), holds, lambda: shared_matcher("real"), SEARCH_SECONDS
            )
            start = time.perf_counter()
            made.run(graph)
            rates.append((time.perf_counter() - start) / max(made.states, 1))
        per_thousand = STATES * statistics.median(rates)
        rows.append([network.name, str(made.states), number(per_thousand)])
        if network.name in SPEED_LIMITS:
            title = f"{network.name}, seconds for {STATES} graphs"
            report.goals.append(
                Goal(title, per_thousand, SPEED_LIMITS[network.name], at_least=False)
            )
    header = ["network", "graphs", f"seconds for {STATES}"]
    report.add_table(f"Graphs priced in {SEARCH_SECONDS:g} seconds or until all are known", header,
                     rows)  # fmt: skip


if __name__ == "__main__":
    main()
