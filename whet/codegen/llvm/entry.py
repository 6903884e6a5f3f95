"""Routines of a segment: native code that calls kernels, for the segment and for each body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableCall:
    """A kernel and the position of its parameters in the table of addresses."""

    symbol: str
    start: int


@dataclass(frozen=True, slots=True)
class FlowCall:
    """A loop or branch, which finds its parameters itself."""

    name: str


def routine_ir(
    name: str,
    calls: Sequence[TableCall | FlowCall],
    forwarded: Sequence[tuple[int, int]],
    linkage: str = "",
) -> str:
    """`void @NAME(ptr table, ptr arrays)`.

    It copies the caller's arrays into the table, array number n to every position that is
    paired with n in `forwarded`, and then calls the kernels in order.
    """
    lines = []
    for number, (at, array) in enumerate(forwarded):
        lines += [
            f"  %from{number} = getelementptr ptr, ptr %arrays, i64 {array}",
            f"  %array{number} = load ptr, ptr %from{number}, align 8",
            f"  %to{number} = getelementptr ptr, ptr %table, i64 {at}",
            f"  store ptr %array{number}, ptr %to{number}, align 8",
        ]
    for number, call in enumerate(calls):
        if isinstance(call, FlowCall):
            lines.append(f"  call void @{call.name}(ptr %table)")
            continue
        lines += [
            f"  %t{number} = getelementptr ptr, ptr %table, i64 {call.start}",
            f"  call void @{call.symbol}(ptr %t{number})",
        ]
    head = f"define {linkage} void @{name}(ptr %table, ptr %arrays) nounwind {{"
    return "\n".join([head, *lines, "  ret void", "}", ""])


def declarations(symbols: Sequence[str]) -> str:
    """The kernels that routines call, each declared once."""
    return "\n".join(f"declare void @{s}(ptr)" for s in dict.fromkeys(symbols))
