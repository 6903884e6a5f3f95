"""whet rules on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whet.cli.main import app, main
from whet.core.errors import ArtifactError, MismatchError, UsageError
from whet.superopt.rules.rule import Certificate, Rule, Variable
from whet.superopt.rules.store import write_folder
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


def test_stats_prints_the_funnel_next_to_the_paper(folder: Path) -> None:
    text = output("stats", "--rules", str(folder), "--size", "2", "--pool", "matrices")
    first, second, paper = text.splitlines()[-3:]
    assert first.split()[0] == "1"
    assert second.split()[0] == "2"
    assert paper.split() == ["TASO,", "4", "28,744", "17,346", "743"]


@pytest.mark.parametrize(
    ("option", "message"), [("--pool", "no pool 'none'"), ("--letters", "no letters 'none'")]
)
def test_unknown_names_are_usage_errors(option: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        output("generate", option, "none")


@pytest.mark.parametrize("size", ["x", "0", "-1"])
def test_the_size_of_a_pool_is_a_number_of_operators(size: str) -> None:
    with pytest.raises(UsageError, match=f"'{size}' is no number of operators"):
        output("generate", "--pool", f"matrices:{size}")


def test_pools_have_sizes_of_their_own(folder: Path) -> None:
    sizes = ("--size", "2", "--pool", "row_biases:1", "--pool", "matrices")
    rows = json.loads(output("stats", "--rules", str(folder), *sizes, "--json"))["funnel"]
    alone = json.loads(output("stats", "--rules", str(folder), "--size", "2", "--pool", "matrices",
                              "--json"))["funnel"]  # fmt: skip
    assert rows[0]["visited"] > alone[0]["visited"]
    assert rows[1]["visited"] == alone[1]["visited"]


def test_laws_become_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whet.superopt.verify import axioms

    known = {n: w for n, w in laws().items() if w.text in
             ("relu(relu(x)) = relu(x)", "exp(log(x)) = x")}  # fmt: skip
    assert len(known) == 2
    monkeypatch.setattr(axioms, "laws", lambda: known)
    text = output("generate", "--size", "0", "--laws", "--write", str(tmp_path), "--quiet")
    assert "it speaks of elements" in text
    assert "4 proved, 0 refuted, 0 unproved, 0 alarm" in text
    listed = output("list", "--rules", str(tmp_path))
    assert listed.count("exact law-relu-") == 4


def test_an_interrupt_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from whet.superopt.prune import candidates

    def interrupted(*arguments: object, folder: Path, **options: object) -> None:
        (folder / "matrices-0").mkdir(parents=True)
        (folder / "matrices-0" / "shard-0-of-3.npz").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(candidates, "find_candidates", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["rules", "generate", "--pool", "matrices", "--resume", str(tmp_path / "parts")])
    assert ended.value.code == 130
    told = capsys.readouterr().err
    assert "1 finished parts and 0 proofs are in" in told
    assert "the same command goes on there" in told


def test_mutants_are_counted_by_gate(tmp_path: Path) -> None:
    twice = Rule("twice", (Variable("x", 2),), ("relu(relu(x))",), ("relu(x)",),
                 numeric="exact", certificate=CERTIFICATE)  # fmt: skip
    write_folder([twice], tmp_path / "rules")
    text = output("mutants", "--count", "3", "--rules", str(tmp_path / "rules"), "--quiet")
    assert text.splitlines()[0].split() == ["change", "mutants", "prover", "identity", "bounded",
                                            "passed", "all"]  # fmt: skip
    assert text.splitlines()[-1].split()[0] == "all"
    assert text.splitlines()[-1].split()[-1] == "0"


def test_an_unknown_rule_is_a_usage_error(folder: Path) -> None:
    with pytest.raises(UsageError, match="no rules are called 'nothing'"):
        output("show", "nothing", "--rules", str(folder))


def test_damaged_rules_are_refused(folder: Path) -> None:
    path = folder / "activation.rules"
    path.write_text(path.read_text().replace("rhs relu(x)", "rhs x"))
    with pytest.raises(ArtifactError, match="no valid proof"):
        output("list", "--rules", str(folder))


def test_hand_written_rules_go_through_the_gates(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("rule mine\n  x activation 2\n  lhs relu(relu(x))\n  rhs relu(x)\n")
    text = output("verify", str(path), "--write", str(tmp_path / "out"), "--quiet")
    assert "1 of 1 rules proved" in text
    assert TWICE in output("explain", "mine", "--rules", str(tmp_path / "out"))


def test_false_rules_are_refuted_with_a_counterexample(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("rule wrong\n  x activation 2\n  lhs relu(x)\n  rhs x\n")
    with pytest.raises(MismatchError, match="1 rules are not proved"):
        output("verify", str(path), "--write", str(tmp_path / "out"), "--quiet")
    assert not list((tmp_path / "out").glob("*"))
