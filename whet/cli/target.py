"""whet target: the machine that code is made for, and what is known about its speed."""

from __future__ import annotations

import json as json_format
from typing import Annotated

import typer

from whet.api.engines import target_name
from whet.build.backend import backend_of, find_target
from whet.cli.arguments import JsonOption, QuietOption
from whet.cli.console import Reporter
from whet.core.caching import FileCache
from whet.core.config import process_config


def target_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="cpu (this machine) or the name of a preset, "
            "which is this machine held back to it where that is possible.",
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the constants of this machine, again.")
    ] = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Show a target: vector unit, caches, cores, and the constants that kernels are chosen by."""
    reporter = Reporter(quiet=quiet, as_json=json)
    cache = FileCache(process_config().cache)
    name = target_name(name)
    target = find_target(name, cache)
    backend = backend_of(target)
    if measure:
        target = backend.calibrated(target, cache, reporter.note, again=True)
    constants = {constant: target.constant(constant) for constant in backend.constants}
    document = {**json_format.loads(target.to_json()), "key": target.key, "constants": constants}
    reporter.result(document, lambda: reporter.text("\n".join(backend.describe(target))))
