"""The whet command.

Exit codes: 0 success, 1 other failures (a missing peer), 2 wrong usage, 3 unsupported model,
4 damaged or inconsistent model, 5 damaged artifact, 6 results differ, 70 a bug in whet,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

import whet
from whet.cli.bench import bench_command
from whet.cli.check import check_command
from whet.cli.compile import compile_command
from whet.cli.console import print_error
from whet.cli.db import db_app
from whet.cli.inspect import inspect_command
from whet.cli.interrupts import insistent_interrupts
from whet.cli.rules import rules_app
from whet.cli.run import run_command
from whet.cli.target import target_command
from whet.cli.tune import tune_command
from whet.core.errors import WhetError

INTERNAL_ERROR, INTERRUPTED = 70, 130

app = typer.Typer(
    name="whet",
    help="Trained models made as fast as the machine allows.",
    epilog="Exit codes: 0 success, 1 other failure, 2 wrong usage, 3 unsupported model, "
    "4 damaged model, 5 damaged artifact, 6 results differ, 70 bug in whet, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compile")(compile_command)
app.command("run")(run_command)
app.command("check")(check_command)
app.command("bench")(bench_command)
app.command("inspect")(inspect_command)
app.command("target")(target_command)
app.command("tune")(tune_command)
app.add_typer(rules_app)
app.add_typer(db_app, name="db")


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
        with insistent_interrupts():
            app(arguments, prog_name="whet")
    except WhetError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone; nothing is left to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        _print_bug(error)
        sys.exit(INTERNAL_ERROR)


def _print_bug(error: Exception) -> None:
    """An exception that should not exist: where it came from, without a traceback."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.filename}:{last.lineno}, in {last.name}"
    console.print("[bold red]error[/] internal error, please report it", markup=True)
    console.print(f"  {type(error).__name__}: {error}\n  at {place}", markup=False)
