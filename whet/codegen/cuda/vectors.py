"""Vector loops: runs of elements that one thread moves at once.

    vector v in 4:                              const float4 w_1 = *(const float4*)(x + 4 * i);
      y[4 * i + v] = max(x[4 * i + v], 0.0)  -> ...
                                                *(float4*)(y + 4 * i) = make_float4(...);

A read or store is wide where the element moves by one with the loop and where its address is known
to be a multiple of the width; all else happens element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whet.codegen.cuda.addresses import address_elsewhere
from whet.codegen.cuda.support import memory_type
from whet.codegen.cuda.values import Values, in_lane
from whet.core.dtypes import DType
from whet.ir.affine import Affine, free_symbols
from whet.ir.expr import Binary, Const, Expr, Read, Select, Var, call
from whet.ir.program import Buffer, Store
from whet.ir.tensor import subexpressions

_WIDEST = 16
_CARRIERS = {16: "uint4", 8: "uint2", 4: "unsigned int"}
_WORDS = ("x", "y", "z", "w")
_BITS = {"f32": "__float_as_uint", "i32": "(unsigned int)", "u32": "(unsigned int)"}
Guards = tuple[tuple[Expr, bool], ...]
"""Conditions under which something is read, and whether they must hold."""


def store_vector(values: Values, stmt: Store, var: Var, extent: int) -> None:
    """The store in all rounds of the loop."""
    lanes = [in_lane(stmt.value, var, n) for n in range(extent)]
    indices = [tuple(in_lane(i, var, n) for i in stmt.indices) for n in range(extent)]
    values.begin(*lanes)
    if not any(var in free_symbols(e) for e in (stmt.value, *stmt.indices)):
        lanes, indices = lanes[:1], indices[:1]
    for read, guards, choice in _wide_reads(values, stmt.value, var, extent):
        _load_wide(values, read, guards, choice, var, extent)
    texts = [values.to_memory(e, stmt.buffer) for e in lanes]
    width = 1
    if values.places.in_memory(stmt.buffer) and len(lanes) == extent:
        width = _width(values, stmt.buffer, stmt.indices, var, extent)
    base = values.places.bases[stmt.buffer]
    for start in range(0, len(texts), width):
        at = values.checked(stmt.buffer, indices[start])
        if stmt.buffer.scope == "fragment":
            place = values.element(stmt.buffer, at)
        else:
            place = values.text_of(values.places.address(stmt.buffer, at).expr())
        if width == 1:
            values.lines.line(f"{base}[{place}] = {texts[start]};")
        else:
            packed = _packed(texts[start : start + width], stmt.buffer.dtype)
            kind = _CARRIERS[width * stmt.buffer.dtype.itemsize]
            values.lines.line(f"*({kind}*)({base} + {place}) = {packed};")


def _wide_reads(
    values: Values, value: Expr, var: Var, extent: int
) -> Iterator[tuple[Read, Guards, Select | None]]:
    """Reads that can be wide, with the conditions that they stand under, and the choices between
    them and constants."""
    seen: set[tuple[Expr, Guards]] = set()
    found: dict[Read, dict[Guards, Select | None]] = {}
    choices: dict[tuple[Expr, Guards], Select] = {}
    waiting: list[tuple[Expr, Guards]] = [(value, ())]
    while waiting:
        e, guards = entry = waiting.pop()
        if entry in seen:
            continue
        seen.add(entry)
        if isinstance(e, Select):
            waiting.append((e.condition, guards))
            if var not in free_symbols(e.condition):
                then = (e.then, (*guards, (e.condition, True)))
                if isinstance(e.other, Const):
                    choices.setdefault(then, e)
                waiting += [then, (e.other, (*guards, (e.condition, False)))]
        elif isinstance(e, Read) and isinstance(e.tensor, Buffer):
            if _is_wide(values, e, var, extent):
                found.setdefault(e, {})[guards] = choices.get(entry)
        elif not _is_lazy(e):
            waiting += [(c, guards) for c in e.children()]
    for read, places in found.items():
        if () in places:
            yield read, (), None
        elif len(places) == 1:  # under different conditions, it is read under each of them
            ((guards, choice),) = places.items()
            yield read, guards, choice


def _is_wide(values: Values, read: Read, var: Var, extent: int) -> bool:
    buffer = read.tensor
    if any(isinstance(x, Read) for i in read.indices for x in subexpressions(i)):
        return False
    assert isinstance(buffer, Buffer)
    in_memory = values.places.in_memory(buffer)
    return in_memory and _width(values, buffer, read.indices, var, extent) > 1


def _is_lazy(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("and", "or")


def _width(values: Values, buffer: Buffer, at: Sequence[Expr], var: Var, extent: int) -> int:
    """The elements of one access: neighbours whose address is a multiple of their bytes."""
    form = values.places.address(buffer, at)
    rest = Affine(tuple(t for t in form.terms if t[0] is not var), form.constant)
    inner = any(var in free_symbols(a) for a, _ in rest.terms)
    rank = values.places.is_elsewhere(buffer, at) and var in free_symbols(at[0])
    if form.coefficient(var) != 1 or inner or rank:
        return 1
    divisor, size = values.indices.divisor(rest), buffer.dtype.itemsize
    width = _WIDEST // size
    while width > 1 and (extent % width or divisor % width or width * size not in _CARRIERS):
        width //= 2
    return max(width, 1)


def _load_wide(
    values: Values, read: Read, guards: Guards, choice: Select | None, var: Var, extent: int
) -> None:
    """Loads all lanes of a read, and makes them known.

    Where it is not read it is what is chosen then, if that is a constant: nothing chooses again.
    """
    buffer = read.tensor
    assert isinstance(buffer, Buffer)
    width = _width(values, buffer, read.indices, var, extent)
    kind = _CARRIERS[width * buffer.dtype.itemsize]
    conditions = [values.value(c if holds else call("not", c)) for c, holds in guards]
    for start in range(0, extent, width):
        at = tuple(in_lane(i, var, start) for i in read.indices)
        name = values.lines.name("w")
        text = _wide_text(values, buffer, at, kind, width)
        if conditions:
            values.lines.line(f"{kind} {name} = {_instead(values, choice, buffer, width)};")
            values.lines.line(f"if ({' && '.join(conditions)}) {name} = {text};")
        else:
            values.lines.line(f"const {kind} {name} = {text};")
        for lane in range(width):
            element = in_lane(read, var, start + lane)
            bits = _part(name, kind, lane, buffer.dtype)
            values.known[element] = values.from_memory(bits, buffer)
            if choice is not None:
                chosen = in_lane(choice, var, start + lane)
                values.known[chosen] = values.known[element]


def _instead(values: Values, choice: Select | None, buffer: Buffer, width: int) -> str:
    """A carrier of what is chosen where nothing is read."""
    if choice is None or not isinstance(choice.other, Const) or str(choice.other.value) == "0.0":
        return "{}"
    return _packed([values.to_memory(choice.other, buffer)] * width, buffer.dtype)


def _wide_text(values: Values, buffer: Buffer, at: tuple[Expr, ...], kind: str, width: int) -> str:
    if values.places.is_elsewhere(buffer, at):
        load = values.lines.call(f"load_cluster_{width * buffer.dtype.itemsize}")
        return f"{load}({address_elsewhere(values, buffer, at)})"
    place = values.text_of(values.places.address(buffer, at).expr())
    return f"*(const {kind}*)({values.places.bases[buffer]} + {place})"


def _part(name: str, kind: str, lane: int, dtype: DType) -> str:
    """One element of a carrier, as it lies in memory."""
    size = dtype.itemsize
    if size == 8:
        low, high = (_word(name, kind, 2 * lane + n) for n in range(2))
        bits = f"((unsigned long long){high} << 32 | {low})"
        return f"__longlong_as_double((long long){bits})" if dtype.is_float else (
            f"({memory_type(dtype)}){bits}")  # fmt: skip
    word = _word(name, kind, lane * size // 4)
    if size == 4:
        return f"__uint_as_float({word})" if dtype.is_float else f"({memory_type(dtype)}){word}"
    shift = lane * size % 4 * 8
    return f"({memory_type(dtype)})({word} >> {shift})"


def _word(name: str, kind: str, number: int) -> str:
    return name if kind == "unsigned int" else f"{name}.{_WORDS[number]}"


def _packed(texts: Sequence[str], dtype: DType) -> str:
    """Elements as they lie in memory, as one carrier."""
    words = _words(texts, dtype)
    return words[0] if len(words) == 1 else f"make_uint{len(words)}({', '.join(words)})"


def _words(texts: Sequence[str], dtype: DType) -> list[str]:
    size = dtype.itemsize
    if size == 8:
        wide = [f"__double_as_longlong({t})" if dtype.is_float else t for t in texts]
        return [
            w
            for t in wide
            for w in (f"(unsigned int){t}", f"(unsigned int)((unsigned long long){t} >> 32)")
        ]
    if size == 4:
        return [f"{_BITS[dtype.name]}({t})" for t in texts]
    per_word, mask = 4 // size, "unsigned short" if size == 2 else "unsigned char"
    return [
        " | ".join(
            f"(unsigned int)({mask})({t}) << {n * size * 8}"
            for n, t in enumerate(texts[start : start + per_word])
        )
        for start in range(0, len(texts), per_word)
    ]
