"""Candidates: what generating and pruning over several pools leaves, as rules to be proved.

pools  ->  equations up to renaming  ->  no instances of others  ->  rules
                                                                \\->  core
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.core.executor import Executor, Progress
from whet.core.types import Shape
from whet.superopt.generate.pools import Pool
from whet.superopt.prune.canonical import drop_instances
from whet.superopt.prune.derive import core
from whet.superopt.prune.generalize import generalize
from whet.superopt.prune.search import Counts, Generation, generate
from whet.superopt.prune.terms import Found, Lexicon, Term, variables
from whet.superopt.rules.rule import Rule

COMPOSITE_SIZE = 3
"""Rules of up to so many operators are kept even if smaller ones imply them."""

Report = Callable[[str], Progress | None]
"""Given what begins now, returns where to report progress."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule without a certificate.

    `forms` are claims of falling generality: the first that passes the gates is the rule.
    `shapes` are those of its variables where it was found; `in_core` says that smaller
    candidates do not imply it.
    """

    forms: tuple[Rule, ...]
    shapes: tuple[tuple[str, Shape], ...]
    size: int
    in_core: bool

    @property
    def name(self) -> str:
        return self.forms[0].name

    @property
    def is_small(self) -> bool:
        """Whether it is worth a proof although others imply it."""
        about = any(v.role == "activation" for v in self.forms[0].variables)
        return about and self.size <= COMPOSITE_SIZE


@dataclass(frozen=True, slots=True)
class Funnel:
    """One row of the funnel: what is left of the equations of a size after each step."""

    size: int
    sequences: int
    canonical: int
    visited: int
    pairs: int
    disjoint: int
    renamed: int
    general: int
    core: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All candidates, the smaller ones first, and how they came about."""

    candidates: tuple[Candidate, ...]
    funnel: tuple[Funnel, ...]

    @property
    def to_prove(self) -> tuple[Candidate, ...]:
        """The core of all sizes, and of what it implies the small ones about activations.

        A larger implied rule says nothing that steps of the core do not say, and there are many.
        What is computed of weights alone is computed before a model runs.
        """
        return tuple(c for c in self.candidates if c.in_core or c.is_small)


def find_candidates(
    pools: Sequence[Pool],
    size: int,
    *,
    seed: int = 0,
    exact: bool = False,
    executor: Executor | None = None,
    threads: int = 1,
    folder: Path | None = None,
    report: Report | None = None,
) -> Catalogue:
    """The candidates up to a size over the pools; the same for the same seed, whatever the
    executor."""
    lexicon = Lexicon()
    begin = report or (lambda _: None)
    generations = [
        generate(
            pool,
            min(size, pool.largest or size),
            lexicon,
            seed=seed,
            exact=exact,
            executor=executor,
            threads=threads,
            folder=folder,
            progress=begin(f"graphs over the pool {pool.name}"),
        )
        for pool in pools
    ]
    return _catalogue(generations, size, lexicon, begin("derivable rules"))


def _catalogue(
    generations: Sequence[Generation], size: int, lexicon: Lexicon, progress: Progress | None
) -> Catalogue:
    merged: dict[str, dict[Shape, Found]] = {}
    for generation in generations:
        for text, equations in generation.found.items():
            for equation in equations:
                merged.setdefault(text, {}).setdefault(equation.ranks, equation)
    texts = sorted(merged)
    first = [merged[t][min(merged[t])] for t in texts]
    general = drop_instances(first, lexicon)
    minimal = {general[n] for n in core([first[n] for n in general], lexicon, progress)}
    candidates = [
        _candidate(equation, lexicon, n in minimal)
        for n in general
        for _, equation in sorted(merged[texts[n]].items())
    ]
    candidates.sort(key=lambda c: (c.size, len(str(c.forms[0].lhs + c.forms[0].rhs)), c.name))

    def of_size(positions: Sequence[int] | set[int], n: int) -> int:
        return sum(first[k].size == n for k in positions)

    rows = []
    for n in range(1, size + 1):
        counts: list[Counts] = [g.counts[n - 1] for g in generations if len(g.counts) >= n]
        rows.append(
            Funnel(
                n,
                sum(c.sequences for c in counts),
                sum(c.canonical for c in counts),
                sum(c.visited for c in counts),
                sum(c.pairs for c in counts),
                sum(c.disjoint for c in counts),
                of_size(range(len(first)), n),
                of_size(general, n),
                of_size(minimal, n),
            )
        )
    return Catalogue(tuple(dict.fromkeys(candidates)), tuple(rows))


def _candidate(found: Found, lexicon: Lexicon, in_core: bool) -> Candidate:
    forms = generalize(found, lexicon, "")
    name = f"{_roots(found.left, lexicon)}-{_roots(found.right, lexicon)}-{forms[0].hash[:8]}"
    named = tuple(dataclasses.replace(f, name=name) for f in forms)
    order = variables(*found.left, *found.right)
    shapes = tuple((v.name, found.kinds[k].shape) for v, k in zip(named[0].variables, order))
    return Candidate(named, shapes, found.size, in_core)


def _roots(terms: tuple[Term, ...], lexicon: Lexicon) -> str:
    """The names of the outermost operators."""
    names = ["same" if isinstance(t, int) else lexicon.ops[t[0]].name for t in terms]
    return "-".join(dict.fromkeys(names))
