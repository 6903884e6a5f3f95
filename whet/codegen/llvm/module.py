"""A module under construction: functions, and every declaration once."""

from __future__ import annotations


class Module:
    """Collects text IR; a duplicate `declare` is a parse error, so names are kept unique."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.declarations: dict[str, str] = {}

    def declare(self, name: str, result: str, *params: str) -> None:
        self.declarations[name] = f"declare {result} @{name}({', '.join(params)})"

    def text(self) -> str:
        defined = {f.split("@", 1)[1].split("(", 1)[0] for f in self.functions}
        wanted = [d for name, d in self.declarations.items() if name not in defined]
        return "\n".join([*wanted, *self.functions, ""])
