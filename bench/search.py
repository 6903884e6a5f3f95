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
from pathlib import Path

from harness.replay import Replay
from harness.report import Report, settings_of
from searches.ablation import ablation
from searches.droplet import droplet
from searches.efficiency import efficiency
from searches.races import OPERATORS, Machine
from searches.throughput import throughput
from whet.core.cpu import detect
from whet.db.place import records_path
from whet.db.store import Database
from whet.measure.cpu.measurer import Measurer

SECTIONS = ("throughput", "efficiency", "droplet", "ablation")


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


def main() -> None:
    given = arguments().parse_args()
    where = Machine(detect(), given.threads)
    report = Report("Search", settings_of(given))
    if "throughput" in given.only:
        throughput(report, given, where)
    path = given.database or records_path().with_name("bench_search.db")
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
