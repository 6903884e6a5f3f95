"""One random attempt to find an assignment, with backtracking over the tensors."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from whet.core.types import Shape, TensorType
from whet.graph.attributes import (
    Evaluator,
    Expression,
    Infix,
    Item,
    Literal,
    Measure,
    Name,
    compiled,
    evaluate,
    walk,
)
from whet.graph.terms import Apply, Variable, tensor_names
from whet.ops.base import REGISTRY, Op
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.steps import Types, steps_of

TRIES_PER_TENSOR = 24
"""Candidates for one tensor before those chosen earlier are blamed."""
STEPS = 600
"""Candidates that one attempt may look at before it gives up."""
STEPS_LATER = 150
"""The same once something is known that fits, and can be varied."""
FOLLOWED = 0.75
"""How many candidates follow the equations between extents that types seem to demand."""

Place = tuple[str, int]
"""An axis of a tensor variable, or an attribute variable that is a number (at 0)."""


class Chance:
    """Random numbers: for operators' samples, and for the many small choices of a search."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.random = random.Random(seed)


class Plan:
    """The common part of all attempts for a claim: what is judged once a tensor has its shape."""

    def __init__(self, claim: Claim) -> None:
        self.claim, self.attributes = claim, claim.attributes
        self.steps = steps_of(claim.sides)
        self.ranks = dict(claim.ranks)
        order = dict.fromkeys(n for t in claim.sides for n in tensor_names(t))
        self.order = tuple(dict.fromkeys((*order, *self.ranks)))
        position = {n: k for k, n in enumerate(self.order)}
        self.due: list[list[int]] = [[] for _ in self.order] or [[]]
        self.guards: list[list[Evaluator]] = [[] for _ in self.order] or [[]]
        ready: list[int] = []
        for step in self.steps.steps:
            named = tensor_names(step.term)
            ready.append(max((position[n] for n in named), default=0))
            self.due[ready[-1]].append(len(ready) - 1)
        for guard in claim.guards:
            measured = (e.tensor for e in walk(guard) if isinstance(e, Measure))
            self.guards[max((position[n] for n in measured), default=0)].append(compiled(guard))
        self.equations = tuple(pair for g in claim.guards for pair in _equations(g))
        self.named = tuple(self._named())
        self.lists: dict[str, int] = {}
        """Attribute variables of which single items are used, and how many items they have."""
        inside = (a for step in self.steps.steps if isinstance(step.term, Apply)
                  for _, a in step.term.attributes)  # fmt: skip
        for e in itertools.chain.from_iterable(map(walk, (*inside, *claim.guards))):
            match e:
                case Item(value=Name(name=name), index=Literal(value=int(index))):
                    self.lists[name] = max(index + 1, self.lists.get(name, 0))

    def _named(self) -> Iterator[tuple[Apply, dict[str, str], int]]:
        """Operators that give values to attribute variables, with the rank of their data."""
        taken: set[str] = set()
        for n in self.steps.applied:
            term = self.steps.steps[n].term
            assert isinstance(term, Apply)
            new = {k: e.name for k, e in term.attributes
                   if isinstance(e, Name) and e.name not in taken}  # fmt: skip
            if new:
                taken.update(new.values())
                ranks = (self.ranks[t] for t in tensor_names(term) if t in self.ranks)
                yield term, new, max(ranks, default=0)


class Attempt:
    """One attempt; `equal` are places whose extents must be equal, as far as is known, and `steps`
    the candidates that it may look at."""

    def __init__(
        self,
        plan: Plan,
        pool: tuple[int, ...],
        rng: Chance,
        largest: int | None = None,
        equal: Mapping[Place, Sequence[Place]] = MappingProxyType({}),
        steps: int = STEPS,
    ) -> None:
        self.plan, self.pool, self.rng, self.largest = plan, pool, rng, largest
        self.equal, self.steps = equal, steps
        self.attributes: dict[str, Any] = {}
        self.sampled: dict[str, Shape] = {}
        self.shapes: dict[str, Shape] = {}
        self.ops: dict[int, Op] = {}
        """Operators whose attributes do not depend on shapes."""
        self.types: list[Types | None] = [None] * len(plan.steps.steps)
        self.tried = 0

    def run(self) -> Assignment | None:
        self._draw_attributes()
        if not self._extend(0):
            return None
        claim = self.plan.claim
        ordered = tuple((n, self.shapes[n]) for n, _ in claim.ranks)
        return Assignment(ordered, tuple((n, self.attributes[n]) for n in self.plan.attributes))

    def other_attributes(self, at: Assignment) -> Assignment:
        """The assignment with values of attributes that were drawn anew."""
        self._draw_attributes()
        return Assignment(at.shapes, tuple((n, self.attributes[n]) for n in self.plan.attributes))

    # --------------------------------------------------------------------------- attributes
    def _draw_attributes(self) -> None:
        """Attribute variables take the values of a random sample of their operator."""
        for term, named, rank in self.plan.named:
            self._draw_from_samples(term, named, rank)
        for left, right in self.plan.equations:  # `name == value` decides the name
            if isinstance(left, Name) and left.name not in self.plan.ranks:
                try:
                    self.attributes[left.name] = evaluate(right, self.attributes, {})
                except (ArithmeticError, LookupError, TypeError):
                    continue
        for name in self.plan.attributes:  # what stands only in expressions: a number or a list
            if name not in self.attributes:
                length = self.plan.lists.get(name)
                made = self.rng.random.choices(self.pool, k=length or 1)
                self.attributes[name] = made[0] if length is None else tuple(made)

    def _draw_from_samples(self, term: Apply, named: dict[str, str], rank: int) -> None:
        op = REGISTRY.get(term.op)
        if op is None:
            return
        for _ in range(40):
            sample = op.sample(self.rng.generator)
            if not sample.types or not rank or sample.types[0].rank == rank:
                self.attributes |= {v: getattr(sample.op, k) for k, v in named.items()}
                for inner, t in zip(term.inputs, sample.types):
                    if isinstance(inner, Variable) and t.rank == self.plan.ranks[inner.name]:
                        self.sampled.setdefault(inner.name, t.shape)
                return

    # ------------------------------------------------------------------------------ tensors
    def _extend(self, depth: int) -> bool:
        """Give shapes to the tensors from this one on."""
        if depth == len(self.plan.order):
            return depth > 0 or self._sound(0)
        name = self.plan.order[depth]
        tries = TRIES_PER_TENSOR if depth else self.steps
        for shape in itertools.islice(self._candidates(name, depth), tries):
            self.tried += 1
            if self.tried > self.steps:
                return False
            self.shapes[name] = shape
            if self._sound(depth) and self._extend(depth + 1):
                return True
            del self.shapes[name]
        return False

    def _sound(self, depth: int) -> bool:
        """Whether what can be judged now has types, and the guards hold."""
        for guard in self.plan.guards[depth]:
            try:
                if not guard(self.attributes, self.shapes):
                    return False
            except (ArithmeticError, LookupError, TypeError):
                return False
        steps = self.plan.steps
        for n in self.plan.due[depth]:
            op = self.ops.get(n)
            if op is None and isinstance(steps.steps[n].term, Apply):
                op = steps.op(n, self.attributes, self.shapes)
                if op is not None and not steps.steps[n].measures:
                    self.ops[n] = op
            found = steps.known(n, op, self.types, self.shapes)
            if found is None:
                return False
            self.types[n] = found
        return True

    def _candidates(self, name: str, depth: int) -> Iterator[Shape]:
        """Random shapes mixed with variations of those of the other tensors, and of results that
        are known before this tensor is (the convolution that it is added to).

        What a guard says about an extent is followed; the shapes that came with the sampled
        attributes are tried early, because they fit them; and most candidates follow the
        equations between extents that withstood all challenges.
        """
        rank = self.plan.ranks[name]
        others = [s for n, s in self.shapes.items() if n != name]
        results = (t for due in self.plan.due[:depth] for n in due for t in self.types[n] or ())
        others += [t.shape for t in results if isinstance(t, TensorType)]
        alike = [s for s in dict.fromkeys(others) if len(s) == rank]
        sampled = self.sampled.get(name)
        fixed = self._fixed(name)
        seen = self._seen(name)
        rng, pool = self.rng.random, self.pool
        for n in itertools.count():
            if sampled is not None and n % 4 == 0:
                base = list(sampled)
                if n and rank:
                    base[rng.randrange(rank)] = rng.choice(pool)
            elif alike and rng.random() < 0.6:
                base = list(rng.choice(alike))
                for _ in range(rng.randrange(3) if rank else 0):
                    base[rng.randrange(rank)] = rng.choice(pool)
            else:
                base = rng.choices(pool, k=rank)
            if seen and rng.random() < FOLLOWED:
                for k, d in seen.items():
                    base[k] = d
            if self.largest is not None:
                base = [min(d, self.largest) for d in base]
            for k, d in fixed.items():
                base[k] = d
            yield tuple(base)

    def _seen(self, name: str) -> dict[int, int]:
        """Extents that equal those of tensors with shapes, if what held so far is no chance."""
        found: dict[int, int] = {}
        for axis in range(self.plan.ranks[name]):
            for other, place in self.equal.get((name, axis), ()):
                if other in self.attributes:
                    found[axis] = self.attributes[other]
                elif other != name and other in self.shapes:
                    found[axis] = self.shapes[other][place]
        return found

    def _fixed(self, name: str) -> dict[int, int]:
        """Extents that follow from guards `dim(x, n) == value` and `shape(x) == value`."""
        found: dict[int, int] = {}
        for left, right in self.plan.equations:
            if isinstance(left, Measure) and left.tensor == name:
                try:
                    value = evaluate(right, self.attributes, self.shapes)
                    axis = int(evaluate(left.axis or Literal(0), self.attributes, self.shapes))
                except (ArithmeticError, LookupError, TypeError):
                    continue
                if left.kind == "dim":
                    found[axis] = value
                elif left.kind == "shape":
                    found |= dict(enumerate(value))
        # A guard about an axis that the tensor does not have is false at all its shapes.
        return {axis: extent for axis, extent in found.items() if axis < self.plan.ranks[name]}


@functools.lru_cache(maxsize=64)
def plan_of(claim: Claim) -> Plan:
    """The plan for a claim, kept for the next gate."""
    return Plan(claim)


def _equations(guard: Expression) -> Iterator[tuple[Expression, Expression]]:
    """The equations that the guard states, each read both ways."""
    if isinstance(guard, Infix) and guard.op == "and":
        yield from _equations(guard.left)
        yield from _equations(guard.right)
    elif isinstance(guard, Infix) and guard.op == "==":
        yield guard.left, guard.right
        yield guard.right, guard.left
