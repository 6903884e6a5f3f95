"""From application numbers back to terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from whet.core.types import Array
from whet.superopt.generate.kinds import Kind
from whet.superopt.generate.tables import Tables
from whet.superopt.generate.universe import NONE, Universe
from whet.superopt.prune.pairs import ABSENT
from whet.superopt.prune.terms import Found, Lexicon, Term, size_of, variables


class TermReader:
    """Reads terms off some applications of the tables.

    `symbols` are the numbers that a lexicon gives to the operators of the tables; `kinds` are
    those of the inputs.
    """

    def __init__(
        self, tables: Tables, apps: Array, symbols: Sequence[int], kinds: Sequence[Kind]
    ) -> None:
        self.inputs, self.kinds = tables.inputs, kinds
        rows = zip(
            apps.tolist(),
            tables.app_op[apps].tolist(),
            tables.app_a[apps].tolist(),
            tables.app_b[apps].tolist(),
            tables.app_out[apps].tolist(),
            tables.app_hash[apps].tolist(),
        )
        self.apps = {
            app: (symbols[op], tuple(v for v in (a, b) if v != NONE), tuple(zip(out, prints)))
            for app, op, a, b, out, prints in rows
        }

    def outputs(self, graph: Sequence[int]) -> dict[int, Term]:
        """The terms of the graph's outputs by the fingerprints of their values."""
        made: dict[int, Term] = {}
        print_of: dict[int, int] = {}
        consumed: set[int] = set()
        results: dict[int, Term] = {}
        pending = [v for v in graph if v != ABSENT]
        while pending:
            waiting = []
            for app in pending:
                symbol, operands, outputs = self.apps[app]
                if any(v >= self.inputs and v not in made for v in operands):
                    waiting.append(app)
                    continue
                inner = tuple(made.get(v, v) for v in operands)
                consumed.update(operands)
                several = outputs[1][1] != 0
                for n, (value, fingerprint) in enumerate(outputs[: 1 + several]):
                    term = (symbol, n if several else NONE, *inner)
                    results[fingerprint] = term
                    if value != NONE:
                        made[value] = term
                        print_of[value] = fingerprint
            assert len(waiting) < len(pending), "a graph with a cycle"
            pending = waiting
        for value in consumed:
            results.pop(print_of.get(value, 0), None)
        return results

    def pair(self, left: Mapping[int, Term], right: Mapping[int, Term]) -> Found | None:
        """The equation of two graphs, or None if their outputs are not the same values."""
        if left.keys() != right.keys():
            return None
        order = list(left)
        used = variables(*left.values(), *right.values())
        return Found(
            tuple(left[h] for h in order),
            tuple(right[h] for h in order),
            {v: self.kinds[v] for v in used},
        )


def identities(universe: Universe, lexicon: Lexicon) -> Iterator[Found]:
    """The equations that applications without a new value say.

    `term = variable`, or constant, or f(term) = term; that an equation holds for a computed
    value in place of a variable goes without saying.
    """
    tables = universe.tables()
    symbols = [lexicon.symbol(op) for op in universe.grammar.ops]
    stored = np.flatnonzero(tables.app_out[:, 0] != NONE)
    reader = TermReader(tables, stored, symbols, universe.pool.kinds)
    producer: dict[int, tuple[int, int]] = {}
    for app, (_, _, outputs) in reader.apps.items():
        for n, (value, _) in enumerate(outputs):
            producer.setdefault(value, (app, n))

    def expanded(value: int, depth: int = 0) -> Term | None:
        """A term for the value; None if it is too large."""
        if value < universe.inputs:
            return value
        if depth > universe.size:
            return None
        app, n = producer[value]
        symbol, operands, outputs = reader.apps[app]
        inner = tuple(expanded(v, depth + 1) for v in operands)
        if any(t is None for t in inner):
            return None
        return (symbol, n if outputs[1][1] else NONE, *inner)

    for identity in universe.identities:
        operands = [v for v in (identity.a, identity.b) if v != NONE]
        right = expanded(identity.equals)
        if right is None or not (
            isinstance(right, int) or operands == [identity.equals] or not variables(right)
        ):
            continue
        inner = tuple(map(expanded, operands))
        left = (symbols[identity.op], identity.output, *inner)
        if all(t is not None for t in inner) and size_of([left]) <= universe.size:
            used = variables(left, right)
            yield Found((left,), (right,), {v: universe.pool.kinds[v] for v in used})
