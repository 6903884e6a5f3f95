"""The thread pool, for the tests of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from tests.codegen.pool_jobs import JOBS, Job, load
from whet.codegen.llvm.compile import Library
from whet.core.types import Array
from whet.runtime.pool import ThreadPool


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[ThreadPool, Library]:
    return load(tmp_path_factory.mktemp("cache") / "whet")


@pytest.fixture
def pool(loaded: tuple[ThreadPool, Library]) -> Iterator[ThreadPool]:
    yield loaded[0]
    loaded[0].set_threads(1)


@pytest.fixture
def job(loaded: tuple[ThreadPool, Library]) -> Job:
    """Runs a job of `pool_jobs` on an array."""
    # Looked up beforehand: llvmlite has a lock that a forked child might find taken for ever.
    calls = {name: loaded[1].function(name, ctypes.c_void_p, ctypes.c_int64) for name in JOBS}

    def run(name: str, context: Array, n: int) -> None:
        calls[name](context.ctypes.data, n)

    return run
