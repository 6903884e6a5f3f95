"""Two replays, kernel by kernel.

A kernel has changed in the first of its parts that differs: another task is another kernel, another
candidate explains another program, and so on.  Kernels that changed in the same way are shown once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from tools.kernel_replay.store import PARTS, Kernel, Replay


@dataclass(frozen=True)
class Change:
    """A text that became another one, and the kernels that this happened to."""

    part: str
    before: str
    after: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class Comparison:
    """What differs between two replays."""

    equal: int
    removed: tuple[Kernel, ...]
    added: tuple[Kernel, ...]
    changes: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.removed or self.added or self.changes)


def compare(before: Replay, after: Replay) -> Comparison:
    """Matches kernels by target, model and first call."""
    old = {kernel.place: kernel for kernel in before.read()}
    new = {kernel.place: kernel for kernel in after.read()}
    found: dict[tuple[str, str, str], list[Kernel]] = {}
    for place in old.keys() & new.keys():
        for part in PARTS:
            a, b = old[place].parts[part], new[place].parts[part]
            if a != b:
                found.setdefault((part, a, b), []).append(new[place])
                break
    changed = sum(map(len, found.values()))
    changes = [Change(*key, tuple(sorted(k, key=_place))) for key, k in found.items()]
    return Comparison(
        len(old.keys() & new.keys()) - changed,
        tuple(k for place, k in old.items() if place not in new),
        tuple(k for place, k in new.items() if place not in old),
        tuple(sorted(changes, key=lambda c: (PARTS.index(c.part), _place(c.kernels[0])))),
    )


def _place(kernel: Kernel) -> tuple[str, str, str]:
    return kernel.place


def described(
    found: Comparison, before: Replay, after: Replay, lines: int, most: int
) -> Iterator[str]:
    """The comparison as text, with at most so many changes and so many lines of each."""
    for title, kernels in (("gone", found.removed), ("new", found.added)):
        for kernel in kernels:
            yield f"{title}: {' '.join(kernel.place)}"
    for change in found.changes[:most]:
        places = [" ".join(kernel.place) for kernel in change.kernels]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"\n== another {change.part}: {places[0]}{more}"
        texts = (before.text(change.before), after.text(change.after))
        shown = list(difflib.unified_diff(*(t.splitlines() for t in texts), lineterm="", n=2))[2:]
        yield from shown[:lines]
        if len(shown) > lines:
            yield f"... {len(shown) - lines} more lines"
    if len(found.changes) > most:
        yield f"\n{len(found.changes) - most} more changes"
    counts = {part: sum(len(c.kernels) for c in found.changes if c.part == part) for part in PARTS}
    changed = ", ".join(f"{n} with another {part}" for part, n in counts.items() if n)
    yield f"\n{found.equal} kernels equal; changed: {changed or 'none'}; " \
          f"{len(found.removed)} gone, {len(found.added)} new"  # fmt: skip
