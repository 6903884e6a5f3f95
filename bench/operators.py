"""The operators and subgraphs of the Ansor paper, tuned, against other runtimes.

    python bench/operators.py --json bench/results/operators.json
    python bench/operators.py --only DEP NRM --batch 1        a part
    python bench/operators.py --report --json OUT             only the tables of what is there

Every case gets at most --trials trials and --seconds of search, then all runtimes take turns.
What is done is kept in --work, case by case: a run that was stopped goes on where it was, and
--redo measures again.  The best of the others' variants counts, unless its results are off: errors
are distances from the results that most libraries agree with.  The roofline is that of the direct
algorithm, so Winograd may exceed it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.peers import Field, error_of_range
from harness.report import (
    ABSENT,
    Goal,
    Report,
    any_disturbed,
    count,
    fastest,
    geometric_mean,
    measured,
    milliseconds,
    number,
    parser,
    say,
    settings_of,
)
from harness.tuning import native_engine, tasks_of, tune, use_database
from harness.turns import Measurement, Settings, settings_from, take_turns
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.tune.roofline import roofline_seconds
from whet.tune.tuner import Budget
from zoo.operators import FAMILIES, Case, cases

PEERS = ("onnxruntime", "openvino", "torch", "torch_channels_last")
VARIANTS = {"torch_channels_last": "torch"}
"""Peers that are another's library: they compete, but do not vote on what is right."""
WORK = Path(__file__).parent / "work" / "operators"
LARGEST_ERROR = 1e-3
SLOW_SECONDS = 0.2
"""A case whose calls take longer gets fewer turns."""
FAMILY_GOALS = {"DEP": 2.0, "TBS": 1.7, "T2D": 1.5, "GRP": 1.5, "CAP": 1.35, "C1D": 1.35}


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(2,))
    made.set_defaults(rounds=5, turn=0.1)
    made.add_argument("--only", nargs="+", metavar="FAMILY", choices=FAMILIES)
    made.add_argument("--batch", type=int, nargs="+", choices=(1, 16), default=[1, 16])
    made.add_argument("--trials", type=int, default=64, help="trials per case")
    made.add_argument("--seconds", type=float, default=40.0, help="most seconds of search per case")
    made.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    made.add_argument("--work", type=Path, default=WORK, help="where to keep what is done")
    made.add_argument("--redo", action="store_true", help="measure again what is done")
    made.add_argument("--report", action="store_true", help="measure nothing")
    return made


def main() -> None:
    given = arguments().parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    # The quick ones first: a run that is stopped has most of them.
    chosen = sorted(cases(given.only or FAMILIES, given.batch), key=lambda c: c.batch)
    report = Report("Operators", settings_of(given))
    for threads in given.threads:
        state = given.work / f"cases_{threads}.jsonl"
        if not given.report:
            use_database(given.work / f"records_{threads}.db")
            measure(chosen, state, threads, given)
        add_results(report, chosen, read_state(state), threads, given)
    report.finish(given.json)


# -------------------------------------------------------------------------------- measuring
def measure(chosen: list[Case], state: Path, threads: int, given: argparse.Namespace) -> None:
    """Every case that is not in the state yet; each is added as soon as it is done."""
    done = {} if given.redo else read_state(state)
    names = ["whet", *given.peers]
    start = time.monotonic()
    with Field({n: (n, threads) for n in names}) as field:
        waiting = [c for c in chosen if str(c) not in done]
        for position, case in enumerate(waiting):
            try:
                row = measure_case(case, threads, field, names, given)
            except WhetError as error:
                say(f"{case}: {error.message}")
                continue
            with state.open("a") as file:
                file.write(json.dumps(row, default=measured) + "\n")
            gone = time.monotonic() - start
            left = gone / (position + 1) * (len(waiting) - position - 1)
            say(f"{case}: {row['ratio'] or 0:.2f}x, {gone:.0f} s, about {left:.0f} s left")


def measure_case(
    case: Case, threads: int, field: Field, names: list[str], given: argparse.Namespace
) -> dict[str, Any]:
    network = case.written(given.work)
    start = time.monotonic()
    tasks = tasks_of(network.path, threads)
    tuned = tune(tasks, threads, Budget(given.seconds, given.trials))
    seconds = time.monotonic() - start
    values = network.sample()
    peers = field.load_all(names, str(network.path), values)
    found = {name: peer.run() for name, peer in peers.items()}
    network.path.unlink()
    reference = consensus(found)
    errors = {name: difference(results, reference) for name, results in found.items()}
    slow = sum(r.total for r in tuned) > SLOW_SECONDS
    settings = settings_from(given)
    times = take_turns(
        peers, Settings(3, settings.turn, settings.foreign) if slow else settings,
        failed=field.note,
    )  # fmt: skip
    sound = [n for n in names if n != "whet" and errors.get(n, 0.0) <= LARGEST_ERROR]
    best, own = fastest(times, sound), times.get("whet")
    target = native_engine().target
    return {
        "case": str(case), "times": times, "errors": errors, "best_peer": best,
        "ratio": times[best].median / own.median if best and own else None,
        "roofline_s": sum(t.count * roofline_seconds(t.task, target, threads) for t in tasks),
        "trials": sum(r.trials for r in tuned), "tuning_s": seconds,
        "default_s": sum(r.count * r.default_seconds for r in tuned),
        "tuned_s": sum(r.total for r in tuned),
    }  # fmt: skip


def consensus(found: Mapping[str, Sequence[Array]]) -> Sequence[Array]:
    """The results that are nearest to the others': no runtime's rounding is the yardstick.

    Every library has one vote: its variants round alike, and would outvote the others.
    """
    voters = {n: r for n, r in found.items() if VARIANTS.get(n) not in found}
    apart = {
        name: statistics.median(difference(results, other) for other in voters.values())
        for name, results in voters.items()
    }
    return found[min(apart, key=lambda name: apart[name])]


def difference(results: Sequence[Array], others: Sequence[Array]) -> float:
    return max(error_of_range(a, b) for a, b in zip(results, others, strict=True))


def read_state(path: Path) -> dict[str, dict[str, Any]]:
    """What is done; of a case that was measured twice, the last."""
    if not path.exists():
        return {}
    fields = {f.name for f in dataclasses.fields(Measurement)}
    rows = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        row["times"] = {
            name: Measurement(**{k: v for k, v in m.items() if k in fields})
            for name, m in row["times"].items()
        }
        rows[row["case"]] = row
    return rows


# -------------------------------------------------------------------------------- reporting
def add_results(
    report: Report, chosen: list[Case], done: dict[str, dict[str, Any]], threads: int,
    given: argparse.Namespace,
) -> None:  # fmt: skip
    names = ["whet", *given.peers]
    lines, ratios = [], {}
    for case in chosen:
        row = done.get(str(case))
        if row is None:
            report.notes.append(f"{case}, {count(threads)}: not measured")
            continue
        times, own = row["times"], row["times"].get("whet")
        ratio = row["ratio"]
        report.rows.append({**row, "threads": threads})
        lines.append([
            str(case), *(milliseconds(times.get(n)) for n in names), row["best_peer"] or ABSENT,
            number(ratio), number(row["default_s"] / row["tuned_s"] if row["tuned_s"] else None),
            number(100 * row["roofline_s"] / own.median if own else None), str(row["trials"]),
            number(row["tuning_s"]), number(row["errors"].get("whet"), 2),
        ])  # fmt: skip
        if ratio:
            unsure = any_disturbed(own, times.get(row["best_peer"]))
            ratios[case] = ratio
            report.goals.append(Goal(f"{case}: ratio to the best other", ratio, 0.8,
                                     disturbed=unsure))  # fmt: skip
    header = ("case", *names, "best other", "ratio", "gain of tuning", "% of roofline", "trials",
              "tuning s", "error")  # fmt: skip
    report.add_table(f"{count(threads)}, milliseconds", header, lines)
    families = []
    for family in FAMILIES:
        by_batch = [[r for c, r in ratios.items() if c.family == family and c.batch == b]
                    for b in (1, 16)]  # fmt: skip
        means = [geometric_mean(found) for found in (*by_batch, by_batch[0] + by_batch[1])]
        if means[2] is None:
            continue
        families.append([family, *map(number, means)])
        if family in FAMILY_GOALS:
            report.goals.append(Goal(f"{family}: geometric mean", means[2], FAMILY_GOALS[family]))
        if family == "NRM":
            report.goals.append(Goal("NRM, batch 1: geometric mean", means[0], 2.0))
    means = [geometric_mean(r for c, r in ratios.items() if c.batch in batches)
             for batches in ((1,), (16,), (1, 16))]  # fmt: skip
    families.append(["all", *map(number, means)])
    report.add_table("Ratio to the best other, geometric means",
                     ("family", "batch 1", "batch 16", "both"), families)  # fmt: skip
    report.goals.append(Goal(f"{len(ratios)} cases: geometric mean", means[2], 1.4))


if __name__ == "__main__":
    main()
