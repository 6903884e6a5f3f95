"""The machine that code is made for, as everything sees it that is not about one kind of machine.

`whet.core.cpu` describes CPUs; `whet.build.backends` knows what else there is.
"""

from __future__ import annotations

from typing import ClassVar, Protocol


class Target(Protocol):
    """A machine: what it is, and what was measured on it."""

    kind: ClassVar[str]
    """The kind of machine, by which sketches and code generators are found."""

    @property
    def name(self) -> str:
        """What to call it in reports."""

    @property
    def key(self) -> str:
        """A digest of what the machine is, without what was measured on it."""

    def constant(self, name: str) -> float:
        """What a machine of this kind is measured for, by name."""

    def to_json(self) -> str:
        """The description, with what was measured."""
