"""Test every law on many shapes and write the record that the prover reads.

Usage: python tools/axioms.py [--shapes N] [--new | --check]

With `--new` only laws are tested that the record does not have; what it says of others stays.
With `--check` nothing is written: the exit status says whether the record is current.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import whet.superopt.verify
from whet.core.executor import LocalProcesses
from whet.superopt.verify.axioms import (
    RECORD,
    Examined,
    axioms_of,
    digest,
    examine,
    laws,
    recorded,
    usable,
    write_record,
)
from whet.superopt.verify.lemmas import LEMMAS

EVERY = {**laws(), **LEMMAS}
FOLDER = Path(whet.superopt.verify.__file__).parent


def examine_named(task: tuple[str, int]) -> Examined:
    """For an executor: the law of this name."""
    name, shapes = task
    return examine(name, EVERY[name], shapes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=16, help="shapes per law and ranks")
    parser.add_argument("--new", action="store_true", help="only what the record lacks")
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    names = [name for name, law in EVERY.items() if usable(law)]
    known = [n for n in names if arguments.new and digest(EVERY[n]) in recorded()]
    results = {n: Examined(EVERY[n], axioms_of(n, EVERY[n])) for n in known}
    tasks = [(name, arguments.shapes) for name in names if name not in results]
    results |= dict(zip((n for n, _ in tasks), LocalProcesses().map(examine_named, tasks)))
    for name, result in results.items():
        if result.counterexample is not None:
            print(f"ALARM {name}: {EVERY[name].text}\n  {result.counterexample}")
    text = write_record(results)
    held = sum(bool(r.axioms) for r in results.values())
    instances = sum(len(r.axioms) for r in results.values())
    print(
        f"{len(laws())} laws, {len(names)} about all tensors, {held} hold, {instances} with ranks"
    )
    path = FOLDER / RECORD
    if arguments.check:
        return 0 if path.read_text() == text else 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
