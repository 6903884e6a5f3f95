"""Memory that is needed, compared with what there is before anybody waits for it."""

from __future__ import annotations

from whet.core.containers import usable_memory
from whet.core.errors import check


def require_memory(nbytes: int, what: str) -> None:
    """`WH1005` if so many bytes can never be had here."""
    there = usable_memory()
    check(nbytes <= there, "WH1005", f"{what} take {_shown(nbytes)}, and this process can have "
          f"{_shown(there)}", hint="smaller inputs, or a machine with more memory")  # fmt: skip


def _shown(nbytes: int) -> str:
    return f"{nbytes / 1e9:.3g} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.3g} MB"
