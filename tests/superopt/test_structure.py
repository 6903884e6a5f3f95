"""Keys of pairs: what has one key is one rule up to renaming."""

from __future__ import annotations

import numpy as np

from whet.superopt.generate.pools import MATRICES
from whet.superopt.generate.universe import Universe
from whet.superopt.prune.canonical import canonical_text, drop_instances
from whet.superopt.prune.pairs import ABSENT, equal_pairs
from whet.superopt.prune.reading import TermReader
from whet.superopt.prune.structure import NO_KEY, pair_keys
from whet.superopt.prune.terms import Found, Lexicon


def keyed(lexicon: Lexicon) -> dict[int, dict[str, Found | None]]:
    """The equations over matrices at size 3 by key and canonical text."""
    universe = Universe(MATRICES, 3)
    universe.build()
    tables = universe.tables()
    symbols = [lexicon.symbol(op) for op in universe.grammar.ops]
    found = equal_pairs(tables, tables.count(3).visited)
    keys = pair_keys(tables, found.graphs, found.pairs, symbols, MATRICES.kinds, lexicon)
    used = np.unique(found.graphs)
    reader = TermReader(tables, used[used != ABSENT], symbols, MATRICES.kinds)
    sides = [reader.outputs(g) for g in found.graphs.tolist()]
    by_key: dict[int, dict[str, Found | None]] = {}
    for (first, second), key in zip(found.pairs.tolist(), keys.tolist(), strict=True):
        equation = reader.pair(sides[first], sides[second])
        text = "" if equation is None else canonical_text(equation, lexicon)
        by_key.setdefault(key, {})[text] = equation
    assert len(by_key) < len(keys) / 3
    return by_key


def test_pairs_of_one_key_are_one_rule() -> None:
    lexicon = Lexicon()
    by_key = keyed(lexicon)
    unequal = by_key.pop(int(NO_KEY), {"": None})
    assert list(unequal) == [""]
    texts = set()
    for equations in by_key.values():
        several = [e for e in equations.values() if e is not None]
        assert len(several) == len(equations)
        assert len({e.ranks for e in several}) == 1
        assert len(drop_instances(several, lexicon)) == 1
        texts |= {(text, several[0].ranks) for text in equations}
    # Few rules have several keys: only where use does not tell variables apart.
    assert len(by_key) <= 1.2 * len(texts)
