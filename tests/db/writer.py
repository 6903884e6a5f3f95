"""A process that adds records and says which are committed.

Arguments: database, name of the writer, number of transactions.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TextIO

from tests.db.samples import record
from whet.db.record import Workload
from whet.db.store import Database

PER_TRANSACTION = 3


def write_records(path: str, name: str, count: int, said: TextIO) -> None:
    workload = Workload(name, "class0", "y = x")
    with Database(path) as database:
        for number in range(count):
            database.add(
                replace(record(number, at=float(n)), workload=workload, holes={"n": number})
                for n in range(PER_TRANSACTION)
            )
            said.write(f"{number}\n")
            said.flush()


if __name__ == "__main__":
    write_records(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.stdout)
