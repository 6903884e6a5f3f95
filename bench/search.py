"""Searches for schedules: how fast they think, how few trials they need, what each part brings.

    python bench/search.py --only throughput                     half a minute
    python bench/search.py --only efficiency --seconds 600       ten operators, five seeds
    python bench/search.py --only droplet --seconds 480          three operators, 1,000 trials each
    python bench/search.py --only ablation --seconds 480         a layer and a network

Every candidate is measured once and kept in a database (--database): all policies see the same
times, and a run that was stopped, by hand or by --seconds, goes on where it was.  `live` counts
the trials that ran on the machine, `replayed` those that had run before.

What counts as the best is the best of all trials of a task, those of the contestants and, with the
time that is left, others up to --reference: contestants that set their own standard would all
look good.  Where fewer were made, the table says how many, and the goals are not judged.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from harness.replay import OutOfTime, Replay
from harness.report import Goal, Report, geometric_mean, number, say, settings_of
from whet.api.tuning import weighted_tasks
from whet.core.config import process_config
from whet.core.target import Target, detect
from whet.db.store import Database
from whet.frontend.onnx import import_model
from whet.graph.passes import optimize
from whet.measure.measurer import Measurer
from whet.measure.results import Candidate
from whet.tune.policies import POLICIES, Known, Policy
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.policies.draft import Draft
from whet.tune.policies.evolution import Evolution, Habits
from whet.tune.search import WeightedTask
from whet.tune.space import Row, Space, make_space
from whet.tune.timing import Timing
from whet.tune.tuner import Tuner
from zoo.convolutional import squeezenet
from zoo.layers import ConvLayer, conv_model
from zoo.operators import Case

SECTIONS = ("throughput", "efficiency", "droplet", "ablation")
OPERATORS = {"C1D": 1, "C2D": 1, "C3D": 1, "GMM": 0, "GRP": 2, "DIL": 2, "DEP": 0, "T2D": 1,
             "CAP": 3, "NRM": 1}  # fmt: skip
"""The ten families, each with the number of a shape that does not take long."""
BRED = "evolution, nothing listed"
"""Evolution that breeds even where it could score all candidates: 2048 rows, 4 generations."""
ROUND = 8
"""Trials between two proposals, as the tuner makes them."""
ABLATION_SEEDS = 3
LAST_LAYER = ConvLayer(7, 512, 512, 3)
"""The last convolution of ResNet-50, on which Ansor's ablation runs (figure 7)."""
TEMPLATES = frozenset({"spatial", "rows", "transposed"})
"""The limited space: loops in the order of the output, without the tiles of contractions."""


def arguments() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="\n".join(__doc__.splitlines()[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    made.add_argument("--operators", nargs="+", choices=list(OPERATORS), default=list(OPERATORS))
    made.add_argument(
        "--policies", nargs="+", metavar="POLICY", help="of `efficiency`, beside the default"
    )
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--seeds", type=int, default=5)
    made.add_argument("--trials", type=int, default=104, help="trials of a search")
    made.add_argument("--reference", type=int, default=1000, help="trials that set the standard")
    made.add_argument("--seconds", type=float, default=540.0, help="measuring time of a section")
    made.add_argument("--database", type=Path, help="where trials are kept")
    made.add_argument("--json", type=Path, metavar="OUT")
    return made


# -------------------------------------------------------------------------------- the subjects
@dataclass(frozen=True, eq=False)
class Subject:
    """A task to search for."""

    name: str
    task: WeightedTask
    space: Space


def largest_task(name: str, model: object, target: Target, threads: int) -> Subject:
    """The task of a model that does most of its work."""
    tasks = tasks_of(model, target, threads)
    task = max(tasks, key=lambda t: t.task.operations)
    return Subject(name, task, make_space(task.task, target, threads))


def tasks_of(model: object, target: Target, threads: int) -> list[WeightedTask]:
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(cast(onnx.ModelProto, model), path)
        graph = optimize(import_model(str(path)).graph)
    return weighted_tasks([graph], target, threads, "real")


def limited(space: Space) -> Space:
    return Space(space.task, tuple(t for t in space.tables if t.sketch in TEMPLATES))


# -------------------------------------------------------------------------------------- races
@dataclass(frozen=True)
class Pool:
    """Chance, over a fixed number of rows, so that the seeds share their trials."""

    size: int

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        rows = RandomSearch().propose(space, {}, self.size, np.random.default_rng(0))
        fresh = [row for row in rows if row not in known]
        return [fresh[n] for n in rng.permutation(len(fresh))[:count]]


def race(
    subject: Subject, policy: Policy, trials: int, seed: int, replay: Replay, where: Machine,
    batch: int = ROUND,
) -> list[float]:  # fmt: skip
    """The best seconds after every trial, with `batch` trials between two proposals."""
    known = trials_by(subject, policy, trials, seed, replay, where, batch)
    return [float(s) for s in np.minimum.accumulate([float(t) for t in known.values()])]


def trials_by(
    subject: Subject, policy: Policy, trials: int, seed: int, replay: Replay, where: Machine,
    batch: int = ROUND, known: Mapping[Row, Timing] | None = None,
) -> dict[Row, Timing]:  # fmt: skip
    """The trials that are known and those that a policy makes after them, in their order."""
    rng, space = np.random.default_rng(seed), subject.space
    known = dict(known or {})
    while len(known) < trials:
        rows = policy.propose(space, known, min(batch, trials - len(known)), rng)
        if not rows:
            break
        candidates = [space.candidate(r) for r in rows]
        for row, m in zip(
            rows, replay.measure(subject.task.task, candidates, where.threads, where.target)
        ):
            known[row] = Timing(m.samples if m.ok else ())
    return known


@dataclass(frozen=True)
class Machine:
    """What is measured on."""

    target: Target
    threads: int


def trials_to(best: Sequence[float], share: float, reference: float) -> float:
    """Trials until that share of the reference's speed was reached; infinity for never."""
    return next((n + 1.0 for n, s in enumerate(best) if s * share <= reference), float("inf"))


def share_of(best: Sequence[float], reference: float) -> float:
    return reference / best[-1] if best else 0.0


# --------------------------------------------------------------------------------- throughput
def throughput(report: Report, given: argparse.Namespace, where: Machine) -> None:
    """Candidates scored per second and core, and the time of one proposal."""
    lines, slowest = [], float("inf")
    rounds: dict[str, float] = dict.fromkeys([*POLICIES, BRED], 0.0)
    for name in given.operators:
        subject = largest_task(
            name, Case(name, OPERATORS[name], 1).model(), where.target, where.threads
        )
        scored, spent = 0, 0.0
        for table in subject.space.tables:
            assert table.offer is not None
            population = {h: np.resize(column, 8192) for h, column in table.holes.items()}
            start = time.process_time()
            table.offer.price(population)
            spent += time.process_time() - start
            scored += 8192
        slowest = min(slowest, scored / spent)
        made = {**POLICIES, BRED: lambda: Evolution(habits=Habits(enumerable=0))}
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


# ---------------------------------------------------------------------------------- efficiency
SHARES = (0.9, 0.95)
AFTER = (8, 32)
"""Numbers of trials, beside all, after which the share that was reached is shown."""
FEWEST_CANDIDATES = 64
"""Operators with fewer candidates are shown, but do not count: anything finds the best there."""


def contestants(trials: int) -> dict[str, Callable[[], Policy]]:
    """Who is compared: the default, what it is made of, and chance."""
    return {
        "default": POLICIES["default"],
        "default, no Droplet": Draft,
        "learned": POLICIES["learned"],
        "learned, no Droplet": POLICIES["evolution"],
        "evolution, analytic model": Evolution,
        "random": lambda: Pool(trials + trials // 4),
    }


def efficiency(
    report: Report, given: argparse.Namespace, where: Machine, replay: Replay
) -> None:  # fmt: skip
    """Trials to 90 % and 95 % of the best, over operators and seeds."""
    subjects = [
        largest_task(n, Case(n, OPERATORS[n], 1).model(), where.target, where.threads)
        for n in given.operators
    ]
    policies = {
        name: make for name, make in contestants(given.trials).items()
        if given.policies is None or name in ("default", *given.policies)
    }  # fmt: skip
    seeds: list[dict[tuple[str, str], list[float]]] = []
    try:
        for seed in range(given.seeds):
            found = {}
            for subject in subjects:
                for name, make in policies.items():
                    curve = race(subject, make(), given.trials, seed, replay, where)
                    found[name, subject.name] = curve
                say(f"seed {seed}, {subject.name}: {replay.live} live trials")
            seeds.append(found)
        widen(subjects, given.reference, replay, where)
    except OutOfTime:
        pass  # the notes and the table say how far it came
    report.notes.append(f"efficiency: {len(seeds)} of {given.seeds} seeds are complete and counted")
    if not seeds:
        return
    tried = [len(replay.records(s.task.task, where.target, where.threads)) for s in subjects]
    best = {s.name: replay.best(s.task.task, where.target, where.threads) for s in subjects}
    header = ("", *(s.name for s in subjects))
    counts = [["candidates", *(str(s.space.size) for s in subjects)],
              ["trials that set the standard", *map(str, tried)]]  # fmt: skip
    report.add_table("Operators", header, counts)
    counted = [s.name for s in subjects if s.space.size >= FEWEST_CANDIDATES]
    medians = {}
    for share in SHARES:
        rows = []
        for name in policies:
            each = {
                s.name: statistics.median(
                    trials_to(found[name, s.name], share, best[s.name]) for found in seeds
                )
                for s in subjects
            }
            medians[name, share] = statistics.median(each[n] for n in counted)
            cells = [*each.values(), medians[name, share]]
            rows.append([name, *(shown_trials(t, given.trials) for t in cells)])
        report.add_table(
            f"Trials to {share:.0%} of the best of all trials", (*header, "median"), rows
        )
    rows = []
    for name in policies:
        shares = [
            [share_of(found[name, n][:most], best[n]) for n in counted for found in seeds]
            for most in (*AFTER, given.trials)
        ]
        rows.append([name, *(f"{100 * statistics.mean(s):.1f} %" for s in shares)])
    named = (f"{most} trials" for most in (*AFTER, given.trials))
    report.add_table("Mean share of the best's speed", ("", *named), rows)
    for found in seeds:
        report.rows += [{"section": "efficiency", "policy": p, "operator": o, "best": best[o],
                         "curve": curve} for (p, o), curve in found.items()]  # fmt: skip
    wide = all(n >= min(given.reference, s.space.size) for n, s in zip(tried, subjects))
    for share, bound in zip(SHARES, (32, 100)) if given.reference >= 1000 else ():
        what = f"median trials to {share:.0%} of the best of {given.reference}"
        report.goals.append(
            Goal(what, medians["default", share] if wide else None, bound, at_least=False)
        )


def widen(
    subjects: Sequence[Subject], reference: int, replay: Replay, where: Machine
) -> None:  # fmt: skip
    """Trials until every task has as many as the standard asks for, or none is left.

    Half of them are the model's favourites, half are by chance.
    """
    rng = np.random.default_rng(99)
    policies: tuple[Policy, ...] = (Evolution(), RandomSearch())
    waiting = list(subjects)
    while waiting:
        subject = min(waiting, key=lambda s: len(tried_rows(s, replay, where)))
        known = tried_rows(subject, replay, where)
        missing = min(4 * ROUND, reference - len(known))
        rows: list[Row] = []
        for policy in policies if missing > 0 else ():
            taken = {**known, **dict.fromkeys(rows, Timing())}
            rows += policy.propose(subject.space, taken, -(-missing // 2), rng)
        if not rows:
            waiting.remove(subject)
            continue
        candidates = [subject.space.candidate(r) for r in rows]
        replay.measure(subject.task.task, candidates, where.threads, where.target)


def tried_rows(subject: Subject, replay: Replay, where: Machine) -> dict[Row, Timing]:
    """The trials of a task that are recorded."""
    found = {}
    for r in replay.records(subject.task.task, where.target, where.threads).values():
        row = subject.space.find(Candidate(r.sketch, r.holes))
        if row is not None:
            found[row] = Timing(r.samples if r.seconds is not None else ())
    return found


def shown_trials(trials: float, most: int) -> str:
    return f"> {most}" if trials == float("inf") else number(trials)


# ------------------------------------------------------------------------------------- droplet
DROPLET_OPERATORS = {"C1D": 1, "GMM": 0, "CAP": 3}
"""Operators whose trials are short and whose spaces have more than the long search's trials."""
EXPLORED, DESCENT, LONG = 100, 100, 1000
LONG_ROUND = 50
"""Trials between two proposals of evolution, as in Ansor; both searches begin with the same."""
FINALISTS = 4
"""The fastest of a search that are timed again: the best of many noisy times is too good."""
KNOWN_TO = 0.98
"""Times are known to 2 %, so a search has reached what another has if it comes this near."""


def droplet(report: Report, given: argparse.Namespace, where: Machine, replay: Replay) -> None:
    """Few explored trials and a descent, against many trials of the same evolution.

    The finalists of both are measured again, and the two winners take turns.
    """
    lines, shares = [], []
    try:
        for seed in range(min(given.seeds, ABLATION_SEEDS)):
            for name, number_ in DROPLET_OPERATORS.items():
                case = Case(name, number_, 1)
                subject = largest_task(str(case), case.model(), where.target, where.threads)
                search = partial(trials_by, subject, seed=seed, replay=replay, where=where)
                first = search(evolution(), EXPLORED, batch=LONG_ROUND)
                descent = ExploreThenDroplet(evolution(), explored=0)
                few = search(descent, EXPLORED + DESCENT, known=first)
                many = search(evolution(), LONG, batch=LONG_ROUND)
                explored = min(first.values())
                short, long = (winner(subject, k, replay.measurer, where) for k in (few, many))
                turns = replay.measurer.compare(
                    subject.task.task, short, long, where.threads, where.target, seconds=2.0
                )
                shares.append(1 / turns.ratio)
                report.rows.append({
                    "section": "droplet", "operator": name, "seed": seed, "share": shares[-1],
                    "low": 1 / turns.high, "high": 1 / turns.low, "few": len(few),
                    "many": len(many), "seconds": [explored, min(few.values()),
                                                   min(many.values())],
                })  # fmt: skip
                lines.append([
                    str(case), str(seed), str(subject.space.size), number(1e6 * explored),
                    number(1e6 * min(few.values())), number(1e6 * min(many.values())),
                    f"{len(few)} / {len(many)}",
                    f"{number(shares[-1])} ({number(1 / turns.high)} to {number(1 / turns.low)})",
                ])  # fmt: skip
                say(f"{case}, seed {seed}: {shares[-1]:.3f}, {replay.live} live trials")
    except OutOfTime:
        report.notes.append("droplet: the time was up; start again to go on")
    header = ("operator", "seed", "candidates", f"{EXPLORED} explored, us", "then Droplet, us",
              f"{LONG} by evolution, us", "trials", "speed, in turns")  # fmt: skip
    report.add_table("Droplet after few trials, and many trials without it", header, lines)
    what = f"{EXPLORED} explored and {DESCENT} Droplet trials, speed by {LONG} evolutionary ones"
    report.goals.append(Goal(what, geometric_mean(shares), KNOWN_TO))


def evolution() -> Policy:
    return POLICIES["evolution"]()


def winner(
    subject: Subject, known: Mapping[Row, Timing], measurer: Measurer, where: Machine
) -> Candidate:
    """The fastest of the finalists, timed once more."""
    best = sorted(known, key=lambda row: known[row])[:FINALISTS]
    candidates = [subject.space.candidate(row) for row in best]
    again = measurer.measure(subject.task.task, candidates, where.threads, where.target)
    return min((m for m in again if m.ok), key=lambda m: m.seconds).candidate


# ------------------------------------------------------------------------------------ ablation
@dataclass(frozen=True)
class Variant:
    """The search with something taken away."""

    policy: Callable[[], Policy] = POLICIES["learned"]
    limited: bool = False
    scheduled: bool = True


def variants(trials: int) -> dict[str, Variant]:
    return {
        "full": Variant(),
        "random": Variant(lambda: Pool(trials + trials // 4)),
        "limited space": Variant(limited=True),
        "no Droplet": Variant(POLICIES["evolution"]),
        "no learned model": Variant(lambda: ExploreThenDroplet(Evolution())),
        "no fine-tuning": Variant(Draft),
        "no scheduler": Variant(scheduled=False),
        "beam": Variant(POLICIES["beam"]),
    }


def ablation(
    report: Report, given: argparse.Namespace, where: Machine, replay: Replay
) -> None:  # fmt: skip
    """What is lost without each part, on the last layer of ResNet-50 and on SqueezeNet."""
    layer = largest_task(str(LAST_LAYER), conv_model(LAST_LAYER), where.target, where.threads)
    tasks = tasks_of(squeezenet(), where.target, where.threads)
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
                    for seed in range(min(given.seeds, ABLATION_SEEDS))
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


def main() -> None:
    given = arguments().parse_args()
    where = Machine(detect(), given.threads)
    report = Report("Search", settings_of(given))
    if "throughput" in given.only:
        throughput(report, given, where)
    path = given.database or process_config().cache.dir / "bench_search.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Database(path) as database, Measurer() as measurer:
        sections = {"efficiency": efficiency, "droplet": droplet, "ablation": ablation}
        for name, section in sections.items():
            if name in given.only:
                replay = Replay(database, measurer)
                replay.limit(given.seconds)
                section(report, given, where, replay)
                report.notes.append(
                    f"{name}: {replay.live} live trials, {replay.replayed} replayed"
                )
    report.finish(given.json)


if __name__ == "__main__":
    main()
