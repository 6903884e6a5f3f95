"""The tensor expressions of a group of nodes, with stages inlined and names made canonical."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from whet.ir.affine import rebuild, substitute
from whet.ir.expr import Call, Const, Expr, Read, Reduce, call, const, equal, select
from whet.ir.functions import COSTLY
from whet.ir.tensor import Compute, Placeholder, Tensor, stages, subexpressions
from whet.tasks.wiring import Wiring


def group_tensors(wiring: Wiring) -> tuple[list[Compute], dict[Tensor, int]]:
    """The outputs of a group as tensor expressions, and the sources behind its placeholders.

    Placeholders are x0, x1, ... in order of use and stages s0, s1, ..., so that equal
    computations have equal expressions whatever the model called them.  Constants of one
    element become literals.
    """
    known: list[Tensor] = [
        Placeholder(f"x{n}", s.type.shape, s.type.dtype, s.finite)
        for n, s in enumerate(wiring.sources)
    ]
    placeholders = tuple(known)
    for op, inputs in wiring.nodes:
        known += op.compute_tensors(tuple(known[n] for n in inputs))
    literals = {
        t: const(np.frombuffer(s.literal, t.dtype.numpy).item(), t.dtype)
        for t, s in zip(placeholders, wiring.sources)
        if s.literal is not None
    }
    tensors = rewrite_stages(
        [known[n] for n in wiring.outputs],
        lambda e: literals.get(e.tensor) if isinstance(e, Read) else None,
    )
    tensors = rewrite_stages(tensors, cheaper_power)
    used = {t for t in stages(tensors) if isinstance(t, Placeholder)}
    return tensors, {t: n for n, t in enumerate(placeholders) if t in used}


def cheaper_power(e: Expr) -> Expr | None:
    """Powers with a small known exponent as products, quotients or roots.

    pow(x, 2) -> x * x   pow(x, -1) -> 1 / x   pow(x, 0.5) -> select(x == -inf, inf, sqrt(x + 0.0))

    Exact, whatever the numerics: these powers are defined as rounded correctly, as products and
    roots are, and the root of -inf, which is NaN, and that of -0.0, which is -0.0, are not used.
    """
    if not (isinstance(e, Call) and e.name == "pow" and isinstance(e.args[1], Const)):
        return None
    base, exponent = e.args[0], e.args[1].value
    if exponent == 2:
        return base * base
    if exponent == 1:
        return base
    if exponent == -1 and base.dtype.is_float:
        return const(1.0, base.dtype) / base
    if exponent == 0.5 and base.dtype.is_float:
        lowest, highest = const(-math.inf, base.dtype), const(math.inf, base.dtype)
        return select(equal(base, lowest), highest, call("sqrt", base + 0.0))
    return None


def rewrite_stages(
    outputs: Sequence[Tensor], change: Callable[[Expr], Expr | None]
) -> list[Compute]:
    """The same stages with expressions replaced, all readers updated."""
    now: dict[Tensor, Tensor] = {}

    def visit(e: Expr) -> Expr:
        changed = change(e)
        if changed is not None:
            return changed
        if isinstance(e, Read):
            tensor = now.get(e.tensor, e.tensor)
            return Read(tensor, tuple(visit(i) for i in e.indices))
        return e if not e.children() else rebuild(e, [visit(c) for c in e.children()])

    for stage in stages(outputs):
        if isinstance(stage, Compute):
            now[stage] = Compute(stage.name, stage.axes, visit(stage.body))
    result = [now.get(t, t) for t in outputs]
    return [t for t in result if isinstance(t, Compute)]


def inline_stages(outputs: Sequence[Compute], keep: Callable[[Compute], bool]) -> list[Compute]:
    """The outputs with every stage that need not be kept written into its readers.

    t[i] = x[i] * 2; y[i] = t[i] + 1     ->     y[i] = x[i] * 2 + 1
    """
    wanted = set(outputs)
    now: dict[Tensor, Tensor] = {}
    bodies: dict[Tensor, Compute] = {}

    def visit(e: Expr, memo: dict[Expr, Expr]) -> Expr:
        if e not in memo:
            children = [visit(c, memo) for c in e.children()]
            if isinstance(e, Read) and e.tensor in bodies:
                inner = bodies[e.tensor]
                memo[e] = substitute(inner.body, dict(zip(inner.axes, children)))
            elif isinstance(e, Read):
                memo[e] = Read(now.get(e.tensor, e.tensor), tuple(children))
            else:
                memo[e] = rebuild(e, children) if children else e
        return memo[e]

    for stage in stages(outputs):
        if not isinstance(stage, Compute):
            continue
        new = Compute(f"s{len(now)}", stage.axes, visit(stage.body, {}))
        now[stage] = new
        if stage not in wanted and not keep(stage):
            bodies[stage] = new
    result = [now[t] for t in outputs]
    return [t for t in result if isinstance(t, Compute)]


def keep_reductions_and_costly(outputs: Sequence[Compute]) -> Callable[[Compute], bool]:
    """Keeps reductions, and element-wise stages that are dear and read more than once."""
    readers: dict[Tensor, int] = {}
    for stage in stages(outputs):
        if isinstance(stage, Compute):
            for e in subexpressions(stage.body):
                if isinstance(e, Read):
                    readers[e.tensor] = readers.get(e.tensor, 0) + 1

    def keep(stage: Compute) -> bool:
        inner = list(subexpressions(stage.body))
        if any(isinstance(e, Reduce) for e in inner):
            return True
        costly = any(isinstance(e, Call) and e.name in COSTLY for e in inner)
        return costly and readers.get(stage, 0) > 1

    return keep


def nothing(stage: Compute) -> bool:
    """Keeps no stage: everything becomes one expression."""
    return False


def canonical(
    outputs: Sequence[Compute], sources: Mapping[Tensor, int]
) -> tuple[list[Compute], dict[Tensor, int]]:
    """Stages renamed s0, s1, ... and placeholders x0, x1, ... in order of use."""
    now: dict[Tensor, Tensor] = {}
    for t in stages(outputs):
        if isinstance(t, Placeholder):
            count = sum(isinstance(x, Placeholder) for x in now.values())
            now[t] = replace(t, name=f"x{count}")

    def visit(e: Expr) -> Expr:
        if isinstance(e, Read):
            return Read(now[e.tensor], tuple(visit(i) for i in e.indices))
        return e if not e.children() else rebuild(e, [visit(c) for c in e.children()])

    for t in stages(outputs):
        if isinstance(t, Compute):
            count = sum(isinstance(x, Compute) for x in now.values())
            now[t] = Compute(f"s{count}", t.axes, visit(t.body))
    renamed = [now[t] for t in outputs]
    return (
        [t for t in renamed if isinstance(t, Compute)],
        {now[t]: v for t, v in sources.items() if t in now},
    )
