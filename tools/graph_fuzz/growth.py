"""A model that grows node by node, together with its values.

Every node is converted by the front end and evaluated by the interpreter when it is added, so
that whatever draws the next one knows types and numbers: it can stay inside an index range, or
leave out a division by zero.  A node that the front end refuses is noted and left out.
"""

from __future__ import annotations

import contextlib
import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tools.graph_fuzz.draw import Draw
from tools.graph_fuzz.schemas import TO_ONNX, declared_types
from tools.graph_fuzz.shapes import MOST_ELEMENTS, draw_rank, draw_shape
from tools.graph_fuzz.values import COMMON, WEIGHTS, draw_array
from whet.core.dtypes import ALL, DType, i64
from whet.core.errors import UnsupportedError, WhetError
from whet.core.types import Array, Shape, TensorType, type_of
from whet.frontend.onnx.convert import NodeConverter, Reported, Scope
from whet.frontend.onnx.external import ExternalData
from whet.frontend.onnx.load import Source
from whet.frontend.onnx.mapping import NeedsValue, Unsupported
from whet.frontend.onnx.problems import Problems
from whet.graph.build import GraphBuilder
from whet.graph.export_operators import NATIVE_DOMAIN
from whet.graph.graph import Constant, Result, Value

DOMAINS = {
    "ai.onnx.ml": 5, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1, NATIVE_DOMAIN: 1,
}  # fmt: skip
"""Versions of the other operator sets."""
LARGEST = {"f16": 3e4}
"""Beyond this (1e6 for other types) a value is too large to compute on with."""
RECENT = 14
"""Operands are mostly chosen among so many values that were made last."""


class Impossible(Exception):  # noqa: N818 - a signal to draw something else
    """The operator cannot be drawn here."""


class Broken(Exception):  # noqa: N818 - a signal that the model is complete as it is
    """The front end or a reference failed in a way that it must not."""


@dataclass(frozen=True, eq=False)
class Held:
    """A tensor of the model, with its value on the model's inputs."""

    name: str
    array: Array

    @property
    def type(self) -> TensorType:
        return type_of(self.array)

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
        return int(self.array.size)


@dataclass(frozen=True, eq=False)
class Opaque:
    """A sequence or an optional of the model."""

    name: str


Operand = Held | Opaque | None


@dataclass(frozen=True)
class Given:
    """An input of the model."""

    name: str
    array: Array
    sizes: bool = False
    """Whether its value decides shapes."""


class Growth:
    """Values, nodes and how to add more.

    `outer` is the model around a subgraph, whose values it sees unless it is `closed`.  A
    `common` model prefers element types that all implementations have.
    """

    def __init__(
        self, draw: Draw, opset: int, style: str, *, empty: bool = False,
        common: bool = False, outer: Growth | None = None, closed: bool = False,
    ) -> None:  # fmt: skip
        self.draw, self.opset, self.style, self.empty, self.outer = draw, opset, style, empty, outer
        self.closed, self.common = closed, common
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[Given] = []
        self.pool: list[Held] = []
        self.read: set[str] = set()
        self.refusals: list[tuple[str, str]] = outer.refusals if outer else []
        if outer is None:
            self.builder = GraphBuilder()
            self.numbers: dict[Value, Array] = {}
            self.count = [0]
            self.scope = Scope(ChainMap({}), {"": opset, **DOMAINS})
        else:
            self.builder, self.numbers, self.count = outer.builder, outer.numbers, outer.count
            self.scope = outer.scope.inner()

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else self.outer.depth + 1

    @property
    def special(self) -> bool:
        """Whether NaN and infinities are welcome."""
        return self.style == "special"

    # ---------------------------------------------------------------------------------- nodes
    def emit(
        self, op_type: str, *inputs: Operand, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """The result of a new node, or a list of them if it has several.

        An attribute that is None is left out; a NumPy array becomes a tensor.
        """
        known = declared_types(op_type, DOMAINS.get(domain, self.opset), domain)
        if known is None and domain != NATIVE_DOMAIN:  # whose operators have no declarations
            raise Impossible
        names = ["" if v is None else v.name for v in inputs]
        while names and not names[-1]:
            names.pop()
        given = {k: _attribute(v) for k, v in attributes.items() if v is not None}
        results = [self.fresh_name() for _ in range(outputs)]
        title = self.fresh_name("n")
        node: Any = helper.make_node(op_type, names, results, title, domain=domain, **given)
        found = self._convert(node)
        made = [self._hold(name, value) for name, value in zip(results, found)]
        self.nodes.append(node)
        self.pool += [v for v in made if isinstance(v, Held)]
        self._mark_read(names)
        return made[0] if outputs == 1 else made

    def _mark_read(self, names: Sequence[str]) -> None:
        self.read.update(names)
        if self.outer is not None:
            self.outer._mark_read(names)

    def _convert(self, node: Any) -> tuple[Any, ...]:
        problems = Problems()
        source = Source(onnx.ModelProto(), ExternalData(None))
        key = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        try:
            return NodeConverter(source, self.builder, problems).convert(node, self.scope)
        except Unsupported as error:
            self._refuse(key, str(error))
        except NeedsValue:
            self._refuse(key, "the value of an input must be known")
        except Reported:
            try:
                problems.raise_if_any()
            except UnsupportedError as error:
                self._refuse(key, "; ".join(error.details))
        except WhetError as error:
            self._refuse(key, f"{error.code} {error.message}")
        except Impossible:
            raise
        except Exception as error:
            self.nodes.append(node)
            raise Broken(f"{key}: {type(error).__name__}: {error}") from error
        raise Impossible

    def _refuse(self, key: str, reason: str) -> None:
        self.refusals.append((key, reason))
        raise Impossible

    def _hold(self, name: str, value: Any) -> Held | Opaque:
        if not isinstance(value, Value):
            self.scope.values[name] = value
            return Opaque(name)
        array = self._evaluate(value)
        self._check_value(array)
        if not isinstance(value, Constant) and value.type != type_of(array):
            # Its shape depends on data: what follows is imported when it is known.
            value = self.builder.input(name, type_of(array))
            self.numbers[value] = array
        self.scope.values[name] = value
        return Held(name, array)

    def _check_value(self, array: Array) -> None:
        dtype = type_of(array).dtype
        if array.size > MOST_ELEMENTS:
            raise Impossible
        if not dtype.is_float or self.special or not array.size:
            return
        wide = array.astype(np.float64)
        if not np.isfinite(wide).all() or np.abs(wide).max() > LARGEST.get(dtype.name, 1e6):
            raise Impossible

    def _evaluate(self, value: Value) -> Array:
        """The value on the model's inputs, as the interpreter computes it."""
        stack = [value]
        while stack:
            v = stack[-1]
            if isinstance(v, Constant):
                self.numbers[v] = v.array
            if v in self.numbers:
                stack.pop()
                continue
            assert isinstance(v, Result), v
            missing = [u for u in v.node.inputs if u not in self.numbers]
            if missing:
                stack += missing
                continue
            try:
                results = v.node.op.run_reference(tuple(self.numbers[u] for u in v.node.inputs))
            except WhetError as error:
                raise Impossible from error
            self.numbers.update(zip(v.node.results, results))
        return self.numbers[value]

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Undoes what was added inside when that turns out to be impossible."""
        lists: tuple[list[Any], ...] = (self.nodes, self.initializers, self.inputs, self.pool)
        lengths = [len(x) for x in lists]
        read = set(self.read)
        try:
            yield
        except Impossible:
            for x, n in zip(lists, lengths):
                del x[n:]
            self.read = read
            raise

    # --------------------------------------------------------------------------------- values
    def fresh_name(self, prefix: str = "v") -> str:
        self.count[0] += 1
        return f"{prefix}{self.count[0]}"

    def array(self, dtype: DType, shape: Shape) -> Array:
        """Numbers in the style of the graph."""
        # Sums that overflow are another matter in other implementations.
        return draw_array(self.draw, dtype, shape, self.style, extremes=not self.common)

    def constant(self, array: Array) -> Held:
        """A tensor that is part of the model."""
        held = Held(self.fresh_name("c"), np.asarray(array))
        tensor = numpy_helper.from_array(held.array, held.name)
        self.scope.values[held.name] = self.builder.constant(held.array)
        if self.draw.chance(0.1):
            self.nodes.append(helper.make_node("Constant", [], [held.name], value=tensor))
        else:
            self.initializers.append(tensor)
        return held

    def input(self, array: Array, *, sizes: bool = False) -> Held:
        """A tensor that the caller gives; with `sizes` its value decides shapes."""
        held = Held(self.fresh_name("x"), np.asarray(array))
        self.inputs.append(Given(held.name, held.array, sizes))
        value = self.builder.input(held.name, held.type)
        self.numbers[value] = held.array
        self.scope.values[held.name] = self.builder.constant(held.array) if sizes else value
        return held

    def operand(self, array: Array, constant: float = 0.45) -> Held:
        """A new tensor with these numbers: a constant with that probability, else an input."""
        if self.outer is not None or self.draw.chance(constant):
            return self.constant(array)
        held = self.input(array)
        self.pool.append(held)
        return held

    def fresh(self, dtype: DType, shape: Shape, constant: float = 0.45) -> Held:
        """A new tensor of that type with drawn numbers."""
        return self.operand(self.array(dtype, shape), constant)

    def ints(self, values: Sequence[int] | int, dtype: DType = i64) -> Held:
        """Integers that decide a shape: mostly constant, sometimes an input or computed."""
        array = np.asarray(values, dtype.numpy)
        way = self.draw.weighted({"constant": 80, "input": 10 * (self.outer is None), "sum": 10})
        if way == "input" and array.size:
            return self.input(array, sizes=True)
        if way == "sum" and self.opset >= 7 and dtype == i64:
            part = np.full(array.shape, self.draw.integer(-3, 3), dtype.numpy)
            made = self.emit("Add", self.constant(array - part), self.constant(part))
            assert isinstance(made, Held)
            self.pool.remove(made)
            return made
        return self.constant(array)

    # ------------------------------------------------------------------------------- choosing
    def types(self, op_type: str, variable: str = "T", domain: str = "") -> tuple[DType, ...]:
        """The element types that the operator's declaration allows for a type variable."""
        found = declared_types(op_type, self.opset if not domain else DOMAINS[domain], domain)
        if found is None or not found.get(variable):
            raise Impossible
        return found[variable]

    def dtype(self, allowed: Sequence[DType] = ALL) -> DType:
        if not allowed:
            raise Impossible
        common = [d for d in allowed if d.name in COMMON] if self.common else []
        return self.draw.weighted({d: WEIGHTS[d.name] for d in common or allowed})

    def shape(self, rank: int | None = None, **limits: int) -> Shape:
        rank = draw_rank(self.draw) if rank is None else rank
        return draw_shape(self.draw, rank, empty=self.empty, **limits)

    def visible(self) -> list[Held]:
        """All tensors that a node here may read."""
        if self.outer is None or self.closed:
            return self.pool
        return [*self.outer.visible(), *self.pool]

    def tensor(
        self,
        dtypes: Sequence[DType] | None = None,
        rank: int | Sequence[int] | None = None,
        where: Callable[[Held], bool] | None = None,
        shape: Callable[[], Shape] | None = None,
    ) -> Held:
        """A tensor to read: one that is there, one made from such, or a new one.

        It has one of the types and ranks and fulfils `where`; `shape` draws shapes that do.
        """
        allowed = ALL if dtypes is None else tuple(dtypes)
        ranks = range(6) if rank is None else (rank,) if isinstance(rank, int) else rank
        if not allowed:
            raise Impossible

        def fits(v: Held) -> bool:
            return v.dtype in allowed and v.rank in ranks and (where is None or where(v))

        found = [v for v in self.visible() if fits(v)]
        if found and self.draw.chance(0.92):
            return self._choose(found)
        adapted = self._adapted(allowed, ranks) if self.draw.chance(0.6) else None
        if adapted is not None and fits(adapted):
            return adapted
        if found:
            return self._choose(found)
        for _ in range(20):
            drawn = shape() if shape else self.shape(self.draw.pick(list(ranks)))
            made = Held("", self.array(self.dtype(allowed), drawn))
            if fits(made):
                return self.operand(made.array, constant=0.2)
        raise Impossible

    def _choose(self, found: Sequence[Held]) -> Held:
        recent = found[-RECENT:]
        return self.draw.weighted({v: 1 if v.name in self.read else 4 for v in recent})

    def _adapted(self, allowed: Sequence[DType], ranks: Sequence[int]) -> Held | None:
        """A value that is there, brought to an allowed type and rank by further nodes."""
        seen = [v for v in self.visible() if v.size]
        if not seen:
            return None
        v = self._choose(seen)
        try:
            with self.attempt():
                if v.dtype not in allowed:
                    v = self.converted(v, self.dtype(allowed))
                if v.rank not in ranks:
                    v = self.ranked(v, self.draw.pick(list(ranks)))
                return v
        except Impossible:
            return None

    def may_convert(self, array: Array, dtype: DType) -> bool:
        """Whether all numbers fit the type; where only whet is asked, they need not."""
        return can_convert(array, dtype) or (not self.common and self.draw.chance(0.3))

    def converted(self, v: Held, dtype: DType) -> Held:
        """The value in another element type."""
        if v.dtype == dtype:
            return v
        if not self.may_convert(v.array, dtype) or dtype not in self.types("Cast", "T2"):
            raise Impossible
        return self.emit("Cast", v, to=TO_ONNX[dtype])

    def ranked(self, v: Held, rank: int) -> Held:
        """The value with so many axes."""
        shape = list(v.shape)
        while len(shape) > rank and len(shape) > 1:
            at = self.draw.integer(0, len(shape) - 2)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        if rank == 0 and v.size != 1:
            raise Impossible
        while len(shape) < rank:
            at = self.draw.integer(0, len(shape))
            shape.insert(at, 1)
        return self.reshaped(v, tuple(shape[:rank]))

    def reshaped(self, v: Held, shape: Shape) -> Held:
        if v.shape == shape:
            return v
        if math.prod(shape) != v.size or v.dtype not in self.types("Reshape"):
            raise Impossible
        return self.emit("Reshape", v, self.ints(shape), allowzero=1 if 0 in shape else None)

    def same(self, dtype: DType, shape: Shape, constant: float = 0.5) -> Held:
        """A tensor of exactly this type: one that is there, or a new one."""
        found = [v for v in self.visible() if v.dtype == dtype and v.shape == shape]
        if found and self.draw.chance(0.5):
            return self._choose(found)
        return self.fresh(dtype, shape, constant)

    def scaled(self, dtype: DType, shape: Shape, fan: int, constant: float = 0.7) -> Held:
        """Weights for sums of `fan` products: small enough for the sums to stay moderate."""
        array = self.array(dtype, shape)
        if dtype.is_float and fan > 8 and not self.special:
            step = 2.0 ** -math.ceil(math.log2(fan) / 2)
            array = (array.astype(np.float64) * step).astype(dtype.numpy)
        return self.operand(array, constant)


def _attribute(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return numpy_helper.from_array(value)
    return list(value) if isinstance(value, tuple) else value


def can_convert(array: Array, dtype: DType) -> bool:
    """Whether every number has a meaning in the type: no NaN, and nothing outside its range."""
    source = type_of(array).dtype
    if dtype.is_float or dtype.kind == "bool" or not source.is_float or not array.size:
        return True
    wide = array.astype(np.float64)
    low, high = (0, 1 << dtype.bits) if dtype.kind == "uint" else (
        -(1 << (dtype.bits - 1)), 1 << (dtype.bits - 1))  # fmt: skip
    # A little inside, so that rounding elsewhere does not lead out.
    return bool(np.isfinite(wide).all() and wide.min() > low - 0.99 and wide.max() < high * 0.999)
