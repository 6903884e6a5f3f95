"""Tiles of warps: products of matrices by tensor cores."""

from __future__ import annotations

from collections.abc import Callable

from whet.ir.expr import Expr, Read, Var, call, const
from whet.ir.functions import TF32_ROUNDING
from whet.ir.program import Allocate, Block, Buffer, Stmt, Store
from whet.ir.threads import MatrixLoad, MatrixMultiplyAdd
from whet.schedule.families.gpu_contraction.match import Tiling
from whet.schedule.families.gpu_contraction.tile import Factors, Tile
from whet.schedule.program.loops import loop

SIDE = 16
"""Rows of a matrix."""


class WarpTiles:
    """tm x tn results of every warp, as matrices of 16 x 16."""

    def __init__(
        self, factors: Factors, t: Tiling, warp: Expr, lane: Expr, name: str = "acc"
    ) -> None:
        self.t, self.products = t, factors.leaf.products
        across = t.bn // t.tn
        self.row, self.column = warp // across * t.tm, warp % across * t.tn
        self.down, self.across = t.tm // SIDE, t.tn // SIDE
        self.k = factors.leaf.depth(factors.a)
        shape = (self.down, self.across, SIDE, SIDE)
        self.acc = Buffer(name, shape, factors.total, scope="fragment")
        self.part = Buffer("part", shape, factors.total, scope="fragment")
        self.left = Buffer("of_a", (self.down, SIDE, self.k), factors.a, scope="fragment")
        self.right = Buffer("of_b", (self.across, SIDE, self.k), factors.b, scope="fragment")
        self.i, self.j, self.e = Var("i"), Var("j"), Var("e")
        known = zip((self.left, self.right), factors.is_rounded)
        self.unrounded = [x for x, done in known if factors.leaf.rounds and not done]

    @property
    def registers(self) -> tuple[Buffer, ...]:
        return (self.acc,)

    @property
    def place(self) -> tuple[Expr, Expr]:
        """Row and column of an element of a matrix of sums."""
        return self.e // SIDE, self.e % SIDE

    def each(self, *body: Stmt) -> Stmt:
        """The statements for every matrix of sums."""
        row = loop(self.j, self.across, *body, kind="unroll")
        return loop(self.i, self.down, row, kind="unroll")

    def elements(self, stmt: Stmt) -> Stmt:
        """The statement for every element of every matrix of sums."""
        return self.each(loop(self.e, SIDE * SIDE, stmt, kind="fragment"))

    def zero(self) -> tuple[Stmt, ...]:
        at = (self.i, self.j, *self.place)
        return (self.elements(Store(self.acc, at, const(0, self.acc.dtype))),)

    def scaled(self, factor: Callable[[Expr], Expr]) -> Stmt:
        """Every sum times a factor, given by its row."""
        row, column = self.place
        at = (self.i, self.j, row, column)
        by = factor(self.row + self.i * SIDE + row)
        return self.elements(Store(self.acc, at, Read(self.acc, at) * by))

    def multiply(
        self, a: Tile, b: Tile, beside: Callable[[Expr, int], Block] = lambda group, groups: ()
    ) -> Block:
        """The products of a stage; beside those of each of its groups goes what is given by the
        number of the group and the number of groups."""
        i, j, group, groups = self.i, self.j, Var("group"), self.t.bk // self.k
        k = group * self.k
        left_at, right_at = a.at(self.row + i * SIDE, k), b.at(self.column + j * SIDE, k)
        left = MatrixLoad(self.left, (i,), a.buffer, left_at, a.turned)
        right = MatrixLoad(self.right, (j,), b.buffer, right_at, b.turned)
        body: Block = (
            loop(i, self.down, left, kind="unroll"),
            loop(j, self.across, right, kind="unroll"),
            *beside(group, groups),
        )
        if self.products == 1:
            body += tuple(self.rounded(factor) for factor in self.unrounded)
            body += (self.product(self.acc, self.left, self.right),)
        else:
            body = self.split(body)
        held = Allocate(self.left, (Allocate(self.right, body),))
        products = loop(group, groups, held, kind="unroll")
        return (products,) if self.products == 1 else (self.added(products),)

    def product(self, total: Buffer, left: Buffer, right: Buffer) -> Stmt:
        """The products of all pairs of matrices, added to sums."""
        i, j = self.i, self.j
        return self.each(MatrixMultiplyAdd(total, (i, j), left, (i,), right, (j,)))

    def added(self, products: Stmt) -> Stmt:
        """The sums of a stage on their own, and then added to those of earlier stages.

        Tensor cores cut sums off where they would have to be rounded, always towards zero, so that
        errors of long sums grow with their length; additions of threads round.
        """
        at = (self.i, self.j, *self.place)
        zero = self.elements(Store(self.part, at, const(0, self.part.dtype)))
        total = self.elements(Store(self.acc, at, Read(self.acc, at) + Read(self.part, at)))
        return Allocate(self.part, (zero, products, total))

    def split(self, loads: Block) -> Block:
        """The products of factors in two parts, small ones first.

        a * b  ->  low(a) * high(b) + high(a) * low(b) + high(a) * high(b)

        Products cut factors off by themselves, so that their high parts need not be made.
        """
        low = [Buffer(f"low_{x.name}", x.shape, x.dtype, scope="fragment")
               for x in (self.left, self.right)]  # fmt: skip
        body: Block = (
            *loads,
            self.each_number(self.left, lambda x, at: Store(low[0], at, low_part(x))),
            self.each_number(self.right, lambda x, at: Store(low[1], at, low_part(x))),
            self.product(self.part, low[0], self.right),
            self.product(self.part, self.left, low[1]),
            self.product(self.part, self.left, self.right),
        )
        for matrices in low:
            body = (Allocate(matrices, body),)
        return body

    def rounded(self, factor: Buffer) -> Stmt:
        """Numbers of which products cut off no more on average than they were made larger by."""
        return self.each_number(factor, lambda x, at: Store(factor, at, x * TF32_ROUNDING))

    def each_number(self, factor: Buffer, change: Callable[[Expr, tuple[Expr, ...]], Stmt]) -> Stmt:
        """The statement for every number of a factor, which gets it and its place."""
        number, count = (self.i, self.down) if factor is self.left else (self.j, self.across)
        at = (number, self.e // self.k, self.e % self.k)
        matrix = loop(self.e, SIDE * self.k, change(Read(factor, at), at), kind="fragment")
        return loop(number, count, matrix, kind="unroll")

    def share(self, sums: Tile) -> list[Stmt]:
        """The sums, where other threads see them."""
        i, j, (row, column) = self.i, self.j, self.place
        at = sums.at(self.row + i * SIDE + row, self.column + j * SIDE + column)
        return [self.elements(Store(sums.buffer, at, Read(self.acc, (i, j, row, column))))]


def low_part(x: Expr) -> Expr:
    """What a product leaves of a number: three instructions instead of the seven that rounded parts
    would take.

    Products cut it off as well; without the factor all results would be too small by 2e-7, which
    the layers of a network add up.
    """
    return (x - call("tf32_cut", x)) * TF32_ROUNDING
