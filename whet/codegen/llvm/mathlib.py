"""Scalar functions as instructions, on scalars and vectors alike.

Vector intrinsics such as llvm.exp become one library call per lane, so the functions that
networks use most are polynomials of our own in f32 (about two units in the last place).
The rest, and f64, call the C library lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.codegen.llvm.conversion import convert
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.operand import Operand, is_number, literal, llvm_type
from whet.codegen.llvm.support import no_code
from whet.core.dtypes import bool_, compute_dtype, f32, i32

Rule = Callable[..., Operand]

_LIBM = {
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
    "atanh", "exp", "log", "erf", "pow",
}  # fmt: skip
_INTRINSIC = {
    "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "nearbyint",
    "trunc": "trunc",
}  # fmt: skip
"""`rint` is the same, but LLVM makes one instruction of it and a conversion to integers, and for
SSE lets that read memory whose alignment it does not know, which ends the process."""


def call(f: FunctionWriter, name: str, args: Sequence[Operand]) -> Operand:
    """The function `name` of ir.functions on operands of one element type."""
    lanes = max(a.lanes for a in args)
    args = [f.splat(a, lanes) for a in args]
    dtype = args[0].dtype
    if compute_dtype(dtype) != dtype:
        result = call(f, name, [convert(f, a, f32) for a in args])
        return convert(f, result, dtype) if result.dtype is f32 else result
    if dtype is f32 and name in _POLYNOMIALS:
        return _POLYNOMIALS[name](f, *args)
    if dtype.is_float:
        return _float_call(f, name, args)
    return _integer_call(f, name, args)


def _float_call(f: FunctionWriter, name: str, args: list[Operand]) -> Operand:
    x = args[0]
    zero = literal(0, x.dtype, x.lanes)
    match name:
        case "neg":
            return f.emit(f"fneg {x}", x.dtype, x.lanes)
        case "min" | "max":
            return minimum_or_maximum(f, name, x, args[1])
        case "isnan":
            return f.compare("uno", x, x)
        case "isinf":
            return f.compare("oeq", f.intrinsic("fabs", x), literal(float("inf"), x.dtype, x.lanes))
        case "sign":
            one = f.intrinsic("copysign", literal(1, x.dtype, x.lanes), x)
            # NaN stays what it is, and the sum of two zeros of unlike sign is positive.
            return f.choose(f.compare("one", x, zero), one, f.binary("fadd", x, zero))
        case "sigmoid":
            e = call(f, "exp", [f.emit(f"fneg {x}", x.dtype, x.lanes)])
            one = literal(1, x.dtype, x.lanes)
            return f.binary("fdiv", one, f.binary("fadd", one, e))
        case "mod":
            return _floored_remainder(f, x, args[1])
        case "truncmod":
            return f.binary("frem", x, args[1])
        case "floordiv":
            return f.intrinsic("floor", f.binary("fdiv", x, args[1]))
        case "truncdiv":
            return f.intrinsic("trunc", f.binary("fdiv", x, args[1]))
    if name in _INTRINSIC:
        return f.intrinsic(_INTRINSIC[name], x)
    if name in _LIBM:
        return _library(f, name, args)
    no_code(f"{name} of {x.dtype}")


def minimum_or_maximum(f: FunctionWriter, name: str, a: Operand, b: Operand) -> Operand:
    """The smaller or larger operand; a NaN in either gives NaN, as in NumPy.

    One instruction takes the second operand when either is NaN, so only a NaN in the first
    needs a second look, and none when the second is a constant that is a number.
    """
    a, b = f.match_lanes(a, b)
    if not a.text.startswith("%"):
        a, b = b, a
    less = f.compare("olt" if name == "min" else "ogt", b, a)
    picked = f.emit(f"select {less}, {b}, {a}", a.dtype, a.lanes)
    if is_number(b):
        return picked
    return f.choose(f.compare("uno", b, b), b, picked)


def _floored_remainder(f: FunctionWriter, x: Operand, y: Operand) -> Operand:
    """The remainder with the sign of y, also where it is zero."""
    zero = literal(0, x.dtype, x.lanes)
    r = f.binary("frem", x, y)
    apart = f.binary("xor", f.compare("olt", r, zero), f.compare("olt", y, zero))
    moved = f.choose(apart, f.binary("fadd", r, y), r)
    return f.choose(f.compare("oeq", r, zero), f.intrinsic("copysign", zero, y), moved)


def _library(f: FunctionWriter, name: str, args: list[Operand]) -> Operand:
    """A call of the C library for each lane."""
    return _per_lane(f, name + ("f" if args[0].dtype is f32 else ""), args)


def _per_lane(f: FunctionWriter, symbol: str, args: list[Operand]) -> Operand:
    """A function of scalars applied to each lane."""
    dtype, lanes = args[0].dtype, args[0].lanes
    if not lanes:
        return f.call(symbol, dtype, 0, *args)
    return f.pack(
        [f.call(symbol, dtype, 0, *(f.extract(a, n) for a in args)) for n in range(lanes)]
    )


def _define_power(f: FunctionWriter, kind: str) -> str:
    """The name of x**y for integers with y >= 0, by repeated squaring; it wraps around."""
    name = f"whet_power_{kind}"
    text = f"""define internal {kind} @{name}({kind} %x, {kind} %y) nounwind {{
start:
  br label %test
test:
  %base = phi {kind} [ %x, %start ], [ %square, %body ]
  %rest = phi {kind} [ %y, %start ], [ %half, %body ]
  %total = phi {kind} [ 1, %start ], [ %next, %body ]
  %done = icmp eq {kind} %rest, 0
  br i1 %done, label %end, label %body
body:
  %odd = trunc {kind} %rest to i1
  %more = mul {kind} %total, %base
  %next = select i1 %odd, {kind} %more, {kind} %total
  %square = mul {kind} %base, %base
  %half = lshr {kind} %rest, 1
  br label %test
end:
  ret {kind} %total
}}"""
    if text not in f.module.functions:
        f.module.functions.append(text)
    return name


def _integer_call(f: FunctionWriter, name: str, args: list[Operand]) -> Operand:
    x = args[0]
    signed = x.dtype.kind == "int"
    zero = literal(0, x.dtype, x.lanes)
    y = args[1] if len(args) > 1 else zero
    if x.dtype is bool_ and name in ("sign", "pow"):
        no_code(f"{name} of {x.dtype}")
    match name:
        case "neg":
            return f.binary("sub", zero, x)
        case "abs":
            return f.choose(f.compare("slt", x, zero), f.binary("sub", zero, x), x) if signed else x
        case "sign":
            positive = f.emit(f"zext {f.compare('ne', x, zero)} to {x.type}", x.dtype, x.lanes)
            if not signed:
                return positive
            minus = literal(-1, x.dtype, x.lanes)
            return f.choose(f.compare("slt", x, zero), minus, positive)
        case "min" | "max":
            return f.intrinsic(f"{'s' if signed else 'u'}{name}", x, y)
        case "not":
            return f.compare("eq", x, zero)
        case "invert":
            return f.binary("xor", x, literal(-1, x.dtype, x.lanes))
        case "bitand" | "bitor" | "bitxor":
            return f.binary(name[3:], x, y)
        case "shiftleft" | "shiftright":
            return _shifted(f, name, x, y)
        case "truncdiv" | "truncmod" | "floordiv" | "mod":
            return _divided(f, name, x, y)
        case "pow":
            return _per_lane(f, _define_power(f, llvm_type(x.dtype)), args)
        case "floor" | "ceil" | "round" | "trunc":
            return x
    no_code(f"{name} of {x.dtype}")


def _shifted(f: FunctionWriter, name: str, x: Operand, y: Operand) -> Operand:
    """Shifts; by the width or more, everything has been shifted out."""
    width = literal(x.dtype.bits, x.dtype, x.lanes)
    far = f.compare("uge", y, width)
    near = f.choose(far, literal(0, x.dtype, x.lanes), y)
    if name == "shiftleft":
        return f.choose(far, literal(0, x.dtype, x.lanes), f.binary("shl", x, near))
    if x.dtype.kind != "int":
        return f.choose(far, literal(0, x.dtype, x.lanes), f.binary("lshr", x, near))
    most = literal(x.dtype.bits - 1, x.dtype, x.lanes)
    return f.binary("ashr", x, f.choose(far, most, y))


def _divided(f: FunctionWriter, name: str, x: Operand, y: Operand) -> Operand:
    """Quotient or remainder of integers, rounded toward zero or (floordiv, mod) down.

    Processors trap on a divisor of zero, where NumPy gives 0, and on the smallest number
    divided by -1, which wraps around.
    """
    signed = x.dtype.kind == "int"
    zero, one = literal(0, x.dtype, x.lanes), literal(1, x.dtype, x.lanes)
    minus = literal(-1, x.dtype, x.lanes)
    is_zero = f.compare("eq", y, zero)
    safe = f.choose(is_zero, one, y)
    if not signed:
        if name in ("truncmod", "mod"):
            return f.choose(is_zero, zero, f.binary("urem", x, safe))
        return f.choose(is_zero, zero, f.binary("udiv", x, safe))
    is_minus = f.compare("eq", y, minus)
    safe = f.choose(is_minus, one, safe)
    remainder = f.binary("srem", x, safe)
    quotient = f.binary("sdiv", x, safe)
    quotient = f.choose(is_minus, f.binary("sub", zero, x), quotient)
    if name in ("floordiv", "mod"):
        crossed = f.compare("slt", f.binary("xor", remainder, y), zero)
        inexact = f.binary("and", crossed, f.compare("ne", remainder, zero))
        remainder = f.choose(inexact, f.binary("add", remainder, y), remainder)
        quotient = f.choose(inexact, f.binary("sub", quotient, one), quotient)
    if name in ("truncmod", "mod"):
        return remainder
    return f.choose(is_zero, zero, quotient)


def reduce_lanes(f: FunctionWriter, kind: str, vector: Operand) -> Operand:
    """Sum, product, maximum or minimum of a vector's lanes."""
    if compute_dtype(vector.dtype) != vector.dtype:
        return convert(f, reduce_lanes(f, kind, convert(f, vector, f32)), vector.dtype)
    bits = f"v{vector.lanes}{'f' if vector.dtype.is_float else 'i'}{vector.dtype.bits}"
    if kind in ("sum", "prod") and vector.dtype.is_float:
        start = literal(0 if kind == "sum" else 1, vector.dtype)
        name = f"llvm.vector.reduce.f{'add' if kind == 'sum' else 'mul'}.{bits}"
        return f.call(name, vector.dtype, 0, start, vector, flags="reassoc")
    return _halved(f, kind, vector)


def _halved(f: FunctionWriter, kind: str, vector: Operand) -> Operand:
    """One number: the upper part of the lanes is combined with the lower one, again and again.

    <a b c d>  ->  <a.c b.d>  ->  a.c.b.d
    """
    if vector.lanes == 1:
        return f.extract(vector, 0)
    lower = 1 << ((vector.lanes - 1).bit_length() - 1)
    low, high = _part(f, vector, 0, lower), _part(f, vector, lower, vector.lanes - lower)
    if high.lanes < lower:
        return _combine(f, kind, _halved(f, kind, low), _halved(f, kind, high))
    return _halved(f, kind, _combine(f, kind, low, high))


def _part(f: FunctionWriter, vector: Operand, start: int, lanes: int) -> Operand:
    """Neighbouring lanes of a vector."""
    picks = ", ".join(f"i32 {start + n}" for n in range(lanes))
    other = f"{vector.type} poison"
    text = f"shufflevector {vector}, {other}, <{lanes} x i32> <{picks}>"
    return f.emit(text, vector.dtype, lanes)


def _combine(f: FunctionWriter, kind: str, a: Operand, b: Operand) -> Operand:
    match kind:
        case "sum":
            return f.binary("add", a, b)
        case "prod":
            return f.binary("mul", a, b)
        case "any":
            return f.binary("or", a, b)
        case "all":
            return f.binary("and", a, b)
    return call(f, kind, [a, b])


# -------------------------------------------------------------------------- polynomials in f32
EXP_COEFFICIENTS = (1.3814569418e-3, 8.3687309929e-3, 4.1668389414e-2, 1.6666520515e-1,
                    4.9999993440e-1, 1.0, 1.0)  # fmt: skip
"""e**r within 3.1e-9 of its value for r in [-ln2/2, ln2/2]."""
LOG2_E = 1.44269504088896341


def _horner(f: FunctionWriter, x: Operand, coefficients: Sequence[float]) -> Operand:
    """Polynomial with the highest coefficient first."""
    total = literal(coefficients[0], f32, x.lanes)
    for c in coefficients[1:]:
        total = f.intrinsic("fmuladd", total, x, literal(c, f32, x.lanes))
    return total


def _clamp(f: FunctionWriter, x: Operand, low: float, high: float) -> Operand:
    """x within [low, high]; NaN passes through."""
    x = minimum_or_maximum(f, "min", x, literal(high, f32, x.lanes))
    return minimum_or_maximum(f, "max", x, literal(low, f32, x.lanes))


def exp(f: FunctionWriter, x: Operand) -> Operand:
    """2**k * e**r with r in [-ln2/2, ln2/2]; 0 and infinity at the ends, subnormals before 0.

    e**r is a polynomial of degree six, the best one (in relative error) that starts with 1 + r.
    """
    near = _clamp(f, x, -104.0, 89.0)
    if f.module.scales and x.lanes == 16:
        k = f.intrinsic("rint", f.binary("fmul", near, literal(LOG2_E, f32, x.lanes)))
        return _scaled(f, _exp_of_rest(f, near, k), k)
    k, powers = _rounded_with_powers(f, near)
    y = _exp_of_rest(f, near, k)
    for power in powers:
        y = f.binary("fmul", y, power)
    return y


def _exp_of_rest(f: FunctionWriter, x: Operand, k: Operand) -> Operand:
    """e**(x - k * ln2), for the integer k that leaves the least."""
    r = f.intrinsic("fmuladd", k, literal(-0.693359375, f32, x.lanes), x)
    r = f.intrinsic("fmuladd", k, literal(2.12194440e-4, f32, x.lanes), r)
    return _horner(f, r, EXP_COEFFICIENTS)


def _rounded_with_powers(f: FunctionWriter, x: Operand) -> tuple[Operand, list[Operand]]:
    """The integer k nearest to x * log2(e), and two powers of two whose product is 2**k.

    After 1.5 * 2**23 is added, the unit in the last place is 1: the sum is rounded to an integer,
    which stands in its low bits.  k may be -150 to 128, more than exponents can be; with 254 added,
    both halves of it are exponent bits.  The last product is then rounded to a subnormal, or is
    infinite, by itself.
    """
    lanes, ints = x.lanes, llvm_type(i32, x.lanes)
    shift = literal(12582912.0 + 254.0, f32, lanes)
    moved = f.intrinsic("fmuladd", x, literal(LOG2_E, f32, lanes), shift)
    bits = f.emit(f"bitcast {moved} to {ints}", i32, lanes)
    half = f.binary("ashr", bits, literal(1, i32, lanes))
    powers = []
    for part in (half, f.binary("sub", bits, half)):
        exponent = f.binary("shl", part, literal(23, i32, lanes))  # what is above leaves the bits
        powers.append(f.emit(f"bitcast {exponent} to {x.type}", f32, lanes))
    return f.binary("fsub", moved, shift), powers


def _scaled(f: FunctionWriter, y: Operand, k: Operand) -> Operand:
    """y * 2**k in one instruction, which gives 0 or infinity beyond the ends."""
    name = "llvm.x86.avx512.mask.scalef.ps.512"
    f.module.declare(name, y.type, y.type, y.type, y.type, "i16", "i32")
    return f.emit(f"call {y.type} @{name}({y}, {k}, {y}, i16 -1, i32 4)", f32, y.lanes)


def sigmoid(f: FunctionWriter, x: Operand) -> Operand:
    """1 / (1 + exp(-x))."""
    e = exp(f, f.emit(f"fneg {x}", f32, x.lanes))
    one = literal(1, f32, x.lanes)
    return f.binary("fdiv", one, f.binary("fadd", one, e))


def tanh(f: FunctionWriter, x: Operand) -> Operand:
    """Odd rational function up to where it gives exactly one, which depends on the roundings."""
    end = 7.99881172180175781 if f.module.fuses else 7.90531110763549805
    return _odd_quotient(
        f, x, end,
        (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
         1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
        (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
    )  # fmt: skip


def erf(f: FunctionWriter, x: Operand) -> Operand:
    """Odd rational function on [-4, 4], where erf reaches one in f32."""
    return _odd_quotient(
        f, x, 4.0,
        (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
         -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
        (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03,
         -7.37332916720468e-03, -1.42647390514189e-02),
    )  # fmt: skip


def _odd_quotient(
    f: FunctionWriter, x: Operand, end: float, above: Sequence[float], below: Sequence[float]
) -> Operand:
    """x * above(x**2) / below(x**2) with x kept within [-end, end].

    Both are multiplied by 2**10, which changes no digit: x times a number above one keeps its
    digits where x is subnormal.
    """
    x = _clamp(f, x, -end, end)
    square = f.binary("fmul", x, x)
    p, q = (_horner(f, square, [c * 1024 for c in side]) for side in (above, below))
    return f.binary("fdiv", f.binary("fmul", p, x), q)


def log(f: FunctionWriter, x: Operand) -> Operand:
    """Exponent times ln 2 plus a polynomial of the mantissa in [1/sqrt2, sqrt2)."""
    lanes = x.lanes
    ints = llvm_type(i32, lanes)
    # Subnormals are scaled up first so that their exponent field means something.
    small = f.compare("olt", x, literal(1.17549435e-38, f32, lanes))
    scaled = f.choose(small, f.binary("fmul", x, literal(8388608.0, f32, lanes)), x)
    bits = f.emit(f"bitcast {scaled} to {ints}", i32, lanes)
    offset = f.binary("sub", bits, literal(0x3F3504F3, i32, lanes))  # 1/sqrt2
    n = f.binary("ashr", offset, literal(23, i32, lanes))
    mantissa = f.binary("sub", bits, f.binary("shl", n, literal(23, i32, lanes)))
    m = f.emit(f"bitcast {mantissa} to {x.type}", f32, lanes)
    k = f.emit(f"sitofp {n} to {x.type}", f32, lanes)
    k = f.choose(small, f.binary("fsub", k, literal(23.0, f32, lanes)), k)
    t = f.binary("fsub", m, literal(1, f32, lanes))
    p = _horner(f, t, (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                       1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                       3.3333331174e-1))  # fmt: skip
    square = f.binary("fmul", t, t)
    y = f.binary("fmul", f.binary("fmul", p, t), square)
    y = f.intrinsic("fmuladd", k, literal(-2.12194440e-4, f32, lanes), y)
    y = f.intrinsic("fmuladd", square, literal(-0.5, f32, lanes), y)
    y = f.binary("fadd", t, y)
    y = f.intrinsic("fmuladd", k, literal(0.693359375, f32, lanes), y)
    y = f.choose(f.compare("oeq", x, literal(float("inf"), f32, lanes)), x, y)
    y = f.choose(f.compare("oeq", x, literal(0, f32, lanes)), literal(float("-inf"), f32, lanes), y)
    bad = f.compare("ult", x, literal(0, f32, lanes))
    return f.choose(bad, literal(float("nan"), f32, lanes), y)


_POLYNOMIALS: dict[str, Rule] = {
    "exp": exp,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "erf": erf,
    "log": log,
}
