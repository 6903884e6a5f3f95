"""What a run has shown, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.graph_fuzz.targets import GPUS, NAMES
from tools.graph_fuzz.trial import FAILURES, Outcome

KINDS = ("ok", "refused", "invalid", *FAILURES)
SHOWN = 40
"""Reasons that are listed at most, the most frequent first."""


@dataclass
class Tally:
    """Outcomes by target, and reasons."""

    by_target: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in (*NAMES, *GPUS)}
    )
    refused_graphs: Counter[str] = field(default_factory=Counter)
    refused_nodes: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    peer: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    styles: Counter[str] = field(default_factory=Counter)
    excused: int = 0
    loose: float = 0.0
    nodes: int = 0

    def add(self, outcome: Outcome) -> None:
        self.by_target[outcome.target][outcome.kind] += 1
        if outcome.kind in ("refused", "invalid"):
            self.refused_graphs[outcome.detail] += 1
        self.refused_nodes.update(outcome.refusals)
        self.fallbacks.update(outcome.fallbacks)
        self.peer[_peer(outcome.peer)] += 1
        self.operators.update(outcome.operators)
        self.styles[outcome.style or "unknown"] += 1
        self.excused += outcome.excused
        self.loose += outcome.loose
        self.nodes += outcome.nodes

    @property
    def graphs(self) -> int:
        return sum(c.total() for c in self.by_target.values())

    def total(self, *kinds: str) -> int:
        return sum(c[k] for c in self.by_target.values() for k in kinds)

    def lines(self) -> list[str]:
        """The report as text."""
        graphs = max(self.graphs, 1)
        header = f"{'target':14s}{'graphs':>8s}" + "".join(f"{k:>9s}" for k in KINDS)
        rows = [_row(name, counts) for name, counts in self.by_target.items()]
        whole: Counter[str] = sum(self.by_target.values(), Counter())
        return [
            header, *rows, _row("all", whole), "",
            f"{self.nodes / graphs:.1f} nodes per graph, {len(self.operators)} operators",
            f"accepted after a closer look at rounding: {self.excused} graphs "
            f"({100 * self.excused / graphs:.2f} %)",
            f"elements of which the comparison says little: {100 * self.loose / graphs:.2f} %",
            *_listed("values", self.styles),
            *_listed("ONNX Runtime", self.peer),
            *_listed("graphs refused", self.refused_graphs),
            *_listed("nodes refused and left out", self.refused_nodes),
            *_listed("not native", self.fallbacks),
        ]  # fmt: skip


def _row(name: str, counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    return f"{name:14s}{total:8d}" + "".join(f"{counts.get(k, 0):9d}" for k in KINDS)


def _peer(answer: str) -> str:
    """The peer's answer in few words: its messages are long and of many kinds."""
    for word in ("NOT_IMPLEMENTED", "INVALID_GRAPH", "ValidateOpsetForDomain", "not a registered"):
        if word in answer:
            return f"cannot: {word}"
    known = answer in ("agrees", "differs", "", "not asked") or answer.startswith("the peer ended")
    return (answer or "not reached") if known else "cannot: other reasons"


def _listed(title: str, counts: Counter[str]) -> list[str]:
    if not counts:
        return ["", f"{title}: none"]
    shown = [f"{n:8d}  {reason}" for reason, n in counts.most_common(SHOWN)]
    rest = len(counts) - len(shown)
    return ["", f"{title}:", *shown, *([f"          and {rest} more kinds"] if rest > 0 else [])]
