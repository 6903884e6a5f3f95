"""The entry point of a segment: native code that calls all its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableCall:
    """A kernel and the position of its parameters in the table of addresses."""

    symbol: str
    start: int


def entry_ir(name: str, calls: Sequence[TableCall], forwarded: Sequence[tuple[int, int]]) -> str:
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
        lines += [
            f"  %t{number} = getelementptr ptr, ptr %table, i64 {call.start}",
            f"  call void @{call.symbol}(ptr %t{number})",
        ]
    declarations = [f"declare void @{s}(ptr)" for s in dict.fromkeys(c.symbol for c in calls)]
    return "\n".join([
        *declarations,
        f"define void @{name}(ptr %table, ptr %arrays) nounwind {{",
        *lines,
        "  ret void",
        "}",
        "",
    ])  # fmt: skip
