"""Fair timing on a machine that is never quite quiet.

Every contestant has a process of its own, which is stopped while it is not its turn.  They take
turns in an order that rotates, so that noise hits all of them alike, and while a turn runs, the
processor time that everybody else uses is read from /proc/stat: a turn that lost too much of a
core to others does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from whet.core.errors import WhetError

PAUSE_SECONDS = 0.005
"""Between turns, until the process of the previous contestant has stopped."""
ENOUGH_CLEAN = 3
"""With this many clean turns the disturbed ones are dropped."""


class Contestant(Protocol):
    """What can take a turn."""

    def time(self, seconds: float) -> list[float]:
        """Seconds of each call during a turn of about the given length."""

    def cpu_seconds(self) -> float:
        """Processor time that it has used so far."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The calls of one turn."""

    seconds: tuple[float, ...]
    foreign: float
    """Processor time that others used meanwhile, as a share of one core."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long to time."""

    rounds: int = 10
    turn: float = 0.2
    """Seconds of a turn; /proc/stat counts hundredths, so short turns cannot be judged."""
    foreign: float = 0.15
    """A turn during which others used more of a core than this is disturbed."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds per call over the turns that count."""

    median: float
    low: float
    high: float
    """Quartiles."""
    best: float
    """The median of the fastest turn."""
    calls: int
    turns: int
    clean_turns: int

    @property
    def disturbed(self) -> bool:
        """True if there were not enough clean turns, and others had to count too."""
        return self.clean_turns < min(ENOUGH_CLEAN, self.turns)

    def per(self, copies: int) -> Measurement:
        """The same for one of several equal pieces of work that each call did."""
        m = self
        return Measurement(m.median / copies, m.low / copies, m.high / copies, m.best / copies,
                           m.calls, m.turns, m.clean_turns)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `settings_from` reads."""
    default = Settings()
    parser.add_argument("--rounds", type=int, default=default.rounds, help="turns of everybody")
    parser.add_argument("--turn", type=float, default=default.turn, help="seconds of a turn")
    parser.add_argument(
        "--foreign",
        type=float,
        default=default.foreign,
        help="share of a core that others may use during a turn that counts",
    )


def settings_from(arguments: argparse.Namespace) -> Settings:
    return Settings(arguments.rounds, arguments.turn, arguments.foreign)


def take_turns(
    contestants: Mapping[str, Contestant],
    settings: Settings,
    busy_seconds: Callable[[], float] | None = None,
    failed: Callable[[str, WhetError], None] = lambda name, error: None,
) -> dict[str, Measurement]:
    """The time per call of each contestant; who fails is left out.

    Contestants whose turns were disturbed get up to as many rounds again.
    """
    busy_seconds = busy_seconds or machine_busy_seconds
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    for n in range(2 * settings.rounds):
        waiting = [
            name
            for name, taken in turns.items()
            if n < settings.rounds or _clean(taken, settings) < min(ENOUGH_CLEAN, settings.rounds)
        ]
        if not waiting:
            break
        shift = n % len(waiting)
        for name in waiting[shift:] + waiting[:shift]:
            time.sleep(PAUSE_SECONDS)
            try:
                turns[name].append(_turn(contestants[name], settings, busy_seconds))
            except WhetError as error:
                failed(name, error)
                del turns[name]
    return {name: summarize(taken, settings) for name, taken in turns.items()}


def _turn(who: Contestant, settings: Settings, busy_seconds: Callable[[], float]) -> Turn:
    busy, own, start = busy_seconds(), who.cpu_seconds(), time.perf_counter()
    calls = who.time(settings.turn)
    elapsed = time.perf_counter() - start
    others = (busy_seconds() - busy) - (who.cpu_seconds() - own)
    return Turn(tuple(calls), max(0.0, others / elapsed))


def _clean(turns: Sequence[Turn], settings: Settings) -> int:
    return sum(t.foreign <= settings.foreign for t in turns)


def summarize(turns: Sequence[Turn], settings: Settings) -> Measurement:
    """Statistics over the clean turns, or over the cleaner half if there are too few of them."""
    clean = [t for t in turns if t.foreign <= settings.foreign]
    counted = clean
    if len(clean) < min(ENOUGH_CLEAN, len(turns)):
        cleanest = sorted(turns, key=lambda t: t.foreign)
        counted = cleanest[: max(1, len(turns) // 2)]
    calls = sorted(s for t in counted for s in t.seconds)
    return Measurement(
        median=statistics.median(calls),
        low=calls[len(calls) // 4],
        high=calls[len(calls) * 3 // 4],
        best=min(statistics.median(t.seconds) for t in counted),
        calls=len(calls),
        turns=len(turns),
        clean_turns=len(clean),
    )


_TICKS = os.sysconf("SC_CLK_TCK")


def machine_busy_seconds(stat: Path = Path("/proc/stat")) -> float:
    """Processor time that the whole machine has spent on anything (idling and I/O excluded)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, stat.read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS


def process_cpu_seconds(pid: int) -> float:
    """Processor time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
