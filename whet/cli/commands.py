"""The commands by name, each loaded when it is asked for: `whet --version` waits for none."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS = {
    "compile": "whet.cli.compile:compile_command",
    "run": "whet.cli.run:run_command",
    "check": "whet.cli.check:check_command",
    "bench": "whet.cli.bench:bench_command",
    "reduce": "whet.cli.reduce:reduce_command",
    "inspect": "whet.cli.inspect:inspect_command",
    "explain": "whet.cli.explain:explain_command",
    "superopt": "whet.cli.superopt:superopt_command",
    "target": "whet.cli.target:target_command",
    "doctor": "whet.cli.doctor:doctor_command",
    "tune": "whet.cli.tune:tune_command",
    "cache": "whet.cli.cache:cache_app",
    "rules": "whet.cli.rules:rules_app",
    "db": "whet.cli.db:db_app",
}
"""Where each command is: a function, or the Typer of several."""


class LazyCommands(TyperGroup):
    """A group whose commands are imported when they are used or listed."""

    # Of type Any are classes of Click, which Typer brings along in one way or another.
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(module), name)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False)
            found.command(cmd_name)(function)
        command = get_command(found)
        command.name = cmd_name
        return command
