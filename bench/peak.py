"""What this machine can do at most: multiply-adds per second, and memory bandwidth.

    python bench/peak.py [--threads 1 2] [--megabytes 64]

The code comes from whet's own code generator and runs on whet's own thread pool: twelve
independent chains of vector multiply-adds, and loops that read, copy or add arrays.  `memcpy`
is the C library's.
"""

from __future__ import annotations

import argparse
from typing import Any

from harness.peers import Field, number as size
from harness.probes import BANDWIDTH_KINDS
from harness.report import Report, number, parser, rate, say, settings_of
from harness.turns import Measurement, settings_from, take_turns

FMA = "fma"


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__)
    made.add_argument("--megabytes", type=int, default=64, help="size of each array")
    return made


def row(name: str, threads: int, work: float, m: Measurement) -> dict[str, Any]:
    """Rates in units of 1e9 per second."""
    unit = "GFLOP/s" if name == FMA else "GB/s"
    return {"probe": name, "threads": threads, "unit": unit, "median": work / m.median / 1e9,
            "best": work / m.best / 1e9, "low": work / m.high / 1e9, "high": work / m.low / 1e9,
            "time": m}  # fmt: skip


def main() -> None:
    given = arguments().parse_args()
    probes = [(name, t) for t in given.threads for name in (FMA, *BANDWIDTH_KINDS)]
    report = Report("Peak of this machine", settings_of(given))
    entries = {f"{n} {t}t": (FMA if n == FMA else "bandwidth", t) for n, t in probes}
    with Field(entries) as field:
        loaded, work = {}, {}
        for name, t in probes:
            key = f"{name} {t}t"
            peer = field.load(key, name, size(given.megabytes << 20))
            if peer is not None:
                loaded[key], work[key] = peer, peer.work()
        say(f"timing {len(loaded)} probes")
        found = take_turns(loaded, settings_from(given), failed=field.note)
    shown = []
    for name, t in probes:
        key = f"{name} {t}t"
        if key not in found:
            continue
        r = row(name, t, work[key], found[key])
        report.rows.append(r)
        shown.append(
            [
                f"{name}, {r['unit']}",
                str(t),
                rate(found[key], lambda seconds, key=key: work[key] / seconds / 1e9),
                number(r["best"]),
                f"{number(r['low'])} to {number(r['high'])}",
            ]
        )
    report.add_table("Rates", ("probe", "threads", "median", "best turn", "quartiles"), shown)
    report.notes += [f"{name}: {why}" for name, why in field.missing.items()]
    report.finish(given.json)


if __name__ == "__main__":
    main()
