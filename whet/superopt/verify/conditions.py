"""Conditions for the use of a rule, besides its guards.

A proof takes some things from types: `matmul(x, w)` would have none unless
`dim(x, 1) == dim(w, 0)`.  Whether types demand an equation was asked of the operators' `infer`
before the proof (`demands`), and where they do not, the shape that shows it is one of the
certificate's.  So what holds at all of these is demanded by types as far as a search can tell, and
an equation that a proof needs beyond that is a guard of the rule.  A search is no proof, though, so
nothing rests on it: whoever applies a rule checks these equations as well as its guards.
"""

from __future__ import annotations

from whet.superopt.rules.rule import Rule
from whet.superopt.verify.claims import read_assignment
from whet.superopt.verify.extents import equal_extents


def assumed(rule: Rule) -> tuple[str, ...]:
    """`dim(x, 1) == dim(w, 0)` for all extents that agree at all shapes of the certificate: those
    that types demand (or the guards), and nothing else.  It reads the certificate alone and asks
    no solver."""
    assert rule.certificate is not None, rule.name
    tensors = [v.name for v in rule.variables]
    at = [read_assignment(shape, tensors) for shape in rule.certificate.shapes]
    return tuple(f"dim({a}, {i}) == dim({b}, {j})" for (a, i), (b, j) in equal_extents(at))
