"""A local Ray put through what every executor does; what happened is written to a file as JSON.

A process of its own, because a Ray ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

from whet.core.executor import Cancelled
from whet.core.ray_executor import RayCluster


def square(n: int) -> int:
    return n * n


def refuse(n: int) -> int:
    raise ValueError(f"no {n}")


def die(n: int) -> int:
    os._exit(7)


def raised(work: Callable[[], object]) -> str:
    try:
        return f"no error but {work()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(answer: Path) -> None:
    ray = RayCluster(workers=2)
    progress: list[tuple[int, int]] = []
    note = lambda done, total: progress.append((done, total))
    results = ray.map(square, range(5), progress=note)
    cancel, done = Event(), []

    def stop(count: int, total: int) -> None:
        done.append(count)
        cancel.set()

    try:
        ray.map(square, range(50), progress=stop, cancel=cancel)
        cancelled = False
    except Cancelled:
        cancelled = True
    found = {
        "results": results,
        "progress": progress,
        "nothing": ray.map(square, []),
        "refused": raised(lambda: ray.map(refuse, [3])),
        "died": raised(lambda: ray.map(die, [1])),
        "cancelled": cancelled,
        "before_cancelling": len(done),
        "afterwards": ray.map(square, [7]),
    }
    answer.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
