"""Modules from outside the package that workers must load before they begin.

What a worker gets may name classes of such a module, or need the operators that it registers,
so the module travels in front of every item and is loaded while the item is being unpacked.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any, TypeVar

from whet.core.errors import UsageError, check, fail
from whet.core.executor import Executor, Progress

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class OutsideModule:
    """A module by name, or a Python file; loaded wherever it arrives."""

    source: str

    def load(self) -> ModuleType:
        if not self.source.endswith(".py"):
            try:
                return importlib.import_module(self.source)
            except ModuleNotFoundError as error:
                fail("WH3007", f"there is no module '{self.source}': {error}", kind=UsageError)
        path = Path(self.source).resolve()
        check(path.is_file(), "WH3007", f"there is no file '{self.source}'", kind=UsageError)
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        module = importlib.import_module(path.stem)
        check(Path(module.__file__ or "").resolve() == path, "WH3007",
              f"'{self.source}' has the name of another module, {path.stem}",
              hint="rename the file", kind=UsageError)  # fmt: skip
        return module

    def __reduce__(self) -> tuple[Callable[[str], OutsideModule], tuple[str]]:
        return _arrived, (self.source,)


def _arrived(source: str) -> OutsideModule:
    module = OutsideModule(source)
    module.load()
    return module


@dataclass(frozen=True, slots=True)
class WithModules:
    """Another executor whose workers load modules first."""

    inner: Executor
    modules: tuple[OutsideModule, ...]

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        *,
        progress: Progress | None = None,
        cancel: Event | None = None,
    ) -> list[R]:
        loaded = [(self.modules, function, item) for item in items]
        return self.inner.map(_call, loaded, progress=progress, cancel=cancel)


def _call(task: tuple[tuple[OutsideModule, ...], Callable[[Any], Any], Any]) -> Any:
    _, function, item = task
    return function(item)
