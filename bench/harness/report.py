"""Tables, goals and files of results."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.measured_target import measured_target
from harness.turns import Measurement, add_arguments
from whet.core.version import VERSION

ABSENT = "-"
"""What a table shows where nothing was measured."""
DISTURBED = "~"
"""What marks figures from turns that others disturbed."""
_PACKAGES = ("numpy", "llvmlite", "onnxruntime", "openvino", "torch", "jax", "apache-tvm")


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure with the bound that it should keep; None if it was not measured."""

    what: str
    found: float | None
    bound: float
    at_least: bool = True
    disturbed: bool = False
    """True if the figure rests on turns that others disturbed, so that it proves nothing."""

    @property
    def met(self) -> bool | None:
        if self.found is None:
            return None
        return self.found >= self.bound if self.at_least else self.found <= self.bound

    def row(self) -> list[str]:
        sign = "≥" if self.at_least else "≤"
        verdict = {True: "met", False: "**missed**", None: "not measured"}[self.met]
        verdict += ", disturbed" if self.disturbed and self.met is not None else ""
        return [self.what, f"{sign} {self.bound:g}", number(self.found), verdict]


@dataclass
class Report:
    """Everything that a benchmark found; `rows` are for programs, `tables` for people."""

    name: str
    settings: dict[str, Any]
    tables: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if rows:
            self.tables.append(f"## {title}\n\n{table(header, rows)}")

    def text(self) -> str:
        """The report as markdown."""
        parts = [f"# {self.name}", describe_machine(), *self.tables]
        if self.goals:
            rows = [g.row() for g in self.goals]
            parts.append("## Goals\n\n" + table(("goal", "bound", "found", ""), rows))
        notes = list(self.notes)
        if any(DISTURBED in t for t in self.tables):
            notes.append(f"{DISTURBED} marks figures for which too few turns were quiet")
        if notes:
            parts.append("\n".join(f"- {note}" for note in notes))
        return "\n\n".join(parts) + "\n"

    def data(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "benchmark": self.name,
            "machine": machine(),
            "settings": self.settings,
            "rows": self.rows,
            "goals": [dataclasses.asdict(g) | {"met": g.met} for g in self.goals],
            "notes": self.notes,
        }

    def finish(self, json_path: Path | None) -> None:
        """Print the report; with a path, store it there as JSON and beside it as markdown."""
        text = self.text()
        if json_path is not None:
            json_path.parent.mkdir(parents=True, exist_ok=True)
            data = json.dumps(finite(self.data()), indent=1, default=measured)
            json_path.write_text(data + "\n")
            json_path.with_suffix(".md").write_text(text)
        print(text)


def parser(doc: str, default_threads: Sequence[int] = (1, 2)) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    first, _, rest = doc.partition("\n")
    made = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--threads", type=int, nargs="+", default=list(default_threads),
                      help="thread counts to measure")  # fmt: skip
    made.add_argument(
        "--json",
        type=Path,
        metavar="OUT",
        help="store the figures here, and the tables beside it (.md)",
    )
    add_arguments(made)
    return made


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as JSON; of paths the names alone, since folders differ between machines."""
    given = {k: v for k, v in vars(arguments).items() if k != "json"}
    return {k: v.name if isinstance(v, Path) else v for k, v in given.items()}


def measured(value: Any) -> Any:
    """A measurement as JSON, for `json.dumps(default=...)`."""
    if isinstance(value, Measurement):
        return dataclasses.asdict(value) | {"disturbed": value.disturbed}
    raise TypeError(type(value).__name__)


def finite(value: Any) -> Any:
    """The same data with None for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, (list, tuple)) else value


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; every column but the first is aligned to the right."""
    lines = [list(header), *map(list, rows)]
    if any(len(line) != len(header) for line in lines):
        raise ValueError("a row has more or fewer cells than the header")
    widths = [max(3, *(len(line[c]) for line in lines)) for c in range(len(header))]
    shown = [
        "| " + " | ".join(_aligned(cell, w, c) for c, (cell, w) in enumerate(zip(line, widths)))
        + " |"
        for line in lines
    ]  # fmt: skip
    rule = "|".join("-" * (w + 1) + ("-" if c == 0 else ":") for c, w in enumerate(widths))
    return "\n".join([shown[0], f"|{rule}|", *shown[1:]])


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def number(value: float | None, digits: int = 3) -> str:
    """A figure with so many digits, or the sign for what was not measured."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def milliseconds(m: Measurement | None) -> str:
    """The median."""
    return rate(m, lambda seconds: seconds * 1e3)


def any_disturbed(*measurements: Measurement | None) -> bool:
    return any(m is not None and m.disturbed for m in measurements)


def rate(m: Measurement | None, of: Callable[[float], float]) -> str:
    """A figure that follows from the median time."""
    if m is None:
        return ABSENT
    return (DISTURBED if m.disturbed else "") + number(of(m.median))


def count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def geometric_mean(values: Iterable[float]) -> float | None:
    """None if there are no values."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def fastest(found: dict[str, Measurement], names: Iterable[str]) -> str | None:
    """Which of the named ones has the smallest median; None if none was measured."""
    present = [n for n in names if n in found]
    return min(present, key=lambda n: found[n].median) if present else None


def machine() -> dict[str, Any]:
    """Where this was measured."""
    target = measured_target()
    return {
        "processor": target.name,
        "cores": target.cores,
        "vector_bits": target.vector_bits,
        "l1d_bytes": target.l1d_bytes,
        "l2_bytes": target.l2_bytes,
        "l3_bytes": target.l3_bytes,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "whet": VERSION,
        "packages": installed(),
        "load_average": os.getloadavg()[0],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def describe_machine() -> str:
    m = machine()
    packages = ", ".join(f"{name} {version}" for name, version in m["packages"].items())
    return (
        f"{measured_target()}, {m['memory_bytes'] / 2**30:.0f} GiB, {m['system']}, "
        f"Python {m['python']}, {packages}; {m['date']}, load {m['load_average']:.1f}."
    )


def installed() -> dict[str, str]:
    """Versions of the packages that matter; those that are absent are left out."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def say(text: str) -> None:
    """Progress, beside the report."""
    print(text, file=sys.stderr, flush=True)
