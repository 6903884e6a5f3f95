"""Rules as text for people: both sides as trees, and the proof in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from whet.graph.terms import Apply, Term
from whet.ops.base import Law
from whet.superopt.rules.rule import Rule


def draw(rule: Rule) -> str:
    """Both sides of the rule, one tree per output.

    conv  strides=s, pads=p
    |- x  activation, 4 axes
    `- w  weight, 4 axes
    """
    kinds = {v.name: f"{v.role}, {v.rank} axes" for v in rule.variables}
    lines = [f"rule {rule.name}"]
    lines += [f"when {guard}" for guard in rule.when]
    for side, terms in (("left", rule.left), ("right", rule.right)):
        lines += ["", f"{side}:"]
        for n, term in enumerate(terms):
            if len(terms) > 1:
                lines.append(f"  output {n}")
            lines += [f"  {line}" for line in _tree(term, kinds, "", "")]
    return "\n".join(lines)


def _tree(term: Term, kinds: Mapping[str, str], first: str, rest: str) -> Iterator[str]:
    if not isinstance(term, Apply):
        yield f"{first}{term}  {kinds.get(str(term), '')}".rstrip()
        return
    attributes = ", ".join(f"{k}={v}" for k, v in term.attributes)
    picked = "" if term.result is None else f"[{term.result}]"
    yield f"{first}{term.op}{picked}  {attributes}".rstrip()
    for n, inner in enumerate(term.inputs):
        last = n == len(term.inputs) - 1
        branch, below = ("`- ", "   ") if last else ("|- ", "|  ")
        yield from _tree(inner, kinds, rest + branch, rest + below)


def explain(rule: Rule, laws: Mapping[str, Law]) -> str:
    """Why the rule is believed."""
    certificate = rule.certificate
    assert certificate is not None, rule.name
    words = {"exact": "gives the same bits", "real": "is equal over the reals"}
    lines = [f"{rule.name} {words[rule.numeric]}.", ""]
    lines.append(f"Proved by {certificate.solver} from:")
    for name in certificate.axioms:
        law = laws.get(name)
        text = law.text if law is not None else "(a law that is not known here)"
        when = f"  when {', '.join(law.when)}" if law is not None and law.when else ""
        lines.append(f"  {name}: {text}{when}")
    if not certificate.axioms:
        lines.append("  nothing: both sides are the same term")
    if rule.given:
        lines += ["", "Taken from types, and checked wherever the rule is used:"]
        lines += [f"  {equation}" for equation in rule.given]
    lines += ["", f"Tested modulo {certificate.prime} with seed {certificate.seed} at:"]
    lines += [f"  {shape}" for shape in certificate.shapes]
    lines += ["", "Equal as polynomials in all elements at:"]
    lines += [f"  {shape}" for shape in certificate.symbolic]
    return "\n".join(lines)
