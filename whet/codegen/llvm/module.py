"""A module under construction: functions, and every declaration once."""

from __future__ import annotations

from whet.core.cpu import CpuTarget


class Module:
    """Collects text IR; a duplicate `declare` is a parse error, so names are kept unique.

    Without a target, what is written runs on all of them.
    """

    def __init__(self, target: CpuTarget | None = None) -> None:
        self.scales = target is not None and _scales(target)
        """Whether one instruction multiplies 16 lanes by powers of two, saturating at the ends."""
        self.converts_f16 = target is not None and _converts_f16(target)
        """Whether instructions convert between f16 and f32."""
        self.fuses = target is not None and _fuses(target)
        """Whether a product and a sum are rounded once."""
        self.truncates = target is not None and _is_x86(target)
        """Whether instructions make the smallest signed integer of floats that do not fit."""
        self.functions: list[str] = []
        self.texts: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.has_status = False
        """Whether the table of parameters ends with the address of a status."""

    def declare(self, name: str, result: str, *params: str) -> None:
        self.declarations[name] = f"declare {result} @{name}({', '.join(params)})"

    def string(self, value: str) -> str:
        """The name of a constant that holds the text for C functions."""
        if value not in self.texts:
            self.texts[value] = f"text.{len(self.texts)}"
        return self.texts[value]

    def text(self) -> str:
        defined = {f.split("@", 1)[1].split("(", 1)[0] for f in self.functions}
        wanted = [d for name, d in self.declarations.items() if name not in defined]
        return "\n".join([*wanted, *map(_constant, self.texts.items()), *self.functions, ""])


def _is_x86(target: CpuTarget) -> bool:
    return target.triple.startswith("x86_64")


def _scales(target: CpuTarget) -> bool:
    return _is_x86(target) and target.vector_bits >= 512


def _fuses(target: CpuTarget) -> bool:
    return not _is_x86(target) or "fma" in target.features


def _converts_f16(target: CpuTarget) -> bool:
    return "f16c" in target.features or target.triple.startswith("aarch64")


def _constant(item: tuple[str, str]) -> str:
    value, name = item
    data = value.encode() + b"\0"
    shown = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in data)
    return f'@{name} = private constant [{len(data)} x i8] c"{shown}"'
