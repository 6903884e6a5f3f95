"""Recurrent layers: one direction over [time, batch, feature], in terms of `scan`.

Rows of the weights are grouped by gate.  The product of the inputs with their weights does not
depend on the recurrence, so it is one matrix product before the scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from whet.core.dtypes import FLOATS, compute_dtype, f32, i32
from whet.core.types import Array, TensorType
from whet.ops.arithmetic import Add, Maximum, Minimum, Mul, Sub
from whet.ops.base import Builder, Domain, NoAlgebra, Op, Sample, operator, require
from whet.ops.logic import Less, Where
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Reshape, Slice, Split, Transpose
from whet.ops.scan import Scan
from whet.ops.shared.gate_functions import ACTIVATIONS
from whet.ops.shared.precision import converted, scalar, widen


@dataclass(frozen=True)
class Recurrence(Op):
    """Base: a cell that is stepped along time.

    Inputs are x [time, batch, feature], w [gates * hidden, feature], r [gates * hidden,
    hidden], the biases b [2 * gates * hidden] of both products, the initial states [batch,
    hidden], and with `masked` the number of valid time steps of each sequence [batch].
    Results are the outputs of all steps [time, batch, hidden], zero after a sequence's end,
    and the last states.  `clip` bounds what goes into the activations of gates.
    """

    activations: tuple[str, ...]
    alpha: tuple[float, ...]
    beta: tuple[float, ...]
    clip: float | None = None
    reverse: bool = False
    masked: bool = False

    gates: ClassVar[int]
    n_states: ClassVar[int] = 1
    default_activations: ClassVar[tuple[str, ...]]

    # -- what a cell defines
    def extra_types(self, hidden: int) -> tuple[tuple[int, ...], ...]:
        """Shapes of the optional inputs between the states and the lengths."""
        return ()

    def input_bias(self, b: Builder, biases: Any) -> Any:
        """The part of the biases that is added before the recurrence."""
        first, second = b(Split(0, (b.type(biases).size // 2,) * 2), biases)
        return b(Add(), first, second)

    def step_parameters(self, b: Builder, biases: Any, *extra: Any) -> tuple[Any, ...]:
        """The values that every step reads besides the recurrent weights."""
        return extra

    def build_step(self, b: Builder, gates: Any, states: Sequence[Any], r: Any,
                   *parameters: Any) -> tuple[Any, ...]:  # fmt: skip
        """The next states; `gates` are the inputs' contributions, r is [hidden, gates * hidden]."""
        raise NotImplementedError

    def numpy_step(self, x: Array, states: Sequence[Array], w: Array, r: Array, biases: Array,
                   *extra: Array) -> tuple[Array, ...]:  # fmt: skip
        """The next states from one step's input."""
        raise NotImplementedError

    # -- what follows
    def _activate(self, b: Builder, index: int, x: Any, *, gate: bool = True) -> Any:
        if gate and self.clip is not None:
            x = b(Maximum(), b(Minimum(), x, scalar(b, self.clip, x)), scalar(b, -self.clip, x))
        build = ACTIVATIONS[self.activations[index]].build
        return build(b, x, self.alpha[index], self.beta[index])

    def _numpy_activate(self, index: int, x: Array, *, gate: bool = True) -> Array:
        if gate and self.clip is not None:
            x = np.clip(x, -self.clip, self.clip)
        numpy = ACTIVATIONS[self.activations[index]].numpy
        return np.asarray(numpy(x, self.alpha[index], self.beta[index])).astype(x.dtype)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        x, w = types[:2]
        require(x.rank == 3 and w.rank == 2 and w.shape[0] % self.gates == 0, self,
                "x needs three axes and w a row for every gate", *types)  # fmt: skip
        hidden = w.shape[0] // self.gates
        time, batch, feature = x.shape
        state = (batch, hidden)
        shapes = [
            (time, batch, feature), (self.gates * hidden, feature), (self.gates * hidden, hidden),
            (2 * self.gates * hidden,), *(state,) * self.n_states, *self.extra_types(hidden),
        ]  # fmt: skip
        floats = types[: len(shapes)]
        lengths = types[len(shapes) :]
        require(all(t.dtype == x.dtype in FLOATS for t in floats), self,
                "all inputs need one floating-point type", *types, code="WH1103")  # fmt: skip
        require([t.shape for t in floats] == shapes, self, f"shapes should be {shapes}", *types)
        require([t.shape for t in lengths] == [(batch,)] * self.masked, self,
                "lengths are given exactly if the operator is masked", *types)  # fmt: skip
        n = len(self.default_activations)
        require(len(self.activations) == len(self.alpha) == len(self.beta) == n
                and set(self.activations) <= set(ACTIVATIONS), self,
                f"activations {list(self.activations)} are not {n} known ones",
                code="WH1104")  # fmt: skip
        return (x.with_shape((time, *state)), *(x.with_shape(state),) * self.n_states)

    def reference(self, *arrays: Array) -> tuple[Array, ...]:
        dtype = arrays[0].dtype
        lengths = arrays[-1] if self.masked else None
        floats = [widen(a) for a in (arrays[:-1] if self.masked else arrays)]
        x, w, r, biases = floats[:4]
        states = tuple(floats[4 : 4 + self.n_states])
        extra = floats[4 + self.n_states :]
        y = np.zeros((*x.shape[:2], r.shape[1]), x.dtype)
        for t in range(len(x))[:: -1 if self.reverse else 1]:
            new = self.numpy_step(x[t], states, w, r, biases, *extra)
            if lengths is None:
                states, y[t] = new, new[0]
            else:
                valid = (t < lengths)[:, None]
                states = tuple(np.where(valid, n, old) for n, old in zip(new, states))
                y[t] = np.where(valid, new[0], 0)
        return tuple(a.astype(dtype, copy=False) for a in (y, *states))

    def expand(self, b: Builder, *values: Any) -> tuple[Any, ...]:
        outer = b.type(values[0])
        inner = compute_dtype(outer.dtype)
        lengths = values[-1:] if self.masked else ()
        floats = [converted(b, v, inner) for v in values[: len(values) - len(lengths)]]
        x, w, r, biases = floats[:4]
        states = floats[4 : 4 + self.n_states]
        products = b(MatMul(), x, b(Transpose((1, 0)), w))
        gates = b(Add(), products, self.input_bias(b, biases))
        scanned = [gates, *(_valid_steps(b, outer.shape[0], v) for v in lengths)]
        parameters = (
            b(Transpose((1, 0)), r),
            *self.step_parameters(b, biases, *floats[4 + self.n_states :]),
        )

        def step(*args: Any) -> tuple[Any, ...]:
            old, rest = args[: self.n_states], args[self.n_states :]
            own = rest[len(scanned) :]
            new = self.build_step(b, rest[0], old, *own)
            if not self.masked:
                return (*new, new[0])
            kept = [b(Where(), rest[1], n, o) for n, o in zip(new, old)]
            return (*kept, b(Where(), rest[1], new[0], scalar(b, 0, new[0])))

        types = [
            *(b.type(s) for s in states),
            *(b.type(v).with_shape(b.type(v).shape[1:]) for v in scanned),
            *(b.type(p) for p in parameters),
        ]
        scan = Scan(
            b.body(types, step), outer.shape[0], self.n_states, (0,) * len(scanned), (0,),
            (self.reverse,) * len(scanned), (self.reverse,),
        )  # fmt: skip
        *last, y = b(scan, *states, *scanned, *parameters)
        return tuple(converted(b, v, outer.dtype) for v in (y, *last))

    axioms = NoAlgebra("its steps depend on each other")

    @classmethod
    def with_defaults(cls, **attributes: Any) -> Recurrence:
        """The cell with its usual activations."""
        names = cls.default_activations
        zeros = (0.0,) * len(names)
        return cls(names, zeros, zeros, **attributes)

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            cls._sample(cls.with_defaults(), 3, 2, 4, 5),
            cls._sample(cls.with_defaults(reverse=True, masked=True, clip=0.5), 4, 3, 2, 3),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        time, batch, feature, hidden = (int(d) for d in rng.integers(1, 5, 4))
        op = cls.with_defaults(reverse=bool(rng.integers(2)), masked=bool(rng.integers(2)))
        return cls._sample(op, time, batch, feature, hidden)

    @staticmethod
    def _sample(op: Recurrence, time: int, batch: int, feature: int, hidden: int) -> Sample:
        rows = op.gates * hidden
        shapes: list[tuple[int, ...]] = [
            (time, batch, feature), (rows, feature), (rows, hidden), (2 * rows,),
            *((batch, hidden),) * op.n_states, *op.extra_types(hidden),
        ]  # fmt: skip
        types = tuple(TensorType(s, f32) for s in shapes)
        if not op.masked:
            return Sample(op, types)
        domains = (*(None,) * len(types), Domain(0, time + 1))
        return Sample(op, (*types, TensorType((batch,), i32)), domains)


def _valid_steps(b: Builder, time: int, lengths: Any) -> Any:
    """[time, batch, 1] truth values: is the step within its sequence?"""
    t = b.type(lengths)
    steps = b.constant(np.arange(time, dtype=t.dtype.numpy).reshape(time, 1, 1))
    return b(Less(), steps, b(Reshape((1, t.size, 1)), lengths))


def _gates(b: Builder, value: Any, count: int) -> tuple[Any, ...]:
    """The value's columns, split evenly into one part per gate."""
    t = b.type(value)
    size = t.shape[-1] // count
    parts = b(Split(t.rank - 1, (size,) * count), value)
    return parts if isinstance(parts, tuple) else (parts,)


# ------------------------------------------------------------------------------------- cells
@operator("rnn", "x", "w", "r", "b", "h", "*lengths")
class RNN(Recurrence):
    """h' = f(x w^T + h r^T + biases)."""

    gates = 1
    default_activations = ("tanh",)

    def build_step(self, b: Builder, gates: Any, states: Sequence[Any], r: Any,
                   *parameters: Any) -> tuple[Any, ...]:  # fmt: skip
        return (self._activate(b, 0, b(Add(), gates, b(MatMul(), states[0], r))),)

    def numpy_step(self, x: Array, states: Sequence[Array], w: Array, r: Array, biases: Array,
                   *extra: Array) -> tuple[Array, ...]:  # fmt: skip
        total = x @ w.T + states[0] @ r.T + biases.reshape(2, -1).sum(0)
        return (self._numpy_activate(0, total),)


@operator("gru", "x", "w", "r", "b", "h", "*lengths")
class GRU(Recurrence):
    """Gates z, r, h:  h' = (1 - z) * g(x, r, h) + z * h.

    With `linear_before_reset` the reset gate multiplies the product of the state with its
    weights (and its bias), otherwise the state itself.
    """

    linear_before_reset: bool = False

    gates = 3
    default_activations = ("sigmoid", "tanh")

    def input_bias(self, b: Builder, biases: Any) -> Any:
        if not self.linear_before_reset:
            return super().input_bias(b, biases)
        size = b.type(biases).size // 2
        late = size // 3
        first, early, _ = b(Split(0, (size, size - late, late)), biases)
        zeros = b.constant(np.zeros(late, b.type(biases).dtype.numpy))
        return b(Add(), first, b(Concat(0), early, zeros))

    def step_parameters(self, b: Builder, biases: Any, *extra: Any) -> tuple[Any, ...]:
        if not self.linear_before_reset:
            return ()
        size = b.type(biases).size
        return (b(Slice((size - size // 6,), (size,), (1,)), biases),)

    def build_step(self, b: Builder, gates: Any, states: Sequence[Any], r: Any,
                   *parameters: Any) -> tuple[Any, ...]:  # fmt: skip
        (h,) = states
        hidden = b.type(h).shape[1]
        r_zr, r_h = b(Split(1, (2 * hidden, hidden)), r)
        x_zr, x_h = b(Split(1, (2 * hidden, hidden)), gates)
        both = self._activate(b, 0, b(Add(), x_zr, b(MatMul(), h, r_zr)))
        z, reset = _gates(b, both, 2)
        if self.linear_before_reset:
            (bias,) = parameters
            recurrent = b(Mul(), reset, b(Add(), b(MatMul(), h, r_h), bias))
        else:
            recurrent = b(MatMul(), b(Mul(), reset, h), r_h)
        candidate = self._activate(b, 1, b(Add(), x_h, recurrent))
        other = b(Mul(), b(Sub(), scalar(b, 1, z), z), candidate)
        return (b(Add(), other, b(Mul(), z, h)),)

    def numpy_step(self, x: Array, states: Sequence[Array], w: Array, r: Array, biases: Array,
                   *extra: Array) -> tuple[Array, ...]:  # fmt: skip
        (h,) = states
        from_x = np.split(x @ w.T + biases[: len(w)], 3, axis=1)
        rz, rr, rh = np.split(r, 3)
        bz, br, bh = np.split(biases[len(w) :], 3)
        z = self._numpy_activate(0, from_x[0] + h @ rz.T + bz)
        reset = self._numpy_activate(0, from_x[1] + h @ rr.T + br)
        if self.linear_before_reset:
            recurrent = reset * (h @ rh.T + bh)
        else:
            recurrent = (reset * h) @ rh.T + bh
        return ((1 - z) * self._numpy_activate(1, from_x[2] + recurrent) + z * h,)

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        linear = cls.with_defaults(linear_before_reset=True)
        return (*super().samples(), cls._sample(linear, 3, 2, 4, 3))


@operator("lstm", "x", "w", "r", "b", "h", "c", "*options")
class LSTM(Recurrence):
    """Gates i, o, f, c:  c' = f * c + i * g(...),  h' = o * h(c').

    With `peepholes`, the weights p [3 * hidden] of the cell state in the gates i, o, f are
    given before the lengths.  With `input_forget` the forget gate is 1 - i.
    """

    peepholes: bool = False
    input_forget: bool = False

    gates = 4
    n_states = 2
    default_activations = ("sigmoid", "tanh", "tanh")

    def extra_types(self, hidden: int) -> tuple[tuple[int, ...], ...]:
        return ((3 * hidden,),) if self.peepholes else ()

    def build_step(self, b: Builder, gates: Any, states: Sequence[Any], r: Any,
                   *parameters: Any) -> tuple[Any, ...]:  # fmt: skip
        h, c = states
        i, o, f, g = _gates(b, b(Add(), gates, b(MatMul(), h, r)), 4)
        peep = _gates(b, parameters[0], 3) if self.peepholes else None
        if peep:
            i = b(Add(), i, b(Mul(), peep[0], c))
            f = b(Add(), f, b(Mul(), peep[2], c))
        entry = self._activate(b, 0, i)
        if self.input_forget:
            forget = b(Sub(), scalar(b, 1, entry), entry)
        else:
            forget = self._activate(b, 0, f)
        added = b(Mul(), entry, self._activate(b, 1, g))
        new = b(Add(), b(Mul(), forget, c), added)
        if peep:
            o = b(Add(), o, b(Mul(), peep[1], new))
        return b(Mul(), self._activate(b, 0, o), self._activate(b, 2, new, gate=False)), new

    def numpy_step(self, x: Array, states: Sequence[Array], w: Array, r: Array, biases: Array,
                   *extra: Array) -> tuple[Array, ...]:  # fmt: skip
        h, c = states
        total = x @ w.T + h @ r.T + biases.reshape(2, -1).sum(0)
        i, o, f, g = np.split(total, 4, axis=1)
        if self.peepholes:
            pi, po, pf = np.split(extra[0], 3)
            i, f = i + pi * c, f + pf * c
        entry = self._numpy_activate(0, i)
        forget = 1 - entry if self.input_forget else self._numpy_activate(0, f)
        new = forget * c + entry * self._numpy_activate(1, g)
        out = self._numpy_activate(0, o + po * new if self.peepholes else o)
        return out * self._numpy_activate(2, new, gate=False), new

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        peeping = cls.with_defaults(peepholes=True, masked=True)
        coupled = cls.with_defaults(input_forget=True)
        return (
            *super().samples(),
            cls._sample(peeping, 3, 2, 4, 3),
            cls._sample(coupled, 3, 2, 4, 3),
        )
