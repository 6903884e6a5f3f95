"""whet target: the machine that code is made for, and what is known about its speed."""

from __future__ import annotations

import json as json_format
from dataclasses import replace
from typing import Annotated

import typer

from whet.api.engine import target_name
from whet.cli.arguments import JsonOption, QuietOption
from whet.cli.console import Reporter
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.constants import CONSTANTS
from whet.core.cpu import CpuTarget, find_target, remember
from whet.core.errors import UsageError, check
from whet.core.foreign import is_this_machine


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
    if measure:
        check(is_this_machine(target), "WH1002",
              f"'{name}' is not this machine and cannot be measured", kind=UsageError)  # fmt: skip
        check(cache.keeps, "WH1002", "there is no cache to keep measurements in",
              *([cache.problem] if cache.problem else []),
              hint="set WHET_CACHE_ENABLED=1, and WHET_CACHE_DIR to a folder of your own",
              kind=UsageError)  # fmt: skip
        from whet.build.calibrate import calibrated_target  # loads LLVM: only when needed

        remember(replace(target, calibration={}), cache)
        target = calibrated_target(find_target(name, cache), cache, reporter.note)
    constants = {constant: target.constant(constant) for constant in CONSTANTS}
    document = {**json_format.loads(target.to_json()), "key": target.key, "constants": constants}
    reporter.result(document, lambda: show(target, reporter))


def show(target: CpuTarget, reporter: Reporter) -> None:
    reporter.text(f"{target}\n{target.triple}, {target.cpu}, {' '.join(target.features)}\n")
    for name, constant in CONSTANTS.items():
        value, origin = target.constant(name), target.origin(name)
        reporter.text(f"{name:25}{value:>8.4g}  {origin:9} {constant.meaning}")
