"""How fast searches think: candidates that are scored, and the time of a proposal."""

from __future__ import annotations

import argparse
import time

import numpy as np

from harness.report import Goal, Report, number
from searches.races import Machine, operator_subject
from whet.tune.policies import find_policy, policy_names
from whet.tune.policies.evolution import Evolution, Habits

BRED = "evolution, nothing listed"
"""Evolution that breeds even where it could score all candidates: 2048 rows, 4 generations."""


def throughput(report: Report, given: argparse.Namespace, where: Machine) -> None:
    """Candidates scored per second and core, and the time of one proposal."""
    lines, slowest = [], float("inf")
    rounds: dict[str, float] = dict.fromkeys([*policy_names(), BRED], 0.0)
    for name in given.operators:
        subject = operator_subject(name, where)
        scored, spent = 0, 0.0
        for table in subject.space.tables:
            assert table.offer is not None
            population = {h: np.resize(column, 8192) for h, column in table.holes.items()}
            start = time.process_time()
            table.offer.price(population)
            spent += time.process_time() - start
            scored += 8192
        slowest = min(slowest, scored / spent)
        made = {name: find_policy(name) for name in policy_names()}
        made[BRED] = lambda: Evolution(habits=Habits(enumerable=0))
        for policy, make in made.items():
            start = time.process_time()
            make().propose(subject.space, {}, 64, np.random.default_rng(0))
            rounds[policy] = max(rounds[policy], time.process_time() - start)
        lines.append([name, str(subject.space.size), str(len(subject.space.tables)),
                      number(scored / spent / 1e3)])  # fmt: skip
        report.rows.append(
            {"section": "throughput", "operator": name, "per_second": scored / spent}
        )
    header = ("operator", "candidates", "sketches", "thousands scored per second")
    report.add_table("Analytic model, one core", header, lines)
    shown = [[name, number(1e3 * seconds)] for name, seconds in rounds.items()]
    report.add_table("A proposal of 64, the slowest operator", ("policy", "ms"), shown)
    report.rows.append({"section": "throughput", "proposal_seconds": rounds})
    report.goals += [
        Goal("candidates scored per second and core, slowest operator", slowest, 1e5),
        Goal("seconds of an evolutionary round", rounds[BRED], 1.0, at_least=False),
    ]
