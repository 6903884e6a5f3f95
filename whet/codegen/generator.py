"""Code generators as everything sees them that needs code: programs to source text to objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from whet.core.caching import FileCache
from whet.ir.program import Buffer, Program


@dataclass(frozen=True, slots=True)
class Source:
    """A loop program as source text, in which its name is that of the kernel."""

    text: str
    has_status: bool
    """Whether a status follows its parameters: what is not zero after an impossible index."""


class Generator(Protocol):
    """Makes code for one target."""

    @property
    def language(self) -> str:
        """What its sources are written in."""

    def source(self, program: Program, limits: Mapping[Buffer, int] | None = None) -> Source:
        """The source text of a program; `NoCodeError` for what the language cannot say.

        With `limits`, the elements behind parameters that are one long row, an access outside a
        buffer ends the process with a message.
        """

    def job(self, text: str) -> Mapping[str, str]:
        """What to tell another process that is to compile a source text."""

    def objects(self, texts: Sequence[str], cache: FileCache) -> list[bytes]:
        """Source texts compiled, taken from the cache where it has them."""

    def listing(self, text: str) -> str:
        """What a source text becomes, for looking at."""
