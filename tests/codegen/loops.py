"""Loops in assembly text."""

from __future__ import annotations

import re

_LABEL = re.compile(r"(\.L\w+):")
_LAST_WORD = re.compile(r"(\.L\w+)$")


def innermost_loops(assembly: str) -> list[list[str]]:
    """The instructions of every stretch without labels that ends with a jump to its start."""
    loops: list[list[str]] = []
    label: str | None = None
    body: list[str] = []
    for line in map(str.strip, assembly.splitlines()):
        opened = _LABEL.match(line)
        if opened:
            label, body = opened[1], []
            continue
        if not line or line.startswith("."):
            continue
        body.append(" ".join(line.split()))
        target = _LAST_WORD.search(line)
        if target and target[1] == label:
            loops.append(body)
            label, body = None, []
    return loops


def busiest_loop(assembly: str, instruction: str) -> list[str]:
    """The innermost loop with the most instructions whose name starts so."""
    loops = innermost_loops(assembly)
    assert loops, "no loop found"
    return max(loops, key=lambda body: sum(line.startswith(instruction) for line in body))
