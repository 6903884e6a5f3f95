"""Claims without the elementwise operators that stand outside on both sides.

    relu(a) = relu(b)                     from   a = b
    add(a, gelu(b)) = add(c, gelu(d))     from   a = c, gelu(b) = gelu(d)

Equal arguments give equal results, so it is enough to prove the equations of the arguments, one
by one.  They are easier: each is smaller, and no gate needs to know what the operator outside
computes.  They may be false where the claim is true (`add(a, b) = add(b, a)`), so this is a second
way, for claims that a gate cannot decide as they stand.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from whet.graph.terms import Apply, Term
from whet.ops.base import REGISTRY
from whet.ops.shared.elementwise import Elementwise
from whet.superopt.verify.claims import Claim


@functools.lru_cache(maxsize=256)
def arguments(claim: Claim) -> tuple[Claim, ...]:
    """Smaller claims, each of one equation, from all of which the claim follows; none if no output
    has the same operator outside on both sides."""
    if len(claim.left) != len(claim.right):
        return ()
    outputs = tuple(zip(claim.left, claim.right))
    pairs = tuple(dict.fromkeys(p for left, right in outputs for p in _stripped(left, right)))
    if pairs == outputs:
        return ()
    return tuple(dataclasses.replace(claim, left=(a,), right=(b,)) for a, b in pairs)


def _stripped(left: Term, right: Term) -> Iterator[tuple[Term, Term]]:
    """Pairs of terms whose equality makes the two equal."""
    if (
        isinstance(left, Apply)
        and isinstance(right, Apply)
        and (left.op, left.attributes) == (right.op, right.attributes)
        and len(left.inputs) == len(right.inputs)
        and _elementwise(left.op)
    ):
        yield from ((a, b) for a, b in zip(left.inputs, right.inputs) if a != b)
    elif left != right:
        yield left, right


def _elementwise(op: str) -> bool:
    found = REGISTRY.get(op)
    return found is not None and issubclass(found, Elementwise)
