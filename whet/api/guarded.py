"""Models that are compiled with `numerics="guarded"`: fast kernels, and exact ones in reserve."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from whet.api.programs import Note
from whet.core.types import Array
from whet.runtime.executable import Adopt, Executable, OutliersError

MESSAGE = (
    "a call with NaN, infinite or huge values is answered by exact kernels, which are compiled now"
)


class Guarded:
    """An executable whose calls with outliers are repeated with exact kernels.

    These are made when they are needed first.  Inputs are as they were, since native code writes
    only to arrays that lie apart from them.
    """

    def __init__(self, fast: Executable, make_exact: Callable[[], Executable], note: Note) -> None:
        self._fast, self._make_exact, self._note = fast, make_exact, note
        self._exact: Executable | None = None
        self._lock = threading.Lock()

    @property
    def engine(self) -> str:
        return self._fast.engine

    @property
    def adopt(self) -> Adopt | None:
        return self._fast.adopt

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        try:
            return self._fast(inputs, out)
        except OutliersError:
            return self._reserve()(inputs, out)

    def _reserve(self) -> Executable:
        with self._lock:
            if self._exact is None:
                self._note(MESSAGE)
                self._exact = self._make_exact()
            return self._exact

    def describe(self) -> list[str]:
        used = "in use" if self._exact is not None else "not needed so far"
        return [*self._fast.describe(), f"guarded: exact kernels for calls with outliers, {used}"]
