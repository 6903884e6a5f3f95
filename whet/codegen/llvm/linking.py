"""Functions that generated code may call: what it is linked with must have all of them.

LLVM replaces some instructions by calls of functions that only a compiler's own library has.
A call of one that is missing would end the process, so code that has one is not loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from whet.codegen.llvm.elf import undefined_symbols
from whet.core.errors import WhetError

_OF_NUMBERS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp",
    "floor", "fma", "fmod", "log", "nearbyint", "pow", "rint", "sin", "sinh", "tan", "tanh",
    "trunc",
)  # fmt: skip
_OF_MEMORY = ("memcpy", "memmove", "memset")
_OF_THE_SYSTEM = (
    "abort", "dprintf", "pthread_create", "pthread_join", "sched_yield", "syscall",
)  # fmt: skip

C_LIBRARY = frozenset({*_OF_NUMBERS, *(f"{n}f" for n in _OF_NUMBERS), *_OF_MEMORY, *_OF_THE_SYSTEM})
"""What every C library on Linux has, of that which generated code may need."""


def unknown_symbols(objects: Sequence[bytes], given: Collection[str] = ()) -> list[str]:
    """The names that objects need and that neither they, nor the given ones, nor the C library
    define."""
    return [n for n in undefined_symbols(objects) if n not in given and n not in C_LIBRARY]


def require_symbols(objects: Sequence[bytes], given: Collection[str]) -> None:
    """`WH1304` if the objects need a name that is not there."""
    unknown = unknown_symbols(objects, given)
    if unknown:
        raise WhetError("WH1304", f"generated code calls {', '.join(unknown)}, which nothing "
                        "defines", hint="please report this, with the model")  # fmt: skip
