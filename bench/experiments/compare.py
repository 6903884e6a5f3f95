"""Variants of a graph: predicted, measured in turns, drawn, and judged.

The first variant is built twice: by what the two builds differ, whose weights and buffers lie
elsewhere, others may differ too without being better or worse.  A variant *pays* if the interval
of its gain over the first lies above 1 by more than that, and does *not pay* if it lies below 1 by
more.  Variants with the same code are built and run once (calls in a row would find their weights
in the caches), have the same figures, and the tables say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.setting import Setting
from harness.pairs import (
    Interval,
    Turns,
    built,
    built_with,
    in_turns,
    largest_difference,
    price_of,
    random_inputs,
)
from harness.pictures import Bars, Frame, bar_chart
from harness.report import ABSENT, DISTURBED, Goal, Report, count, number, say
from harness.tuning import native_engine
from whet.build.backend import backend_of
from whet.build.keys import build_key
from whet.graph.graph import Graph
from whet.graph.passes.expand_composites import expand_composites
from whet.joint.pricing import plan_whole
from whet.runtime.executable import Executable
from whet.tasks.layout import ChooseLayouts, choose_layouts
from whet.tasks.plan import plan_graph
from whet.tasks.steps import ControlStep

TOLERANCE = 1e-3
"""Variants whose results differ by more, relative to the largest, do not compute the same."""
NOISE = 0.01
"""The least difference that counts, even where two builds happen to be equally fast."""
SLOW = 1e-3
"""Seconds from which on times are shown in milliseconds."""


@dataclass(frozen=True)
class Variant:
    """One way to compute what the others compute."""

    name: str
    graph: Graph
    layouts: ChooseLayouts = choose_layouts


@dataclass(frozen=True)
class Outcome:
    """The times of all variants; `predicted` is None where a graph has no price."""

    names: tuple[str, ...]
    predicted: tuple[float | None, ...]
    turns: Turns
    """Calls of every different code, and of the first one's second build at the end."""
    slots: tuple[int, ...]
    """For each variant, where its code is among the turns."""
    differences: tuple[float, ...]

    def median(self, n: int) -> Interval:
        return self.turns.median(self.slots[n])

    def ratio(self, before: int, after: int) -> Interval:
        return self.turns.ratio(self.slots[before], self.slots[after])

    def gain(self, n: int) -> Interval:
        return self.ratio(0, n)

    @property
    def between_builds(self) -> float:
        """The share by which two builds of the first variant differ, at most."""
        again = self.turns.ratio(0, len(self.turns.seconds) - 1)
        return max(abs(again.low - 1), abs(again.high - 1))

    @property
    def noise(self) -> float:
        """The least share that counts as a difference here."""
        return max(NOISE, self.between_builds)

    def verdict(self, n: int) -> str:
        gain = self.gain(n)
        if n == 0:
            return ABSENT
        first = self.slots.index(self.slots[n])
        if first != n:
            return f"same code as '{self.names[first]}'"
        if gain.low > 1 + self.noise:
            return "pays"
        return "does not pay" if gain.high < 1 - self.noise else "no difference"


def compare(variants: Sequence[Variant], setting: Setting) -> Outcome:
    """All variants compiled and called in turns.

    Raises: `SystemExit` if one of them computes something else.
    """
    threads = setting.threads
    codes = [code_of(v, threads) for v in variants]
    different = list(dict.fromkeys(codes))
    slots = tuple(different.index(code) for code in codes)
    runs = []
    for code in different:
        v = variants[codes.index(code)]
        say(f"compiling '{v.name}'")
        runs.append(compiled(v, threads))
    runs.append(compiled(variants[0], threads))
    inputs = random_inputs(variants[0].graph)
    results = [run(inputs) for run in runs]
    differences = tuple(largest_difference(results[0], results[slot]) for slot in slots)
    for v, off in zip(variants, differences):
        if not off <= TOLERANCE:
            raise SystemExit(f"'{v.name}' is off by {off:.1e}")
    predicted = tuple(predicted_seconds(v, threads) for v in variants)
    names = tuple(v.name for v in variants)
    turns = in_turns(runs, inputs, setting.measure)
    return Outcome(names, predicted, turns, slots, differences)


def compiled(v: Variant, threads: int) -> Executable:
    if v.layouts is choose_layouts:
        return built(v.graph, threads)
    return built_with(v.graph, threads, v.layouts)


def code_of(v: Variant, threads: int) -> tuple[object, ...]:
    """Equal for variants that are compiled to the same kernels of the same graph."""
    target = native_engine().target
    price, holds = price_of(v.graph, threads), backend_of(target).holds
    plans = plan_graph(expand_composites(v.graph), price, holds, v.layouts).plans.values()
    steps = [step for plan in plans for step in plan.steps]
    kernels = [v.layouts if isinstance(s, ControlStep) else s.key for s in steps]
    return (build_key(v.graph, target), *kernels)


def predicted_seconds(v: Variant, threads: int) -> float | None:
    holds = backend_of(native_engine().target).holds
    found = plan_whole(v.graph, price_of(v.graph, threads), holds, v.layouts)
    return None if found is None else found.seconds


def show(
    report: Report, setting: Setting, part: str, title: str, x: str, variants: Sequence[Variant],
    notes: Sequence[str] = (),
) -> Outcome:  # fmt: skip
    """Compares variants, with a table, rows of data and a picture of the name `part`."""
    found = compare(variants, setting)
    unit, factor = unit_of(found)
    mark = DISTURBED if found.turns.disturbed else ""
    rows = []
    for n, name in enumerate(found.names):
        expected, time, gain = found.predicted[n], found.median(n), found.gain(n)
        shown = time.times(factor)
        rows.append([
            name, number(None if expected is None else expected * factor),
            mark + number(shown.middle), f"{number(shown.low)} to {number(shown.high)}",
            f"{mark}{number(gain.middle)} ({number(gain.low)} to {number(gain.high)})",
            found.verdict(n), f"{found.differences[n]:.0e}",
        ])  # fmt: skip
        report.rows.append({
            "part": part, "threads": setting.threads, "variant": name, "predicted_s": expected,
            "median_s": time.middle, "low_s": time.low, "high_s": time.high, "gain": gain.middle,
            "gain_low": gain.low, "gain_high": gain.high, "verdict": found.verdict(n),
            "foreign": found.turns.foreign, "noise": found.noise,
        })  # fmt: skip
    header = ["variant", f"predicted {unit}", f"measured {unit}", "95 %", "gain (95 %)", "",
              "largest difference"]  # fmt: skip
    report.add_table(f"{title}, {count(setting.threads)}", header, rows)
    foot = (setting.where, *notes, *verdicts(found))
    frame = Frame(title, x, f"time of a call, {unit}", foot)
    setting.draw(part, drawn(found, frame, factor))
    return found


def drawn(found: Outcome, frame: Frame, factor: float) -> str:
    """Predicted and measured times, side by side."""
    times = [found.median(n).times(factor) for n in range(len(found.names))]
    expected = [None if p is None else p * factor for p in found.predicted]
    series = [
        Bars("predicted", expected),
        Bars("measured, median and 95 %", [t.middle for t in times],
             [(t.low, t.high) for t in times]),
    ]  # fmt: skip
    return bar_chart(frame, found.names, series)


def verdicts(found: Outcome) -> list[str]:
    """Lines on what pays and what does not, with measured times, for the foot of a picture."""
    unit, factor = unit_of(found)
    times = [number(found.median(n).middle * factor) for n in range(len(found.names))]
    lines = []
    chosen: dict[str, list[int]] = {}
    for n in range(1, len(found.names)):
        chosen.setdefault(found.verdict(n), []).append(n)
    for verdict, which in chosen.items():
        told = (f"'{found.names[n]}' ({times[n]} {unit})" for n in which)
        against = f"against {times[0]} {unit} of '{found.names[0]}'"
        lines.append(f"Measured, {verdict}: {', '.join(told)}, {against}.")
    lines.append(f"Differences of less than {found.noise:.1%} do not count; two builds of "
                 f"'{found.names[0]}' differ by {found.between_builds:.1%}.")  # fmt: skip
    if found.turns.disturbed:
        lines.append(f"Disturbed: others used {found.turns.foreign:.1f} cores meanwhile.")
    return lines


def unit_of(found: Outcome) -> tuple[str, float]:
    slowest = max(found.median(n).middle for n in range(len(found.names)))
    return ("ms", 1e3) if slowest >= SLOW else ("µs", 1e6)


def not_slower(what: str, found: Outcome, n: int, than: int) -> Goal:
    """The goal that a variant is not measurably slower than another: the interval of the gain over
    it reaches 1, but for the least difference that counts.  Where two builds of one variant differ
    by more than that, it proves nothing either way."""
    gain = found.ratio(than, n)
    return Goal(
        f"{what}: '{found.names[n]}' not measurably slower than '{found.names[than]}'",
        gain.high, 1.0 - NOISE, disturbed=found.turns.disturbed or found.noise > NOISE,
    )  # fmt: skip
