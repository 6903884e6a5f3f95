"""Charts as SVG: bars with intervals, lines, heat maps.

Every picture has a title, labelled axes, a legend where there are several series, and notes at its
foot: the machine, the date, and what is to be known about the figures.
"""

from __future__ import annotations

import math
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass

COLOURS = ("#4e79a7", "#e08a2e", "#59a14f", "#b6527f", "#8a6fb0", "#937860")
"""Distinct in print too."""
HEAT = ((243, 243, 243), (31, 78, 121))
WIDTH, HEIGHT = 900, 420
"""Pixels of the plot with its axes; title and notes come on top."""
LEFT, RIGHT, TOP, BOTTOM = 80, 20, 76, 60
LINE = 17
"""Pixels from one line of text to the next."""
NOTE_COLUMNS = 128


@dataclass(frozen=True)
class Frame:
    """The text around a chart."""

    title: str
    x: str
    y: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bars:
    """One series of a bar chart: a value per category, None where there is none."""

    name: str
    values: Sequence[float | None]
    intervals: Sequence[tuple[float, float] | None] = ()


@dataclass(frozen=True)
class Line:
    """One series of a line chart; with `steps`, a value lasts until the next point."""

    name: str
    points: Sequence[tuple[float, float]]
    steps: bool = False


def bar_chart(frame: Frame, categories: Sequence[str], series: Sequence[Bars]) -> str:
    """Groups of bars, one per category, with values on top and 95 % intervals as whiskers."""
    ends = [v for s in series for v in s.values if v is not None and math.isfinite(v)]
    ends += [high for s in series for pair in s.intervals if pair is not None for high in pair[1:]]
    canvas = _Canvas(frame, WIDTH, HEIGHT + 2 * LINE)
    up = _Axis(0.0, max(ends, default=1.0) * 1.12, HEIGHT - BOTTOM, TOP)
    canvas.y_axis(up)
    group = (WIDTH - LEFT - RIGHT) / max(len(categories), 1)
    wide = 0.8 * group / max(len(series), 1)
    for n, category in enumerate(categories):
        start = LEFT + n * group + 0.1 * group
        wrapped = textwrap.wrap(category, max(5, int(group / 7)))
        for k, text in enumerate(wrapped):
            canvas.text(start + 0.4 * group, HEIGHT - BOTTOM + LINE * (k + 1), text, "middle")
        for m, s in enumerate(series):
            value, x = s.values[n], start + m * wide
            if value is None or not math.isfinite(value):
                canvas.text(x + wide / 2, up.at(0.0) - 4, "none", "middle", 10)
                continue
            top = up.at(value)
            canvas.box(x, top, wide * 0.94, up.at(0.0) - top, COLOURS[m % len(COLOURS)])
            interval = s.intervals[n] if s.intervals else None
            highest = top
            if interval is not None:
                middle, highest = x + wide * 0.47, up.at(interval[1])
                canvas.path([(middle, up.at(interval[0])), (middle, highest)], "#222222", 1.5)
            canvas.text(x + wide * 0.47, highest - 4, short(value), "middle", 10)
    canvas.legend([s.name for s in series])
    return canvas.finish()


def line_chart(frame: Frame, lines: Sequence[Line], from_zero: bool = False) -> str:
    """Lines over numbers."""
    xs = [x for line in lines for x, _ in line.points] or [0.0, 1.0]
    ys = [y for line in lines for _, y in line.points] or [0.0, 1.0]
    low, high = (0.0 if from_zero else min(ys)), max(ys)
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    canvas = _Canvas(frame, WIDTH, HEIGHT)
    up = _Axis(low if from_zero else low - room, high + room, HEIGHT - BOTTOM, TOP)
    along = _Axis(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, LEFT, WIDTH - RIGHT)
    canvas.y_axis(up)
    canvas.x_axis(along)
    for n, line in enumerate(lines):
        points = [(along.at(x), up.at(y)) for x, y in line.points]
        drawn = points[:1]
        for x, y in points[1:]:
            drawn += [(x, drawn[-1][1]), (x, y)] if line.steps else [(x, y)]
        # Lines that lie on each other stay visible: the later ones are thinner.
        thickness = 1.5 + 5.5 * (len(lines) - 1 - n) / max(len(lines) - 1, 1)
        canvas.path(drawn, COLOURS[n % len(COLOURS)], thickness)
    canvas.legend([line.name for line in lines])
    return canvas.finish()


def heat_map(
    frame: Frame,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    heat: Sequence[Sequence[float]],
) -> str:
    """A table whose cells are the darker the larger their number in `heat` (0 to 1)."""
    left = 24 + 7 * max((len(r) for r in rows), default=0)
    wide, high = max(64, (WIDTH - left - RIGHT) / max(len(columns), 1)), 24
    bottom = TOP + high * len(rows) + BOTTOM
    canvas = _Canvas(frame, max(WIDTH, int(left + wide * len(columns) + RIGHT)), bottom)
    for n, column in enumerate(columns):
        canvas.text(left + wide * (n + 0.5), bottom - BOTTOM + LINE, column, "middle", 11)
    for m, row in enumerate(rows):
        y = TOP + high * m
        canvas.text(left - 8, y + 16, row, "end", 11)
        for n in range(len(columns)):
            share = min(1.0, max(0.0, heat[m][n]))
            mixed = (round(a + (b - a) * share) for a, b in zip(*HEAT))
            canvas.box(left + wide * n, y, wide - 1, high - 1, "#{:02x}{:02x}{:02x}".format(*mixed))
            ink = "#ffffff" if share > 0.5 else "#222222"
            canvas.text(left + wide * (n + 0.5), y + 16, cells[m][n], "middle", 11, ink)
    canvas.text((left + canvas.width - RIGHT) / 2, bottom - 16, frame.x, "middle")
    canvas.text(8, TOP - 8, frame.y)
    return canvas.finish()


def short(value: float) -> str:
    """A number with three digits."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from low to high: steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class _Axis:
    """Numbers and the pixels that they stand at."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


class _Canvas:
    """A picture under construction."""

    def __init__(self, frame: Frame, width: int, height: int) -> None:
        self.frame, self.width, self.height = frame, width, height
        notes = [line for note in frame.notes for line in textwrap.wrap(note, NOTE_COLUMNS)]
        whole = height + LINE * (len(notes) + 1)
        self.root = ET.Element(
            "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {whole}",
            width=str(width), height=str(whole), role="img",
        )  # fmt: skip
        self.root.set("font-family", "Helvetica, Arial, sans-serif")
        ET.SubElement(self.root, "title").text = frame.title
        self.box(0, 0, width, whole, "#ffffff")
        self.text(width / 2, 26, frame.title, "middle", 16)
        for n, note in enumerate(notes):
            self.text(12, height + LINE * (n + 1), note, size=11, ink="#555555")

    def finish(self) -> str:
        ET.indent(self.root)
        return ET.tostring(self.root, encoding="unicode") + "\n"

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        ET.SubElement(
            self.root, "rect", x=_px(x), y=_px(y), width=_px(width), height=_px(height), fill=colour
        )

    def path(self, points: Sequence[tuple[float, float]], colour: str, thick: float = 1.0) -> None:
        if not points:
            return
        way = "M" + " L".join(f"{_px(x)} {_px(y)}" for x, y in points)
        made = ET.SubElement(self.root, "path", d=way, stroke=colour, fill="none")
        made.set("stroke-width", _px(thick))

    def text(
        self, x: float, y: float, text: str, anchor: str = "start", size: int = 12,
        ink: str = "#222222",
    ) -> ET.Element:  # fmt: skip
        made = ET.SubElement(self.root, "text", x=_px(x), y=_px(y), fill=ink)
        made.set("text-anchor", anchor)
        made.set("font-size", str(size))
        made.text = text
        return made

    def y_axis(self, axis: _Axis) -> None:
        for tick in ticks(axis.low, axis.high):
            y = axis.at(tick)
            self.path([(LEFT, y), (self.width - RIGHT, y)], "#dddddd")
            self.text(LEFT - 8, y + 4, short(tick), "end", 11)
        self.path([(LEFT, axis.start), (self.width - RIGHT, axis.start)], "#222222")
        middle = (axis.start + axis.end) / 2
        label = self.text(20, middle, self.frame.y, "middle")
        label.set("transform", f"rotate(-90 20 {_px(middle)})")
        centre = (LEFT + self.width - RIGHT) / 2
        self.text(centre, self.height - 8, self.frame.x, "middle")

    def x_axis(self, axis: _Axis) -> None:
        for tick in ticks(axis.low, axis.high):
            self.text(axis.at(tick), self.height - BOTTOM + LINE, short(tick), "middle", 11)

    def legend(self, names: Sequence[str]) -> None:
        x = float(LEFT)
        for n, name in enumerate(names):
            self.box(x, 42, 12, 12, COLOURS[n % len(COLOURS)])
            self.text(x + 17, 52, name, size=12)
            x += 17 + 7 * len(name) + 22


def _px(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
