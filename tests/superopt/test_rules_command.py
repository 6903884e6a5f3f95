"""whet rules on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whet.cli.main import app
from whet.core.errors import ArtifactError, MismatchError, UsageError
from whet.superopt.rules.files import write_folder
from whet.superopt.rules.rule import Certificate, Rule, Variable
from whet.superopt.verify.axioms import laws

RUN = CliRunner()
TWICE = next(n for n, w in laws().items() if w.text == "relu(relu(x)) = relu(x)")
CERTIFICATE = Certificate((TWICE,), "z3 5.4.0", 2**31 - 1, 0, ("x=[2,3]",), ("x=[1,2]",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    twice = Rule("relu-twice", (Variable("x", 2),), ("relu(relu(x))",), ("relu(x)",),
                 numeric="exact", certificate=CERTIFICATE)  # fmt: skip
    write_folder([twice], tmp_path / "rules")
    return tmp_path / "rules"


def output(*arguments: str) -> str:
    result = RUN.invoke(app, ["rules", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_list(folder: Path) -> None:
    assert "activation   exact relu-twice" in output("list", "--rules", str(folder))
    document = json.loads(output("list", "--rules", str(folder), "--json"))
    assert document["rules"][0]["lhs"] == ["relu(relu(x))"]


def test_show_draws_both_sides(folder: Path) -> None:
    text = output("show", "twice", "--rules", str(folder))
    assert "left:\n  relu\n  `- relu\n     `- x  activation, 2 axes" in text


def test_explain_names_the_laws(folder: Path) -> None:
    text = output("explain", "relu-twice", "--rules", str(folder))
    assert f"{TWICE}: relu(relu(x)) = relu(x)" in text
    assert "z3 5.4.0" in text


def test_stats_counts(folder: Path) -> None:
    assert "all 1  core 1  exact 1" in output("stats", "--rules", str(folder))


def test_an_unknown_rule_is_a_usage_error(folder: Path) -> None:
    with pytest.raises(UsageError, match="no rules are called 'nothing'"):
        output("show", "nothing", "--rules", str(folder))


def test_damaged_rules_are_refused(folder: Path) -> None:
    path = folder / "activation.rules"
    path.write_text(path.read_text().replace("rhs relu(x)", "rhs x"))
    with pytest.raises(ArtifactError, match="no valid proof"):
        output("list", "--rules", str(folder))


def test_hand_written_rules_go_through_the_gates(tmp_path: Path) -> None:
    pytest.importorskip("z3")
    path = tmp_path / "mine.txt"
    path.write_text("rule mine\n  x activation 2\n  lhs relu(relu(x))\n  rhs relu(x)\n")
    text = output("verify", str(path), "--write", str(tmp_path / "out"), "--quiet")
    assert "1 of 1 rules proved" in text
    assert TWICE in output("explain", "mine", "--rules", str(tmp_path / "out"))


def test_false_rules_are_refuted_with_a_counterexample(tmp_path: Path) -> None:
    pytest.importorskip("z3")
    path = tmp_path / "wrong.txt"
    path.write_text("rule wrong\n  x activation 2\n  lhs relu(x)\n  rhs x\n")
    with pytest.raises(MismatchError, match="1 rules are not proved"):
        output("verify", str(path), "--write", str(tmp_path / "out"), "--quiet")
    assert not list((tmp_path / "out").glob("*"))
