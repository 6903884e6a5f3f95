"""The record of laws is current, and a sample of it is tested again."""

from __future__ import annotations

import pytest

from whet.superopt.verify.axioms import (
    axioms_of,
    digest,
    examine,
    laws,
    recorded,
    usable,
    write_record,
)
from whet.superopt.verify.bounded import check_bounded
from whet.superopt.verify.identity import check_identity
from whet.superopt.verify.lemmas import LEMMAS

EVERY = {**laws(), **LEMMAS}
USED = sorted(n for n, w in EVERY.items() if usable(w) and axioms_of(n, w))


def test_every_law_is_in_the_record() -> None:
    missing = [n for n, w in EVERY.items() if usable(w) and digest(w) not in recorded()]
    assert not missing, "run tools/axioms.py"


def test_most_laws_are_used() -> None:
    assert len(USED) >= 280
    assert sum(len(axioms_of(n, EVERY[n])) for n in USED) >= 750


@pytest.mark.parametrize("name", USED[::12])
def test_a_sample_of_laws_on_new_shapes(name: str) -> None:
    axiom = axioms_of(name, EVERY[name])[0]
    assert check_identity(axiom.claim, seed=99, shapes=6).passed


def named(op: str, start: str) -> str:
    """The name of the law of this operator that begins like this."""
    return next(n for n, w in EVERY.items() if n.startswith(op) and w.text.startswith(start))


COLUMNS = named("matmul", "matmul(a, concat(b, c, axis=1))")
SAMPLE = [
    COLUMNS,
    named("conv", "conv(x, add(w, v)"),
    named("conv", "concat(conv(x, w"),
    named("enlarge", "conv(x, enlarge"),
]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_laws_as_polynomials(name: str) -> None:
    axiom = axioms_of(name, EVERY[name])[0]
    assert check_bounded(axiom.claim, seed=99, shapes=6).passed


def test_a_law_at_the_wrong_rank_is_left_out() -> None:
    # Columns of matrices are joined along axis 1; with a batch axis that means something else.
    ranks = {dict(a.ranks)["a"] for a in axioms_of(COLUMNS, EVERY[COLUMNS])}
    assert ranks == {2}


def test_the_record_is_written_as_it_is_read() -> None:
    name = named("relu", "relu(relu(x))")
    text = write_record({name: examine(name, EVERY[name])})
    assert "ranks x=2" in text
    assert text == write_record({name: examine(name, EVERY[name])})
