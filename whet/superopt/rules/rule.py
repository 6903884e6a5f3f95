"""A rewrite rule: two lists of terms with equal values, output by output.

The terms are those of `whet.graph.terms`; attributes may be variables too, and extents of
tensor variables may stand in them:

    Rule(
        "conv-share-input",
        (Variable("x", 4), Variable("w", 4, "weight"), Variable("v", 4, "weight")),
        lhs=("conv(x, w, strides=s, pads=p, dilations=d, groups=1)",
             "conv(x, v, strides=s, pads=p, dilations=d, groups=1)"),
        rhs=("split(conv(x, concat(w, v, axis=0), strides=s, pads=p, dilations=d, groups=1), "
             "axis=1, sizes=[dim(w, 0), dim(v, 0)])[0]",
             "split(..., axis=1, sizes=[dim(w, 0), dim(v, 0)])[1]"),
    )

The claim: for all shapes and attributes for which both sides have a type and the guards
(`when`, such as `shape(x) == shape(y)` or `g == 1`) hold, the outputs agree.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from whet.core.digest import digest_text
from whet.graph.attributes import Expression
from whet.graph.terms import Term
from whet.ops.base import Numeric
from whet.superopt.rules.reading import read_shared, read_shared_expression

Role = Literal["activation", "weight"]
"""What a variable stands for: a value of the computation, or a constant of the model."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor variable of a rule: any tensor of this rank."""

    name: str
    rank: int
    role: Role = "activation"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why a rule is believed, in a form that can be replayed; it holds no times.

    `axioms` are the laws of the proof, `solver` the prover with its version; `shapes` and
    `seed` fix the numeric tests, `symbolic` the shapes of the symbolic one.
    """

    axioms: tuple[str, ...]
    solver: str
    prime: int
    seed: int
    shapes: tuple[str, ...]
    symbolic: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """See the module's text.

    `certificate` is None until all gates have passed, and where a rule was loaded without it.
    What is claimed (and hashed) are variables, sides and guards; the rest is about the claim.
    """

    name: str
    variables: tuple[Variable, ...]
    lhs: tuple[str, ...]
    rhs: tuple[str, ...]
    when: tuple[str, ...] = ()
    numeric: Numeric = "real"
    certificate: Certificate | None = None
    core: bool = True
    """Whether smaller rules do not imply it.  Equality saturation needs the core alone; a search
    that never takes a step back also wants the others."""
    given: tuple[str, ...] = ()
    """Equations between extents that the proof takes from types (`dim(x, 1) == dim(w, 0)`): stored
    with the rule, and checked wherever it is used."""

    stated_by: tuple[str, ...] = field(default=(), compare=False)
    """The laws that it was made of, for the prover to begin with; nothing else knows of them."""

    @cached_property
    def hash(self) -> str:
        """A digest of the claim."""
        variables = (f"{v.name}:{v.role}[{v.rank}]" for v in self.variables)
        return digest_text(*variables, "when", *self.when, "lhs", *self.lhs, "rhs", *self.rhs)

    @cached_property
    def left(self) -> tuple[Term, ...]:
        return tuple(map(read_shared, self.lhs))

    @cached_property
    def right(self) -> tuple[Term, ...]:
        return tuple(map(read_shared, self.rhs))

    @cached_property
    def guards(self) -> tuple[Expression, ...]:
        return tuple(map(read_shared_expression, self.when))

    @cached_property
    def conditions(self) -> tuple[Expression, ...]:
        """Everything that must hold where the rule is used: its guards, and what is given."""
        return (*self.guards, *map(read_shared_expression, self.given))

    def proved(self, certificate: Certificate) -> Rule:
        """The same rule with its certificate."""
        return dataclasses.replace(self, certificate=certificate)

    def guarded(self, *guards: str) -> Rule:
        """The weaker rule that also demands these guards; its proof is void."""
        added = tuple(g for g in guards if g not in self.when)
        return dataclasses.replace(self, when=(*self.when, *added), certificate=None, given=())
