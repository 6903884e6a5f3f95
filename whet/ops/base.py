"""The definition of operators.

An operator is a frozen dataclass whose fields are its attributes; an instance together with
its input values is a node of a graph.  One class holds everything whet knows of it:

    infer      types of the outputs from the types of the inputs
    reference  the result as NumPy arrays: what the operator means
    compute    the result as tensor expressions: what kernels are generated from,
      or expand   the result in terms of simpler operators,
      or program  the result as loops, for what no tensor expression can say (sort, scatter),
      or host = True   for results whose shape depends on data,
      or `Control` as its base (whet.ops.shared.control) for what runs bodies and cannot be expanded
    axioms     its algebra, or why it has none
    samples    instances with input types, for tests, the generator and the documentation
    sample     a random such instance

All inputs are required (a front end supplies the defaults), and the last may be variadic.
Adding an operator is one decorated class, inside the package or outside it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    cast,
    dataclass_transform,
    runtime_checkable,
)

import numpy as np

from whet.core.dtypes import DType, parse_dtype
from whet.core.errors import OperatorError, check, fail
from whet.core.types import Array, Shape, TensorType, type_of
from whet.ir.program import Program
from whet.ir.tensor import Tensor

Numeric = Literal["exact", "guarded", "real"]
"""What may become of arithmetic.  Laws, rewrites and sketches are `exact` if they keep the values
and `real` if they are right over the real numbers.  A model that is compiled with `exact` has
only the former; `guarded` is `real` with a check at run time where special values would spread."""
NUMERICS: Mapping[str, Numeric] = {n: n for n in typing.get_args(Numeric)}
T = TypeVar("T", bound="type[Op]")


@dataclass(frozen=True, slots=True)
class DynamicType:
    """The type of a host operator's output: rank known, extents only after it has run."""

    rank: int
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' * self.rank)}]"


OutputType = TensorType | DynamicType


# ------------------------------------------------------------------------------------ algebra
@dataclass(frozen=True, slots=True)
class Law:
    """An equation between operator terms, true for all inputs of fitting types.

    `text` is `left = right` in the term syntax of graphs, for example
    `matmul(a, add(b, c)) = add(matmul(a, b), matmul(a, c))`; `numeric` says whether both
    sides give the same bits (`exact`) or agree over the reals; `when` lists guards such as
    `g == 1` or `shape(x) == shape(y)`; `example` gives a shape to every tensor variable and a
    value to every attribute variable, so that the law can be checked on numbers.
    """

    text: str
    numeric: Numeric
    example: tuple[tuple[str, Shape | int], ...]
    when: tuple[str, ...] = ()


def law(text: str, numeric: Numeric, *, when: Iterable[str] = (), **example: Shape | int) -> Law:
    return Law(text, numeric, tuple(example.items()), tuple(when))


@dataclass(frozen=True, slots=True)
class NoAlgebra:
    """Says that an operator has no laws worth stating, and why."""

    reason: str


Algebra = tuple[Law, ...] | NoAlgebra


# ------------------------------------------------------------------------------------ samples
@dataclass(frozen=True, slots=True)
class Domain:
    """The source of an input's sample values: a real interval, or integers in [low, high)."""

    low: float
    high: float

    def draw(self, t: TensorType, rng: np.random.Generator) -> Array:
        if t.dtype.kind == "bool":
            return rng.integers(0, 2, t.shape).astype(np.bool_)
        if t.dtype.is_integer:
            return rng.integers(int(self.low), int(self.high), t.shape).astype(t.dtype.numpy)
        return rng.uniform(self.low, self.high, t.shape).astype(t.dtype.numpy)


def default_domain(t: TensorType) -> Domain:
    """Mild values: reals in [-2, 2), signed integers in [-8, 8), unsigned in [0, 8)."""
    if t.dtype.is_float:
        return Domain(-2.0, 2.0)
    return Domain(-8 if t.dtype.kind == "int" else 0, 8)


@dataclass(frozen=True, slots=True)
class Sample:
    """An operator instance with input types and, where needed, input domains."""

    op: Op
    types: tuple[TensorType, ...]
    domains: tuple[Domain | None, ...] = ()

    def arrays(self, rng: np.random.Generator) -> tuple[Array, ...]:
        """Random inputs of these types."""
        domains = self.domains or (None,) * len(self.types)
        return tuple(
            (d or default_domain(t)).draw(t, rng) for t, d in zip(self.types, domains, strict=True)
        )


# ----------------------------------------------------------------------------------- builders
@runtime_checkable
class Body(Protocol):
    """A graph as an attribute: what an operator such as `scan` does in one step.

    Bodies of equal content are equal and have the same hash and the same `repr`.
    """

    @property
    def input_types(self) -> tuple[TensorType, ...]: ...

    @property
    def output_types(self) -> tuple[TensorType, ...]: ...

    def run(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """The outputs for the given inputs."""

    def build(self, builder: Builder, *values: Any) -> tuple[Any, ...]:
        """The outputs as values of the builder: the step written out."""

    def widened(self) -> Body:
        """The same body with all floating-point values carried in f64."""


class Builder(Protocol):
    """The graph that `expand` writes into: applies operators to values of some graph."""

    def __call__(self, op: Op, *values: Any) -> Any:
        """The output value, or a tuple of them when the operator has several."""

    def constant(self, array: Array) -> Any:
        """A constant value."""

    def type(self, value: Any) -> TensorType:
        """The type of a value."""

    def body(self, types: Sequence[TensorType], step: Callable[..., Sequence[Any]]) -> Body:
        """The body that gives `step(*inputs)` for inputs of these types.

        `step` applies operators through the same builder; it reads no values but its inputs
        and constants.
        """


# ---------------------------------------------------------------------------------- operators
class Op:
    """Base of all operators; see the module's text."""

    name: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    host: ClassVar[bool] = False
    deterministic: ClassVar[bool] = True
    """False for random numbers: such a node is never folded, and tests expect no values."""
    axioms: ClassVar[Algebra]

    # Subclasses narrow these signatures to their own inputs, hence Any.
    infer: Callable[..., Any]
    reference: Callable[..., Any]
    compute: Callable[..., Any] | None = None
    expand: Callable[..., Any] | None = None
    program: Callable[..., Program] | None = None
    samples: Callable[[], tuple[Sample, ...]]
    sample: Callable[[np.random.Generator], Sample]

    @property
    def folds(self) -> bool:
        """Whether a node of constants alone is computed while a graph is built."""
        return self.deterministic

    def infer_types(self, types: tuple[TensorType, ...]) -> tuple[OutputType, ...]:
        """Output types, always as a tuple."""
        low = sum(not name.startswith("*") for name in self.inputs)
        variadic = bool(self.inputs) and self.inputs[-1].startswith("*")
        check(
            len(types) == low or (variadic and len(types) >= low),
            "WH1101",
            f"{self.name} takes {', '.join(self.inputs) or 'no inputs'}, got {len(types)} values",
            kind=OperatorError,
        )
        return _as_tuple(self.infer(*types))

    def run_reference(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Reference results, always as a tuple, with the inferred types enforced."""
        types = self.infer_types(tuple(type_of(a) for a in arrays))
        try:
            with np.errstate(all="ignore"):
                results = tuple(np.asarray(r) for r in _as_tuple(self.reference(*arrays)))
        except MemoryError:
            inputs = ", ".join(str(type_of(a)) for a in arrays)
            fail("WH1005", f"not enough memory for {self.name} of {inputs}")
        for result, expected in zip(results, types, strict=True):
            got = type_of(result)
            same = (
                got == expected
                if isinstance(expected, TensorType)
                else (got.rank, got.dtype) == (expected.rank, expected.dtype)
            )
            check(same, "WH1105", f"{self.name} gave {got} where it inferred {expected}")
        return results

    def compute_tensors(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Tensor expressions of the outputs, always as a tuple."""
        assert self.compute is not None, self.name
        return _as_tuple(self.compute(*tensors))

    def attributes(self) -> dict[str, Any]:
        """The attributes that differ from their defaults, in order of definition."""
        found = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value != field.default:
                found[field.name] = value
        return found

    def __str__(self) -> str:
        inner = ", ".join(f"{k}={show_attribute(v)}" for k, v in self.attributes().items())
        return f"{self.name}({inner})" if inner else self.name


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def show_attribute(value: Any) -> str:
    """Text of an attribute value: numbers, strings in quotes, lists in brackets, type names."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(show_attribute, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    return repr(value)


@functools.cache
def _field_types(cls: type[Op]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}  # type: ignore[arg-type]


def make_op(name: str, attributes: dict[str, Any]) -> Op:
    """The operator `name` with the given attributes, converted to the declared field types."""
    cls = REGISTRY.get(name)
    if cls is None:
        fail("WH1106", f"unknown operator '{name}'", kind=OperatorError)
    # mypy takes the hash of instances for that of their class.
    declared = _field_types(cls)  # type: ignore[arg-type]
    unknown = sorted(set(attributes) - set(declared))
    check(not unknown, "WH1104", f"{name} has no attribute {unknown}", kind=OperatorError)
    try:
        return cls(**{k: _convert(v, declared[k]) for k, v in attributes.items()})
    except (TypeError, ValueError) as error:
        fail("WH1104", f"attributes of {name}: {error}", kind=OperatorError)


def _convert(value: Any, declared: Any) -> Any:
    """The value as the declared attribute type; TypeError if it cannot be."""
    origin = typing.get_origin(declared)
    if origin is tuple:
        inner = typing.get_args(declared)[0]
        return tuple(_convert(v, inner) for v in value)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        declared = next(t for t in typing.get_args(declared) if t is not type(None))
        return _convert(value, declared)
    if origin is Literal:
        if value not in typing.get_args(declared):
            raise ValueError(f"{value!r} is not one of {typing.get_args(declared)}")
        return value
    if declared is DType and isinstance(value, str):
        return parse_dtype(value)
    if declared is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if (
        isinstance(declared, type)
        and type(value) is not declared
        and not isinstance(value, declared)
    ):
        raise TypeError(f"{value!r} is not of type {declared.__name__}")
    return value


# ----------------------------------------------------------------------------------- registry
REGISTRY: dict[str, type[Op]] = {}


@dataclass_transform(frozen_default=True)
def operator(name: str, *inputs: str) -> Callable[[T], T]:
    """Class decorator: makes a frozen dataclass of the class and registers it.

    `inputs` names the inputs in order; a last name that starts with `*` takes any number.
    """

    def register(cls: T) -> T:
        check(name not in REGISTRY, "WH1106", f"operator '{name}' is defined twice")
        made = dataclass(frozen=True)(cls)
        made.name, made.inputs = name, inputs
        made.__str__ = Op.__str__  # type: ignore[method-assign]
        REGISTRY[name] = made
        return cast(T, made)

    return register


def require(
    condition: bool, op: Op, problem: str, *types: OutputType, code: str = "WH1102"
) -> None:
    """Raise an operator error that names the operator and the input types."""
    if not condition:
        shown = ", ".join(map(str, types))
        fail(code, f"{op.name}: {problem}", *([f"inputs: {shown}"] if shown else []),
             kind=OperatorError)  # fmt: skip
