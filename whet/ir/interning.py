"""Interned immutable values: equal structure is the same object, so `is` compares trees."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

T = TypeVar("T")
_NUMBERS = frozenset({int, float, bool, np.float64})


class Interned(type):
    """Metaclass that returns the existing instance when one with equal fields is alive.

    Fields are compared by their own equality (identity for nested interned values), except
    that numbers are told apart by how they print, so 0.0 and -0.0 or 1 and True differ.
    """

    _instances: WeakValueDictionary[Any, Any] = WeakValueDictionary()

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        fields = cls.__dataclass_fields__  # type: ignore[attr-defined]
        if len(args) < len(fields):
            rest = list(fields.values())[len(args) :]
            args += tuple(kwargs.get(field.name, field.default) for field in rest)
            kwargs = {}
        if _NUMBERS.isdisjoint(map(type, args)):
            key = (cls, *args)
        else:
            key = (cls, *(repr(v) if type(v) in _NUMBERS else v for v in args))
        found = Interned._instances.get(key)
        if found is None:
            found = type.__call__(cls, *args, **kwargs)
            Interned._instances[key] = found
        result: T = found
        return result
