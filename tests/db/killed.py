"""Writers that are killed at random moments; prints what each said it had committed.

Arguments: database, number of writers.  They are forks of this process, which has no threads
and no database open, so that starting one takes no time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import numpy as np

from tests.db.writer import write_records


def main() -> None:
    path, count = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(0)
    committed = {}
    for turn in range(count):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            with os.fdopen(writing, "w") as said:
                write_records(path, f"w{turn}", 1_000_000, said)
            os._exit(1)
        os.close(writing)
        time.sleep(float(rng.uniform(0, 0.12)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading) as said:
            lines = said.read().split("\n")[:-1]
        committed[f"w{turn}"] = len(lines)
    sys.stdout.write(json.dumps(committed))


if __name__ == "__main__":
    main()
