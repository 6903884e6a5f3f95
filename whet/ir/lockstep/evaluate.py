"""The values of expressions, for all active threads at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from whet.core.conversion import convert_array
from whet.core.errors import fail
from whet.core.types import Array
from whet.ir.expr import (
    Axis,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Reinterpret,
    Select,
    Var,
)
from whet.ir.functions import FUNCTIONS, INFIX, REDUCERS
from whet.ir.lockstep.storage import Storage, Value
from whet.ir.lockstep.team import Team
from whet.ir.tensor import Tensor

Env = Mapping[Expr, Any]
"""Values of variables: numbers, or arrays over all threads of the team."""


class Evaluator:
    """Evaluates expressions with the memory of a team."""

    def __init__(self, team: Team, storages: Mapping[Tensor, Storage]) -> None:
        self.team, self.storages = team, storages

    def value(self, e: Expr, env: Env, ids: Array) -> Value:
        """The value of an expression for the threads `ids`."""
        match e:
            case Const(value=value, dtype=dtype):
                return dtype.numpy.type(value)
            case Var() | Axis():
                found = env[e]
                return found[ids] if found.ndim and not self.team.is_whole(ids) else found
            case Binary(op="and" | "or" as op, left=left, right=right):
                return self._connected(op, left, right, env, ids)
            case Binary(op=op, left=left, right=right):
                return INFIX[op].numpy(self.value(left, env, ids), self.value(right, env, ids))
            case Call(name=name, args=args):
                made = FUNCTIONS[name](*(self.value(a, env, ids) for a in args))
                return np.asarray(made).astype(e.dtype.numpy, copy=False)[()]
            case Select(condition=condition, then=then, other=other):
                return self._selected(self.value(condition, env, ids), then, other, env, ids)
            case Cast(value=value, dtype=dtype):
                return convert_array(np.asarray(self.value(value, env, ids)), dtype)[()]
            case Reinterpret(value=value, dtype=dtype):
                return np.asarray(self.value(value, env, ids)).view(dtype.numpy)[()]
            case Read(tensor=tensor, indices=indices):
                at = [self.value(i, env, ids) for i in indices]
                return self.storage(tensor).read(at, ids)
            case Reduce(kind=kind, axes=(axis,), value=value):
                rounds = [
                    self.value(value, {**env, axis: np.int64(n)}, ids) for n in range(axis.extent)
                ]
                return REDUCERS[kind].reduce(np.asarray(rounds))
        raise AssertionError(type(e))

    def storage(self, tensor: Tensor) -> Storage:
        if tensor not in self.storages:
            fail("WH1301", f"buffer '{tensor.name}' is not defined")
        return self.storages[tensor]

    def _connected(self, op: str, left: Expr, right: Expr, env: Env, ids: Array) -> Value:
        """`and` and `or`: the right side may rely on the left one, as in Python."""
        first = self.value(left, env, ids)
        needed = first if op == "and" else ~first
        if not first.ndim:
            return self.value(right, env, ids) if needed else first
        result = first.copy()
        result[needed] = self.value(right, env, ids[needed]) if needed.any() else False
        return result

    def _selected(self, chosen: Value, then: Expr, other: Expr, env: Env, ids: Array) -> Value:
        if not chosen.ndim or chosen.all() or not chosen.any():
            return self.value(then if chosen.all() else other, env, ids)
        result = np.empty(len(ids), then.dtype.numpy)
        result[chosen] = self.value(then, env, ids[chosen])
        result[~chosen] = self.value(other, env, ids[~chosen])
        return result
