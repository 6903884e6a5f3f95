"""Conditions for the use of a rule, besides its guards.

A proof takes some things from types: `matmul(x, w)` would have none unless
`dim(x, 1) == dim(w, 0)`.  It learns them from the shapes of its certificate, at all of which they
hold.  However well those were chosen, they are a sample, so nothing may rest on them: whoever
applies a rule checks these equations as well as its guards.  Where types demand them, they are
true anyway; where they held by chance, the rule is used only where its proof is valid.
"""

from __future__ import annotations

from whet.superopt.rules.rule import Rule
from whet.superopt.verify.claims import read_assignment
from whet.superopt.verify.extents import equal_extents


def assumed(rule: Rule) -> tuple[str, ...]:
    """`dim(x, 1) == dim(w, 0)` for all extents that agree at all shapes of the certificate."""
    assert rule.certificate is not None, rule.name
    tensors = [v.name for v in rule.variables]
    at = [read_assignment(shape, tensors) for shape in rule.certificate.shapes]
    return tuple(f"dim({a}, {i}) == dim({b}, {j})" for (a, i), (b, j) in equal_extents(at))
