"""The machine that code is made for, as everything sees it that is not about one kind of machine.

`whet.core.cpu` describes CPUs and `whet.core.gpu` GPUs; `whet.build.backend` knows what else there
is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from whet.core.errors import fail


class Target(Protocol):
    """A machine: what it is, and what was measured on it."""

    kind: ClassVar[str]
    """The kind of machine, by which sketches and code generators are found."""

    @property
    def name(self) -> str:
        """The name in reports."""

    @property
    def key(self) -> str:
        """A digest of what the machine is, without what was measured on it."""

    def constant(self, name: str) -> float:
        """A figure that machines of this kind are measured for, by name."""

    def roofline(self, operations: float, nbytes: int, threads: int) -> float:
        """The least seconds for so many operations, two in a multiply-add, and bytes moved."""

    def to_json(self) -> str:
        """The description, with what was measured; `kind` is a field of it unless it is a CPU."""


Reader = Callable[[Mapping[str, Any]], Target]
"""Makes a target of the fields of its description; `WH1003` if they are not those of one."""

READERS: dict[str, Reader] = {}
"""By kind, beside those of CPUs and GPUs."""


def target_from_json(text: str | bytes) -> Target:
    """The target of any kind that `to_json` wrote; `WH1003` if the text is something else."""
    fields = target_fields(text)
    kind = fields.get("kind", "cpu")
    # What describes machines does so by what this module says.
    if kind == "cpu":
        from whet.core.cpu import cpu_from_fields

        return cpu_from_fields(fields)
    if kind == "cuda":
        from whet.core.gpu import gpu_from_fields

        return gpu_from_fields(fields)
    if kind not in READERS:
        fail("WH1009", f"nothing describes targets of the kind '{kind}'",
             hint="import the module that adds them")  # fmt: skip
    return READERS[kind](fields)


def target_fields(text: str | bytes) -> dict[str, Any]:
    """The fields of a description; `WH1003` if it is none."""
    try:
        data = json.loads(text)
    except ValueError:
        fail("WH1003", "the description of a target is not JSON")
    if not isinstance(data, dict):
        fail("WH1003", "the description of a target is not a JSON object")
    return data
