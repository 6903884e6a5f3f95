"""Tuners in processes of their own, with times that are made up; some are killed.

Arguments: database, number of tuners, `kill` or `finish`.  They are forks of this process, which
has no threads and no database open.  Prints, per tuner, how many trials it said were committed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from tests.tune.test_tuner import TARGET, MadeUp, small_graph
from whet.db.store import Database
from whet.joint.tuning import weighted_tasks
from whet.tune.report import Report, Status
from whet.tune.search import WeightedTask
from whet.tune.tuner import Budget, Tuner

TRIALS = 96


def tune(path: str, tasks: Sequence[WeightedTask], seed: int, said: TextIO) -> None:
    def watch(reports: Sequence[Report], status: Status) -> None:
        said.write(f"{status.trials}\n")
        said.flush()

    with Database(path) as database:
        tuner = Tuner(tasks, TARGET, 1, database, MadeUp(), seed=seed)  # type: ignore[arg-type]
        tuner.run(Budget(trials=TRIALS), watch)


def main() -> None:
    path, count, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    tasks = weighted_tasks([small_graph()], TARGET, 1, "real")
    rng = np.random.default_rng(0)
    children = []
    committed = []
    for seed in range(count):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            with os.fdopen(writing, "w") as said:
                tune(path, tasks, seed, said)
            os._exit(0)
        os.close(writing)
        if how == "kill":
            if seed % 2:  # every other one has stored something, however slow the machine is
                select.select([reading], [], [], 60.0)
            time.sleep(float(rng.uniform(0, 0.1)))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            committed.append(last_said(reading))
        else:
            children.append((child, reading))
    for child, reading in children:
        _, status = os.waitpid(child, 0)
        committed.append(last_said(reading) if status == 0 else -1)
    sys.stdout.write(json.dumps(committed))


def last_said(reading: int) -> int:
    with os.fdopen(reading) as said:
        lines = said.read().split("\n")[:-1]
    return int(lines[-1]) if lines else 0


if __name__ == "__main__":
    main()
