"""What each part of the search brings: the search with something taken away."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from harness.replay import OutOfTime, Replay
from harness.report import Goal, Report, number, say
from searches.races import (
    MOST_SEEDS,
    ROUND,
    Machine,
    Pool,
    Subject,
    largest_task,
    race,
    share_of,
    tasks_of,
)
from whet.db.store import Database
from whet.measure.cpu.measurer import Measurer
from whet.tune.policies import Policy, find_policy
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.policies.draft import Draft
from whet.tune.policies.evolution import Evolution
from whet.tune.search import WeightedTask
from whet.tune.space import Space
from whet.tune.tuner import Tuner
from zoo.convolutional import squeezenet
from zoo.layers import ConvLayer, conv_model

LAST_LAYER = ConvLayer(7, 512, 512, 3)
"""The last convolution of ResNet-50, on which Ansor's ablation runs (figure 7)."""
TEMPLATES = frozenset({"spatial", "rows", "transposed"})
"""The limited space: loops in the order of the output, without the tiles of contractions."""

LEARNED = find_policy("learned")


@dataclass(frozen=True)
class Variant:
    """The search with something taken away."""

    policy: Callable[[], Policy] = LEARNED
    limited: bool = False
    scheduled: bool = True


def variants(trials: int) -> dict[str, Variant]:
    return {
        "full": Variant(),
        "random": Variant(lambda: Pool(trials + trials // 4)),
        "limited space": Variant(limited=True),
        "no Droplet": Variant(find_policy("evolution")),
        "no learned model": Variant(lambda: ExploreThenDroplet(Evolution())),
        "no fine-tuning": Variant(Draft),
        "no scheduler": Variant(scheduled=False),
        "beam": Variant(find_policy("beam")),
    }


def ablation(report: Report, given: argparse.Namespace, where: Machine, replay: Replay) -> None:
    """What is lost without each part, on the last layer of ResNet-50 and on SqueezeNet."""
    layer = largest_task(str(LAST_LAYER), conv_model(LAST_LAYER), where)
    tasks = tasks_of(squeezenet(), where)
    trials = 12 * len(tasks)
    curves: dict[str, list[list[float]]] = {}
    networks: dict[str, float] = {}
    try:
        for name, variant in variants(given.trials).items():
            space = limited(layer.space) if variant.limited else layer.space
            one = Subject(layer.name, layer.task, space)
            if variant.scheduled:
                curves[name] = [
                    race(one, variant.policy(), given.trials, seed, replay, where)
                    for seed in range(min(given.seeds, MOST_SEEDS))
                ]
            networks[name] = network_seconds(tasks, variant, trials, replay, where)
            say(f"{name}: {replay.live} live trials")
    except OutOfTime:
        report.notes.append(f"ablation: the time was up before '{name}' was done")
    reference = replay.best(layer.task.task, where.target, where.threads)
    lines = []
    for name, seconds in networks.items():
        shares = [share_of(c[: given.trials // 4], reference) for c in curves.get(name, [])]
        ends = [share_of(c, reference) for c in curves.get(name, [])]
        lines.append([name, _percent(shares), _percent(ends), number(1e3 * seconds),
                      number(networks["full"] / seconds)])  # fmt: skip
        report.rows.append({"section": "ablation", "variant": name, "quarter": shares,
                            "end": ends, "network_seconds": seconds})  # fmt: skip
    header = ("variant", f"layer, {given.trials // 4} trials", f"layer, {given.trials} trials",
              f"SqueezeNet ms, {trials} trials", "speed by full")  # fmt: skip
    report.add_table("Ablation", header, lines)
    for worse in ("random", "limited space"):
        if worse in networks:
            what = f"speed of SqueezeNet with {worse}, by the full search's"
            report.goals.append(Goal(what, networks["full"] / networks[worse], 1.0, at_least=False))


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * statistics.median(shares):.0f} %" if shares else "-"


def network_seconds(
    tasks: Sequence[WeightedTask], variant: Variant, trials: int, replay: Replay, where: Machine
) -> float:
    """The sum of the tasks' best times after so many trials on all of them."""
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "run.db") as records:
        tuner = Tuner(
            tasks, where.target, where.threads, records, cast(Measurer, replay),
            policy=variant.policy, trials_per_round=ROUND,
            sketches=(lambda n: n in TEMPLATES) if variant.limited else (lambda n: True),
        )  # fmt: skip
        done = rounds = 0
        while done < trials:
            turn = rounds % len(tasks)
            chosen = tuner.scheduler.next(tuner.tools.rng) if variant.scheduled else turn
            rounds += 1
            if chosen is None or all(s.progress.exhausted for s in tuner.searches):
                break
            done += tuner.searches[chosen].round(min(ROUND, trials - done))
        return sum(t.count * s.best_seconds for t, s in zip(tasks, tuner.searches))


def limited(space: Space) -> Space:
    """The candidates of the limited space."""
    return Space(space.task, tuple(t for t in space.tables if t.sketch in TEMPLATES))
