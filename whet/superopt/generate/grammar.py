"""The operators that fit values of which kinds, worked out once per pair of kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from whet.core.dtypes import f32
from whet.core.errors import OperatorError
from whet.core.types import Array, Shape, TensorType
from whet.ops.base import Op
from whet.superopt.generate.compiled import U
from whet.superopt.generate.field import DRAWS, PRIME
from whet.superopt.generate.forms import Form, make_forms
from whet.superopt.generate.kinds import Kind, plain, result_kinds
from whet.superopt.generate.pools import Pool
from whet.superopt.generate.scramble import scrambled_text
from whet.superopt.rules.rule import Role

SAMPLED = 10
"""Elements that the last round of evaluation looks at first."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An operator that fits operands of certain kinds."""

    op: int
    swapped: bool
    kinds: tuple[int, ...]
    forms: tuple[Form, ...]
    samples: tuple[Form, ...]
    salt: int


class Grammar:
    """Numbers for operators and kinds, and what can be applied to what, over a pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.ops: list[Op] = []
        self.op_numbers: dict[Op, int] = {}
        self.kinds: list[Kind] = []
        self.kind_numbers: dict[Kind, int] = {}
        self.surface_of_kind: list[int] = []
        self.surfaces: dict[tuple[Shape, Role], int] = {}
        self.functionals: dict[Shape, Array] = {}
        self.forms: dict[tuple[Op, tuple[Shape, ...]], tuple[Form, ...]] = {}
        self.instances: dict[tuple[int, int], tuple[Instance, ...]] = {}
        self.fitting: dict[tuple[int, int], bool] = {}

    def op_number(self, op: Op) -> int:
        if op not in self.op_numbers:
            self.op_numbers[op] = len(self.ops)
            self.ops.append(op)
        return self.op_numbers[op]

    def kind_number(self, kind: Kind) -> int:
        if kind not in self.kind_numbers:
            self.kind_numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
            surface = (kind.shape, kind.role)
            self.surface_of_kind.append(self.surfaces.setdefault(surface, len(self.surfaces)))
        return self.kind_numbers[kind]

    def functional(self, shape: Shape) -> Array:
        """Random weights, one per draw and element, that depend on the shape alone."""
        if shape not in self.functionals:
            rng = np.random.default_rng([0xF0, *shape])
            size = int(np.prod(shape))
            self.functionals[shape] = rng.integers(1, PRIME, (DRAWS, size), dtype=np.uint64)
        return self.functionals[shape]

    def seed(self, kind: Kind) -> np.uint64:
        return U(scrambled_text(f"{kind.shape} {kind.role}"))

    def positions(self, shape: Shape) -> Array:
        size = int(np.prod(shape))
        return np.random.default_rng([0xA7, *shape]).permutation(size)[:SAMPLED].astype(np.int64)

    def forms_of(self, op: Op, shapes: tuple[Shape, ...]) -> tuple[Form, ...]:
        key = (op, shapes)
        if key not in self.forms:
            self.forms[key] = make_forms(op, shapes)
        return self.forms[key]

    def _proposals(
        self, a: Kind, b: Kind | None
    ) -> Iterator[tuple[Op, bool, tuple[TensorType, ...]]]:
        """The operators that fit the operands, and whether these are to be swapped."""
        orders: tuple[tuple[bool, tuple[Kind, ...]], ...]
        orders = ((False, (a,)),) if b is None else ((False, (a, b)), (True, (b, a)))
        for letter in self.pool.alphabet.of_arity(len(orders[0][1])):
            for swapped, kinds in orders:
                if swapped and letter.symmetric:
                    continue
                for op in letter.propose(*kinds):
                    try:
                        types = op.infer_types(tuple(TensorType(k.shape, f32) for k in kinds))
                    except OperatorError:
                        continue
                    shaped = tuple(t for t in types if isinstance(t, TensorType))
                    if len(shaped) == len(types) and all(
                        t.size <= self.pool.max_elements for t in shaped
                    ):
                        yield op, swapped, shaped

    def instances_of(self, a: int, b: int) -> tuple[Instance, ...]:
        if (a, b) not in self.instances:
            ka, kb = self.kinds[a], self.kinds[b] if b >= 0 else None
            self.instances[a, b] = tuple(
                self._instance(op, swapped, (ka,) if kb is None else (kb, ka) if swapped else
                               (ka, kb), types)
                for op, swapped, types in self._proposals(ka, kb)
            )  # fmt: skip
        return self.instances[a, b]

    def _instance(
        self, op: Op, swapped: bool, kinds: tuple[Kind, ...], types: tuple[TensorType, ...]
    ) -> Instance:
        forms = self.forms_of(op, tuple(k.shape for k in kinds))
        made = result_kinds(op, kinds, [t.shape for t in types])
        samples = tuple(f.at(self.positions(f.shape)) for f in forms)
        numbers = tuple(map(self.kind_number, made))
        salt = scrambled_text(str(op))
        return Instance(self.op_number(op), swapped, numbers, forms, samples, salt)

    def fits(self) -> Array:
        """Whether any operator takes operands of two surfaces, in either order."""
        known = list(self.surfaces)
        table = np.zeros((len(known), len(known)), np.uint8)
        for i, (shape, role) in enumerate(known):
            for j in range(i, len(known)):
                if (i, j) not in self.fitting:
                    other, other_role = known[j]
                    a, b = plain(shape, role), plain(other, other_role)
                    self.fitting[i, j] = any(
                        True for x, y in ((a, b), (b, a)) for _ in self._proposals(x, y)
                    )
                table[i, j] = table[j, i] = self.fitting[i, j]
        return table
