"""The stage and its sliding window, which several sketches have in common."""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.expr import Axis
from whet.schedule.program.flat import FlatStage
from whet.tasks.task import Task
from whet.tasks.windows import Slide, Window


@dataclass(frozen=True, eq=False)
class Windowed:
    """A stage whose window slides across an image, and perhaps down it."""

    task: Task
    stage: FlatStage
    window: Window
    rows: Slide | None
    columns: Slide
    outer: tuple[Axis, ...]
    """Axes along which nothing slides and no lanes run."""

    @property
    def height(self) -> int:
        """Rows of the result."""
        return 1 if self.rows is None else self.rows.axis.extent

    @property
    def width(self) -> int:
        """Columns of the result."""
        return self.columns.axis.extent

    @property
    def image_height(self) -> int:
        return 1 if self.rows is None else self.window.read.tensor.shape[self.rows.dim]

    @property
    def image_width(self) -> int:
        return self.window.read.tensor.shape[self.columns.dim]
