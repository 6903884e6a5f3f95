"""The whet command.

Exit codes: 0 success, 1 other failures (a missing peer), 2 wrong usage, 3 unsupported model,
4 damaged or inconsistent model, 5 damaged artifact, 6 results differ, 70 a bug in whet,
130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

import whet
from whet.cli.commands import LazyCommands
from whet.cli.extras import EXTRAS
from whet.cli.interrupts import insistent_interrupts
from whet.core.errors import InternalError, UsageError, WhetError

INTERNAL_ERROR, INTERRUPTED = InternalError.exit_code, 130
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="whet",
    cls=LazyCommands,
    help="Trained models made as fast as the machine allows.",
    epilog="Exit codes: 0 success, 1 other failure, 2 wrong usage, 3 unsupported model, "
    "4 damaged model, 5 damaged artifact, 6 results differ, 70 bug in whet, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"whet {whet.__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Trained models made as fast as the machine allows."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; errors become one block of text and an exit code.

    `arguments` default to those of the process.
    """
    try:
        with insistent_interrupts(), _whole_output():
            app(arguments, prog_name="whet")
    except WhetError as error:
        _end(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _drop_output()  # the reader of our output has gone
        sys.exit(1)
    except MemoryError as error:
        _end(WhetError("WH1005", "there is not enough memory", details=tuple(_lines(error))))
    except ImportError as error:
        _end(_missing_package(error))
    except Exception as error:
        with contextlib.suppress(OSError):
            _print_bug(error)
        sys.exit(INTERNAL_ERROR)


@contextlib.contextmanager
def _whole_output() -> Iterator[None]:
    """Within, results are written; what cannot be written is an error of its own and not one
    that Python finds when it is about to end."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise  # of a file, and not of our output
        _drop_output()
        raise UsageError("WH3006", f"cannot write the output: {error.strerror}") from error


def _drop_output() -> None:
    """Makes nothing of what is still to be written, at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(error: WhetError) -> None:
    from whet.cli.console import print_error

    with contextlib.suppress(OSError):  # nobody can be told that standard error is full
        print_error(error)
    sys.exit(error.exit_code)


def _missing_package(error: ImportError) -> WhetError:
    """A package that is not there, or does not load; whet's own modules are always there."""
    package = (error.name or "").partition(".")[0]
    if package == "whet":
        raise error
    if isinstance(error, ModuleNotFoundError):
        wanted = f"'whet[{EXTRAS[package]}]'" if package in EXTRAS else package
        return WhetError("WH1008", f"this needs the package '{package}', which is not installed",
                         hint=f"pip install {wanted}")  # fmt: skip
    return WhetError("WH1008", "a package cannot be loaded", details=tuple(_lines(error)))


def _lines(error: BaseException) -> list[str]:
    return str(error).splitlines()[:1]


def _print_bug(error: Exception) -> None:
    """An exception that should not exist: where it came from, without a traceback."""
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.filename}:{last.lineno}, in {last.name}"
    console.print("[bold red]error[/] internal error, please report it", markup=True)
    console.print(f"  {type(error).__name__}: {error}\n  at {place}", markup=False)
