"""The text of a kernel under construction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from whet.codegen.cuda.intrinsics import INTRINSICS
from whet.codegen.cuda.support import require_code
from whet.core.gpu import GpuTarget


class Lines:
    """Lines with their indentation, the functions that they call, and names that are free."""

    def __init__(self, target: GpuTarget) -> None:
        self.target = target
        self.lines: list[str] = []
        self.depth = 1
        self.called: dict[str, None] = {}
        self.has_status = False
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def name(self, wanted: str) -> str:
        """A name that nothing else has, and that shows what it stands for."""
        self._names += 1
        return f"{re.sub(r'[^A-Za-z0-9]', '_', wanted)}_{self._names}"

    def call(self, function: str) -> str:
        """The name of a function of `INTRINSICS`, which becomes part of the text."""
        found = INTRINSICS[function]
        require_code(self.target.generation >= found.generation, f"'{function}' on this GPU")
        for needed in found.needs:
            self.call(needed)
        self.called.setdefault(function)
        return f"whet_{function}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def apart(self) -> Iterator[list[str]]:
        """Lines within are kept back: what is yielded holds them afterwards."""
        kept, self.lines = self.lines, []
        found: list[str] = []
        yield found
        found += self.lines
        self.lines = kept

    def functions(self) -> str:
        return "\n".join(INTRINSICS[name].text for name in self.called)
