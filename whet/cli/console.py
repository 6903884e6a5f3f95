"""The user's view: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from whet.core.errors import WhetError


class Reporter:
    """Prints for one command.

    Results go to standard output, as a table or, with `as_json`, as one JSON document.  Notes
    and progress go to standard error, and not at all when `quiet`.  rich leaves out colours
    when NO_COLOR is set or the stream is no terminal.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.out = Console(soft_wrap=True, highlight=False)
        self.err = Console(stderr=True, soft_wrap=True, highlight=False, quiet=quiet)

    def note(self, message: str) -> None:
        """A message that a user should see but that stops nothing."""
        self.err.print(f"[yellow]note:[/] {escape(message)}")

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Shows that something takes its time."""
        with self.err.status(escape(what)):
            yield

    @contextlib.contextmanager
    def steps(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """A progress bar; the function that it gives marks one step as done."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.err, transient=True) as progress:
            task = progress.add_task(escape(what), total=total)
            yield lambda: progress.advance(task)

    @contextlib.contextmanager
    def stages(self) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
        """Progress bars one below the other.

        The function that it gives begins one, and returns what to call with the number of
        steps that are done and of all steps.
        """
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.err, transient=True) as progress:

            def begin(what: str) -> Callable[[int, int], None]:
                task = progress.add_task(escape(what), total=None)
                return lambda done, total: progress.update(task, completed=done, total=total)

            yield begin

    def result(self, document: dict[str, Any], show: Callable[[], None]) -> None:
        """The result of a command: as JSON, or as `show` prints it."""
        if self.as_json:
            sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")
        else:
            show()

    def text(self, text: str) -> None:
        """Plain text on standard output, without any interpretation."""
        self.out.print(text, markup=False)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[str] = ()
    ) -> None:
        """A table whose first column is text; others are numbers, unless they are named."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for n, name in enumerate(columns):
            left = n == 0 or name in text
            table.add_column(name, justify="left" if left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row))
        # On a narrow terminal lines run on: a cut-off number is worse than a broken line.
        needed = self.out.measure(table, options=self.out.options.update(max_width=1000)).maximum
        wide = Console(width=max(self.out.width, needed), soft_wrap=True, highlight=False)
        wide.print(table)


def print_error(error: WhetError) -> None:
    """The error as one block on standard error."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    lines = [f"[bold red]error[/] [bold]{error.code}[/] {escape(error.message)}"]
    lines += [f"  {escape(line)}" for line in error.details]
    if error.hint:
        lines.append(f"  [cyan]hint:[/] {escape(error.hint)}")
    console.print("\n".join(lines))


def finite(number: float) -> float | None:
    """The number as JSON can hold it: infinity and NaN become null."""
    return number if abs(number) < float("inf") else None
