"""Matrix products and einsum."""

from __future__ import annotations

from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from tools.graph_fuzz.shapes import draw_extent
from whet.core.types import Shape

MOST_TERMS = 1 << 16
"""Products of numbers in one matrix product."""


def _matrix_shape(g: Growth) -> Shape:
    return g.shape(g.draw.pick([1, 2, 2, 2, 3, 4]), most=1500)


@generates("MatMul")
def matmul(g: Growth, name: str) -> Held:
    a = g.tensor(g.types(name), rank=range(1, 5), shape=lambda: _matrix_shape(g),
                 where=lambda v: v.size <= 2500)  # fmt: skip
    turned = g.draw.chance(0.25)
    inner = a.shape[-2] if turned and a.rank > 1 else a.shape[-1]
    other = draw_extent(g.draw, max(1, MOST_TERMS // max(a.size, 1)))
    lead: Shape = ()
    if a.rank > 2 and g.draw.chance(0.6):
        lead = tuple(1 if g.draw.chance(0.3) else d for d in a.shape[:-2])
    elif a.rank == 2 and g.draw.chance(0.15):
        lead = (g.draw.integer(1, 3),)
    if turned and a.rank > 1:
        shape = (*lead, other, inner)
    else:
        shape = (inner,) if g.draw.chance(0.1) else (*lead, inner, other)
    b = _weights(g, a, shape, inner)
    operands = (b, a) if turned and a.rank > 1 else (a, b)
    return g.emit(name, *operands)


def _weights(g: Growth, like: Held, shape: Shape, fan: int) -> Held:
    found = [v for v in g.visible()[-20:] if v.dtype == like.dtype and v.shape == shape]
    if found and g.draw.chance(0.5):
        return g.draw.pick(found)
    return g.scaled(like.dtype, shape, fan)


@generates("Gemm")
def gemm(g: Growth, name: str) -> Held:
    a = g.tensor(g.types(name), rank=2, where=lambda v: v.size <= 2500)
    trans_a, trans_b = g.draw.pick([None, 0, 1]), g.draw.pick([None, 0, 1])
    rows, inner = a.shape[::-1] if trans_a else a.shape
    columns = draw_extent(g.draw, max(1, MOST_TERMS // max(a.size, 1)))
    b = _weights(g, a, (columns, inner) if trans_b else (inner, columns), inner)
    numbers = [None if g.draw.chance(0.5) else g.draw.pick([0.5, 2.0, -1.0, 0.0]) for _ in "ab"]
    if not a.dtype.is_float:
        numbers = [None if n is None else float(int(n)) for n in numbers]
    bias = None
    if g.opset < 11 or g.draw.chance(0.6):
        shapes: list[Shape] = [(), (columns,), (rows, columns), (1, columns), (rows, 1), (1,)]
        bias = g.same(a.dtype, g.draw.pick(shapes))
    return g.emit(name, a, b, bias, transA=trans_a, transB=trans_b, alpha=numbers[0],
                  beta=numbers[1])  # fmt: skip


EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", "ij,kj->ik", "i,i->",
    "i,j->ij", "ij->ji", "ij->", "ij->i", "ij->j", "ii->i", "ii->", "...ij,...jk->...ik",
    "...i,...i->...",
    "bi,bi->b", "ij,j->i", "ijk,kl->ijl", "ij,jk,kl->il", "abc,cd->abd", "bqhd,bkhd->bhqk",
    "ij,ij->ij", "ab,bc", "ij,i->ji",
)  # fmt: skip


@generates("Einsum")
def einsum(g: Growth, name: str) -> Held:
    """Axes of one letter have one extent; sometimes the first operand is one that is there."""
    equation = g.draw.pick(EQUATIONS)
    terms = equation.split("->")[0].replace("...", "Z").split(",")
    dtype = g.dtype(g.types(name))
    extents: dict[str, int] = {}
    first = [v for v in g.visible() if v.dtype == dtype and v.rank == len(terms[0])
             and v.size <= 1500 and _binds(terms[0], v.shape, extents)]  # fmt: skip
    operands: list[Held] = []
    if first and g.draw.chance(0.8):
        chosen = g.draw.pick(first)
        extents = dict(zip(terms[0], chosen.shape))
        operands.append(chosen)
    work = 1
    for term in terms[len(operands) :]:
        for letter in term:
            most = max(1, MOST_TERMS // max(work, 1))
            extents.setdefault(letter, draw_extent(g.draw, min(33, most)))
        shape = tuple(extents[x] for x in term)
        operands.append(g.scaled(dtype, shape, max(shape, default=1), constant=0.4))
        work = 1
        for d in extents.values():
            work *= max(d, 1)
    if work > MOST_TERMS:
        raise Impossible
    return g.emit(name, *operands, equation=equation)


def _binds(term: str, shape: Shape, extents: dict[str, int]) -> bool:
    found: dict[str, int] = {}
    return all(found.setdefault(x, d) == d for x, d in zip(term, shape))
