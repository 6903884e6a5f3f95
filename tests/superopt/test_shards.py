"""Shards, executors, folders and interruptions change nothing of what is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from whet.core.executor import LocalProcesses, Progress, Serial
from whet.superopt.generate.pools import MATRICES
from whet.superopt.prune.search import Generation, generate
from whet.superopt.prune.terms import Lexicon

SMALL = 1 << 19
"""So little memory that there are several shards."""


def whole() -> Generation:
    return generate(MATRICES, 3, Lexicon())


def test_shards_find_the_same(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = generate(
        MATRICES, 3, Lexicon(), memory=SMALL, folder=tmp_path,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert found == whole()
    assert len(seen) > 1
    assert seen[-1][0] == seen[-1][1]


def test_worker_processes_find_the_same(tmp_path: Path) -> None:
    assert generate(MATRICES, 3, Lexicon(), memory=SMALL, executor=LocalProcesses(2)) == whole()


class Interrupted(Exception):  # noqa: N818 - stands for Ctrl-C
    pass


class OneShard:
    """Runs one item, then is interrupted."""

    def map(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        progress: Progress | None = None,
        cancel: Event | None = None,
    ) -> list[Any]:
        function(items[0])
        raise Interrupted


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        generate(MATRICES, 3, Lexicon(), memory=SMALL, folder=tmp_path, executor=OneShard())
    (done,) = tmp_path.glob("*/shard-*.npz")
    written = done.stat().st_mtime_ns
    found = generate(MATRICES, 3, Lexicon(), memory=SMALL, folder=tmp_path, executor=Serial())
    assert found == whole()
    assert done.stat().st_mtime_ns == written
    assert len(list(tmp_path.glob("*/shard-*.npz"))) > 1
