"""Questions that are asked about a model, and the answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from whet.api.compare import Tolerance

Kind = Literal["fine", "unfit", "error", "wrong", "mispriced", "crash", "hang"]
"""`unfit`: the model or its inputs make no sense, as may happen to one that was cut."""


@dataclass(frozen=True)
class Question:
    """A problem to look for: a failure, or with a `factor` a kernel whose price is wrong."""

    tolerance: Tolerance = field(default_factory=Tolerance)
    factor: float | None = None
    threads: int = 1
    target: str | None = None
    numerics: str = "real"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Question:
        return Question(**{**fields, "tolerance": Tolerance(**fields["tolerance"])})


@dataclass(frozen=True)
class Finding:
    """The answer for one model.

    `sign` is what two findings of one problem have in common, such as an error's code; `seconds` is
    how much a price is off.
    """

    kind: Kind
    text: str
    sign: str = ""
    seconds: float = 0.0

    @property
    def is_problem(self) -> bool:
        return self.kind not in ("fine", "unfit")

    def is_like(self, other: Finding) -> bool:
        """Whether this is the problem that the other one is, and no small one beside it."""
        same = (self.kind, self.sign) == (other.kind, other.sign)
        return self.is_problem and same and self.seconds >= other.seconds / 2

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind
