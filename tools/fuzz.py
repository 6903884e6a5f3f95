"""Random graphs under random schedules against the interpreter:  python tools/fuzz.py [KERNELS]

Runs until that many kernels (10,000 by default) have been drawn, on guard-paged memory, and
prints how often each sketch was.  A failure shows its seed, graph and schedule; a fault ends
the process, and the seed printed last is the one to look at.
"""

from __future__ import annotations

import faulthandler
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.build.schedules import check_random

FIRST_SEED = 1_000_000
"""Apart from the seeds of the test suite."""


def main() -> int:
    faulthandler.enable()
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    total: dict[str, int] = {}
    refused = 0
    seed = FIRST_SEED
    while sum(total.values()) < wanted:
        print(f"\rseed {seed}, {sum(total.values())} kernels", end="", flush=True)
        schedule = check_random(seed, every=True)
        refused += schedule.refused
        for name, count in schedule.drawn.items():
            total[name] = total.get(name, 0) + count
        seed += 1
    shown = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    print(f"\r{sum(total.values())} kernels of {seed - FIRST_SEED} graphs agree: {shown}")
    print(f"{refused} candidates were refused when they were lowered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
