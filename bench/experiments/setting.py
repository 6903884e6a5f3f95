"""The settings of experiments, and the networks that they run on."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from harness.report import count, machine, say
from whet.frontend.onnx import import_model
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from zoo.networks import BUILDERS
from zoo.reduced import REDUCED


@dataclass(frozen=True)
class Setting:
    """How long to search and to measure, on what, and where pictures go."""

    threads: int
    seconds: float
    """Of one search."""
    measure: float
    """Seconds of calls of one comparison."""
    states: int
    """Graphs that are priced in the search of one block."""
    only: tuple[str, ...]
    reduced: bool
    pictures: Path | None
    several: bool
    """Whether other numbers of threads are asked for too, so that names must tell them apart."""

    def networks(self, wanted: Sequence[str]) -> dict[str, Graph]:
        """The networks of an experiment, or those of them that were asked for."""
        builders = REDUCED if self.reduced else BUILDERS
        return {name: imported(builders[name]) for name in self.only or wanted}

    def draw(self, name: str, picture: str) -> None:
        if self.pictures is not None:
            self.pictures.mkdir(parents=True, exist_ok=True)
            which = f"_{count(self.threads).replace(' ', '_')}" if self.several else ""
            path = self.pictures / f"{name}{which}.svg"
            path.write_text(picture)
            say(f"drew {path.name}")

    @property
    def where(self) -> str:
        """The machine and the date, for the foot of a picture."""
        m = machine()
        small = "; networks in small, for tests" if self.reduced else ""
        return (
            f"{m['processor']}, {m['cores']} cores, {count(self.threads)}; whet {m['whet']}, "
            f"{m['date']}{small}"
        )


def settings_from(given: argparse.Namespace, threads: int) -> Setting:
    return Setting(
        threads, given.seconds, given.measure, given.states, tuple(given.only or ()),
        given.reduced, given.pictures, len(given.threads) > 1,
    )  # fmt: skip


def imported(build: Callable[[], onnx.ModelProto]) -> Graph:
    """The model as it is compiled."""
    return optimize(import_model(build()).graph)
