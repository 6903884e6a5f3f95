"""Verification goes on where it was interrupted, and shapes are found for every claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.superopt.rules.files import read_candidates
from whet.superopt.rules.rule import Rule, Variable
from whet.superopt.verify import gates
from whet.superopt.verify.gates import verify_forms

CASES = {
    r.name: r for r in read_candidates((Path(__file__).parent / "case_studies.rules").read_text())
}
FALSE = Rule("false", (Variable("x", 2),), ("relu(x)",), ("neg(x)",))


def test_reports_are_read_back_instead_of_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [(CASES["mm-assoc"],), (FALSE,)]
    first = verify_forms(groups, folder=tmp_path)
    assert [r.outcome for r in first] == ["proved", "refuted"]
    assert len(list(tmp_path.glob("proof-*.json"))) == 2

    def forbidden(*_: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(gates, "_judge", forbidden)
    assert verify_forms(groups, folder=tmp_path) == first
    with pytest.raises(AssertionError, match="asked again"):
        verify_forms(groups, seed=1, folder=tmp_path)
