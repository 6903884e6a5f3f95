"""Steps that concern a graph as a whole: they join operators too far apart for one block.

    step 1: matmul(x1, w), ..., step 9: matmul(x9, w)   ->   split(matmul(concat(x1, ..., x9), w))

Such a step is judged by the price of the whole graph.
"""

from __future__ import annotations

from whet.graph.graph import Constant, Graph, Result
from whet.joint.blocks import SMALLEST
from whet.joint.moves import hoist_slices, lift_epilogues
from whet.joint.search import Step
from whet.superopt.apply.axis_rules import merge_rewrites
from whet.superopt.apply.rewrite import CycleError, Part, Rewrite, applied, disjoint


def far_steps(graph: Graph) -> list[Step]:
    """Slices moved to where they cost least, and products of all steps of a recurrence."""
    part = Part(graph.inputs, graph.outputs)
    found = []
    hoisted = hoist_slices(part)
    if hoisted is not None:
        found.append(hoisted)
    by_kind: dict[object, list[Rewrite]] = {}
    for rewrite in merge_rewrites(part):
        if _recurs(part, rewrite):
            kind = (rewrite.rule, tuple(v.type for v in rewrite.old))
            by_kind.setdefault(kind, []).append(rewrite)
    for rewrites in by_kind.values():
        chosen = disjoint(rewrites)
        try:
            made = applied(part, chosen)
        except CycleError:
            continue
        found.append((tuple(chosen), made))
        lifted = lift_epilogues(made)
        if lifted is not None:
            found.append(((*chosen, *lifted[0]), lifted[1]))
    return found


def _recurs(part: Part, rewrite: Rewrite) -> bool:
    """Whether the operators use one weight at places that are too far apart for one block: the
    steps of a recurrence."""
    nodes = [v.node for v in rewrite.old if isinstance(v, Result)]
    shared = set.intersection(*(set(node.inputs) for node in nodes))
    if not any(isinstance(v, Constant) and v.tensor_type.size > 1 for v in shared):
        return False
    at = [part.levels[node] for node in nodes]
    return max(at) - min(at) > SMALLEST
