"""whet rules: the rewrite rules, their proofs, and how they are found."""

from __future__ import annotations

from typing import Annotated

import typer

from whet.cli.arguments import JsonOption
from whet.cli.console import Reporter
from whet.cli.rules_common import FolderOption, RuleArgument, find_rule, known_rules
from whet.cli.rules_find import generate_command, stats_command
from whet.cli.rules_laws import laws_command
from whet.cli.rules_prove import mutants_command, verify_command
from whet.superopt.rules.drawing import draw, explain
from whet.superopt.rules.files import family

rules_app = typer.Typer(name="rules", help="The rewrite rules and their proofs.",
                        no_args_is_help=True, add_completion=False)  # fmt: skip


@rules_app.command("list")
def list_command(
    rules: FolderOption = None,
    core: Annotated[bool, typer.Option("--core", help="Only the minimal set.")] = False,
    json: JsonOption = False,
) -> None:
    """List the rules with their families and guards."""
    reporter = Reporter(as_json=json)
    chosen = [r for r in known_rules(rules) if r.core or not core]
    document = {
        "rules": [
            {"name": r.name, "family": family(r), "numeric": r.numeric, "core": r.core,
             "hash": r.hash, "when": list(r.when), "lhs": list(r.lhs), "rhs": list(r.rhs)}
            for r in chosen
        ]
    }  # fmt: skip

    def show() -> None:
        for r in chosen:
            guards = f"  when {', '.join(r.when)}" if r.when else ""
            reporter.text(f"{family(r):12} {r.numeric:5} {r.name}{guards}")
        reporter.text(f"{len(chosen)} rules")

    reporter.result(document, show)


@rules_app.command("show")
def show_command(rule: RuleArgument, rules: FolderOption = None) -> None:
    """Draw both sides of a rule."""
    Reporter().text(draw(find_rule(rule, rules)))


@rules_app.command("explain")
def explain_command(rule: RuleArgument, rules: FolderOption = None) -> None:
    """Say why a rule is believed."""
    from whet.superopt.verify.axioms import laws
    from whet.superopt.verify.lemmas import LEMMAS

    found = find_rule(rule, rules)
    Reporter().text(explain(found, {**laws(), **LEMMAS}))


rules_app.command("verify")(verify_command)
rules_app.command("mutants")(mutants_command)
rules_app.command("laws")(laws_command)
rules_app.command("generate")(generate_command)
rules_app.command("stats")(stats_command)
