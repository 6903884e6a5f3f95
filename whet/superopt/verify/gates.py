"""All gates together: what becomes of a rule.

proved    all three gates agree that it holds: it gets its certificate
refuted   there is a counterexample; where a guard excludes it, the guarded rule is tried
unproved  nothing speaks against it, but the laws do not suffice: a law is missing
alarm     one gate accepts what another refutes: a law, an operator or a gate is wrong; or
          another seed, with other shapes, leads to another outcome
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.core.executor import Executor, Progress, Serial
from whet.graph.terms import tensor_names
from whet.ops.base import Numeric
from whet.superopt.rules.rule import Certificate, Rule
from whet.superopt.verify import journal
from whet.superopt.verify.axioms import laws
from whet.superopt.verify.bounded import check_bounded
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.field import PRIME
from whet.superopt.verify.guards import candidate_guards, equal_shapes, inner_axes
from whet.superopt.verify.identity import Counterexample, check_identity
from whet.superopt.verify.prover import Proof, Prover
from whet.superopt.verify.report import Outcome, Report as Report
from whet.superopt.verify.solver import SOLVER
from whet.superopt.verify.theory import with_lemmas


def claim(rule: Rule) -> Claim:
    ranks = tuple((v.name, v.rank) for v in rule.variables)
    return Claim(ranks, rule.left, rule.right, rule.guards)


def verify(rule: Rule, prover: Prover, seed: int = 0) -> Report:
    """Run a rule through all gates; if it is refuted, also with guards that may save it."""
    judged = _judge(rule, prover, seed)
    return _saved(judged, prover, seed) or judged.report


def verify_as_stated(rule: Rule, prover: Prover, seed: int = 0) -> Report:
    """Run a rule through all gates without changing it."""
    return _judge(rule, prover, seed).report


@dataclass(frozen=True, slots=True)
class _Judged:
    """A report, and where the rule is wrong if it is."""

    report: Report
    wrong: Counterexample | None = None


def _judge(rule: Rule, prover: Prover, seed: int) -> _Judged:
    problem = _ill_formed(rule)
    if problem:
        return _Judged(Report(rule, "refuted", (("form", problem),)))
    tested = claim(rule)
    numeric = check_identity(tested, seed)
    if not numeric.at:
        why = (("identity", numeric.problem),)
        return _Judged(Report(rule, "unproved", why, hint=numeric.problem))
    # A proof of what a counterexample refutes would be an alarm, so the prover is asked anyway.
    began = time.process_time()
    replayed = rule.certificate.axioms if rule.certificate is not None else None
    known = replayed if replayed is not None else rule.stated_by or None
    proof = prover.prove(tested, numeric.at, known)
    took = time.process_time() - began
    symbolic = check_bounded(tested, seed)
    wrong = numeric.counterexample or symbolic.counterexample
    if proof.proved and wrong is not None:
        # What held at all shapes by chance was assumed: with the counterexample among them only
        # what types demand is left.
        proof = prover.prove(tested, (*numeric.at, wrong.at))
    gates = (
        ("prover", "proved" if proof.proved else proof.problem),
        ("identity", _answer(numeric.passed, numeric.counterexample, numeric.problem)),
        ("bounded", _answer(symbolic.passed, symbolic.counterexample, symbolic.problem)),
    )
    if wrong is not None:
        accepted = proof.proved or numeric.passed or symbolic.passed
        # A gate that saw only a few shapes has not accepted: its shapes may all be harmless.
        disagree = accepted and (proof.proved or _seen_by(symbolic.at, numeric.at, wrong))
        outcome: Outcome = "alarm" if disagree else "refuted"
        return _Judged(Report(rule, outcome, gates, str(wrong), proving=took), wrong)
    if proof.proved and numeric.passed and symbolic.passed:
        certificate = _certificate(proof, numeric.at, symbolic.at, seed)
        proved = dataclasses.replace(rule, numeric=_numeric(proof, prover)).proved(certificate)
        return _Judged(Report(proved, "proved", gates, proving=took))
    return _Judged(Report(rule, "unproved", gates, hint=_hint(rule, gates), proving=took))


def _seen_by(
    symbolic: Sequence[Assignment], numeric: Sequence[Assignment], wrong: Counterexample
) -> bool:
    """Whether both numeric gates looked at the very assignment of the counterexample."""
    return wrong.at in symbolic and wrong.at in numeric


def _answer(passed: bool, wrong: Counterexample | None, problem: str) -> str:
    return "passed" if passed else str(wrong) if wrong is not None else problem


def _ill_formed(rule: Rule) -> str:
    declared = {v.name for v in rule.variables}
    left = {n for t in rule.left for n in tensor_names(t)}
    right = {n for t in rule.right for n in tensor_names(t)}
    if (left | right) - declared:
        return f"undeclared variables: {', '.join(sorted((left | right) - declared))}"
    if not (right <= left or left <= right):
        return "neither side determines all variables of the other"
    if len(rule.lhs) != len(rule.rhs):
        return f"{len(rule.lhs)} outputs against {len(rule.rhs)}"
    return ""


def _numeric(proof: Proof, prover: Prover) -> Numeric:
    exact = all(prover.laws[name].numeric == "exact" for name in proof.axioms)
    return "exact" if exact else "real"


def _certificate(
    proof: Proof, numeric: Sequence[Assignment], symbolic: Sequence[Assignment], seed: int
) -> Certificate:
    shapes, small = tuple(map(str, numeric)), tuple(map(str, symbolic))
    return Certificate(proof.axioms, SOLVER, PRIME, seed, shapes, small)


def _hint(rule: Rule, gates: Sequence[tuple[str, str]]) -> str:
    """The knowledge that a proof of the rule lacks."""
    answers = dict(gates)
    if answers["prover"] != "proved":
        equations = "; ".join(f"{a} = {b}" for a, b in zip(rule.lhs, rule.rhs))
        return f"a law is missing from which this follows: {equations}"
    undecided = next(g for g, a in gates if a not in ("proved", "passed"))
    return f"the {undecided} gate cannot tell: {answers[undecided]}"


# ------------------------------------------------------------------------------ guard synthesis
def _saved(judged: _Judged, prover: Prover, seed: int) -> Report | None:
    """The report on a refuted rule with guards that no gate refutes, if some are found."""
    if judged.wrong is None or judged.report.outcome != "refuted":
        return None
    rule = judged.report.rule
    for guards in candidate_guards(rule, judged.wrong):
        guarded = rule.guarded(*guards)
        # A quick look first: most guards save nothing.
        if check_identity(claim(guarded), seed, shapes=6).passed:
            retried = verify_as_stated(guarded, prover, seed)
            if retried.outcome in ("proved", "unproved"):
                return dataclasses.replace(retried, added_guards=guards)
    return None


def _aligned(judged: _Judged, prover: Prover, seed: int) -> Report | None:
    """The proof of an unproved rule for inputs of one shape, or with an equation between channels
    that types do not demand, if there is one.

    Whether shapes refute a rule that holds without broadcasts alone, or leave it unproved, is a
    matter of which were drawn; with this, what becomes of it is not.
    """
    if judged.report.outcome != "unproved":
        return None
    rule = judged.report.rule
    for guard in (*equal_shapes(rule), *inner_axes(rule)):
        retried = verify_as_stated(rule.guarded(guard), prover, seed)
        if retried.outcome == "proved":
            return dataclasses.replace(retried, added_guards=(guard,))
    return None


# ------------------------------------------------------------------------------------- batches
@functools.cache
def shared_prover() -> Prover:
    """One prover per process, with the lemmas proved: its axioms are translated once."""
    return with_lemmas(Prover(laws()))


@dataclass(frozen=True, slots=True)
class _Batch:
    """The knowledge of a worker for some groups of forms."""

    groups: tuple[tuple[Rule, ...], ...]
    seed: int
    folder: str | None


def _verify_batch(batch: _Batch) -> tuple[Report, ...]:
    """For an executor: a report on each group of forms, kept in the folder if there is one."""
    reports = []
    for forms in batch.groups:
        if batch.folder is None:
            reports.append(_first_proved(forms, shared_prover(), batch.seed))
            continue
        path = journal.path_of(Path(batch.folder), forms, batch.seed)
        report = journal.load(path)
        if report is None:
            report = _first_proved(forms, shared_prover(), batch.seed)
            journal.store(path, report)
        reports.append(report)
    return tuple(reports)


def _first_proved(forms: Sequence[Rule], prover: Prover, seed: int) -> Report:
    """The report on the first form that is proved as it stands, or else can be with guards, or
    else on the last."""
    refused = []
    for form in forms:
        judged = _judge(form, prover, seed)
        if judged.report.outcome in ("proved", "alarm"):
            return judged.report
        refused.append(judged)
    for judged in refused:
        guarded = _saved(judged, prover, seed) or _aligned(judged, prover, seed)
        if guarded is not None and guarded.outcome == "proved":
            return guarded
    return refused[-1].report


def verify_forms(
    groups: Sequence[tuple[Rule, ...]],
    seed: int = 0,
    executor: Executor | None = None,
    progress: Progress | None = None,
    batch: int = 4,
    folder: Path | None = None,
) -> tuple[Report, ...]:
    """Reports on groups of claims of falling generality, one per group, in their order; the
    same whatever the executor.

    With a folder, reports are kept there and those that are there are not found out again.
    """
    kept = None if folder is None else str(folder)
    batches = [
        _Batch(tuple(groups[n : n + batch]), seed, kept) for n in range(0, len(groups), batch)
    ]
    done = (executor or Serial()).map(_verify_batch, batches, progress=progress)
    return tuple(report for reports in done for report in reports)


def verify_all(
    rules: Sequence[Rule],
    seed: int = 0,
    executor: Executor | None = None,
    progress: Progress | None = None,
    batch: int = 4,
) -> tuple[Report, ...]:
    """Reports on rules, in their order."""
    return verify_forms([(rule,) for rule in rules], seed, executor, progress, batch)


def verify_with_seeds(
    rules: Sequence[Rule],
    seeds: Sequence[int],
    executor: Executor | None = None,
    progress: Progress | None = None,
    batch: int = 4,
) -> tuple[Report, ...]:
    """Reports on rules with the first seed; where another seed leads to another outcome, which of
    them is right is a matter of luck, and the report is an alarm."""
    found = [verify_all(rules, seed, executor, progress, batch) for seed in seeds]
    return tuple(_agreed(seeds, reports) for reports in zip(*found))


def _agreed(seeds: Sequence[int], reports: Sequence[Report]) -> Report:
    first = reports[0]
    if all(r.outcome == first.outcome and r.rule.when == first.rule.when for r in reports):
        return first
    said = (
        f"{r.outcome} with seed {seed}{''.join(f' when {g}' for g in r.added_guards)}"
        for seed, r in zip(seeds, reports)
    )
    wrong = next((r.counterexample for r in reports if r.counterexample), "")
    gates = (*first.gates, ("seeds", "; ".join(said)))
    rule = dataclasses.replace(first.rule, certificate=None)
    return dataclasses.replace(first, rule=rule, outcome="alarm", gates=gates, counterexample=wrong)
