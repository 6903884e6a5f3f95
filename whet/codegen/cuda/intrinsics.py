"""The functions that generated code calls, one text each: all target text outside the emitter.

Texts need no headers.  Those of later generations are refused for earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.gpu import OLDEST_GENERATION as OLDEST

_HEAD = "__device__ __forceinline__"


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A device function."""

    text: str
    generation: int = OLDEST
    needs: tuple[str, ...] = ()


def _function(signature: str, body: str, generation: int = OLDEST, *needs: str) -> Intrinsic:
    return Intrinsic(f"{_HEAD} {signature} {{ {body} }}", generation, needs)


def _assembly(text: str, outputs: str = "", inputs: str = "") -> str:
    return f'asm volatile("{text}" : {outputs} : {inputs} : "memory");'


def _template(signature: str, body: str, *needs: str) -> Intrinsic:
    return Intrinsic(f"template <typename T> {_HEAD} {signature} {{ {body} }}", needs=needs)


# ------------------------------------------------------------------------------ scalar functions
_SCALARS = {
    "from_f16": _function(
        "float whet_from_f16(unsigned short x)",
        'float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y;'),
    "to_f16": _function(
        "unsigned short whet_to_f16(float x)",
        'unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y;'),
    "round_f16": _function(
        "float whet_round_f16(float x)", "return whet_from_f16(whet_to_f16(x));", OLDEST,
        "from_f16", "to_f16"),
    "round_f16_f64": _function(
        "float whet_round_f16_f64(double x)",
        'unsigned short y; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y) : "d"(x)); '
        "return whet_from_f16(y);", OLDEST, "from_f16"),
    "from_bf16": _function(
        "float whet_from_bf16(unsigned short x)",
        "return __uint_as_float((unsigned int)x << 16);"),
    "to_bf16": _function(
        "unsigned short whet_to_bf16(float x)",
        'unsigned short y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y;'),
    "round_bf16": _function(
        "float whet_round_bf16(float x)", "return whet_from_bf16(whet_to_bf16(x));", OLDEST,
        "from_bf16", "to_bf16"),
    "tf32": _function(
        "float whet_tf32(float x)",
        'unsigned int y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)); '
        "return __uint_as_float(y);"),
    "tf32_cut": _function(
        "float whet_tf32_cut(float x)",
        "return __uint_as_float(__float_as_uint(x) & 0xffffe000u);"),
    "exp_near": _function(
        "float whet_exp_near(float x)",
        'float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0x1.715476p+0f)); '
        "return y;"),
    "reciprocal_near": _function(
        "float whet_reciprocal_near(float x)",
        'float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y;'),
    # x / by as a product with the reciprocal of `by`, which a remainder makes what a division
    # gives, without its branch.  Far from one, where a remainder may be lost, the result may be
    # the neighbour of the right one.
    "divide": _function(
        "float whet_divide(float x, float by, float reciprocal)",
        "float q = x * reciprocal; float better = fmaf(fmaf(-q, by, x), reciprocal, q); "
        "return fabsf(x) > 0x1p-80f && fabsf(x) < 0x1p80f ? better : q;"),
    "min_f32": _function(
        "float whet_min_f32(float a, float b)",
        'float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y;'),
    "max_f32": _function(
        "float whet_max_f32(float a, float b)",
        'float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y;'),
    "min_f64": _function(
        "double whet_min_f64(double a, double b)", "return a != a || a < b ? a : b;"),
    "max_f64": _function(
        "double whet_max_f64(double a, double b)", "return a != a || a > b ? a : b;"),
    "min": _template("T whet_min(T a, T b)", "return b < a ? b : a;"),
    "max": _template("T whet_max(T a, T b)", "return a < b ? b : a;"),
    "sign_float": _template(
        "T whet_sign_float(T x)", "return x < 0 ? T(-1) : x > 0 ? T(1) : x + T(0);"),
    "sign": _template("T whet_sign(T x)", "return x < 0 ? T(-1) : T(x != 0);"),
    "abs": _template("T whet_abs(T x)", "return x < 0 ? T(0 - x) : x;"),
    "sigmoid_f32": _function(
        "float whet_sigmoid_f32(float x)", "return 1.0f / (1.0f + expf(-x));"),
    "sigmoid_f64": _function(
        "double whet_sigmoid_f64(double x)", "return 1.0 / (1.0 + exp(-x));"),
    "mod_float": _template(
        "T whet_mod_float(T x, T y)",
        "T r = fmod(x, y); if (r == 0) return copysign(T(0), y); "
        "return (r < 0) != (y < 0) ? r + y : r;"),
    "pow_float": _template(
        "T whet_pow_float(T x, T y)",
        "if (y == T(2)) return x * x; if (y == T(-1)) return T(1) / x; "
        "if (y == T(0.5)) return isinf(x) ? fabs(x) : sqrt(x + T(0)); return pow(x, y);"),
    "pow": _template(
        "T whet_pow(T x, T y)",
        "unsigned long long base = x, rest = y, total = 1; "
        "for (; rest; rest >>= 1, base *= base) if (rest & 1) total *= base; return T(total);"),
    "truncdiv": _template(
        "T whet_truncdiv(T x, T y)",
        "if (y == 0) return 0; if (T(-1) < 0 && y == T(-1)) return T(0 - x); return x / y;"),
    "truncmod": _template(
        "T whet_truncmod(T x, T y)",
        "if (y == 0) return T(-1) < 0 ? x % 1 : T(0); if (T(-1) < 0 && y == T(-1)) return 0; "
        "return x % y;"),
    "floordiv": _template(
        "T whet_floordiv(T x, T y)",
        "T q = whet_truncdiv(x, y), r = whet_truncmod(x, y); "
        "return y != 0 && r != 0 && (r < 0) != (y < 0) ? q - 1 : q;", "truncdiv", "truncmod"),
    "mod": _template(
        "T whet_mod(T x, T y)",
        "T r = whet_truncmod(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r;",
        "truncmod"),
    "shiftleft": _template(
        "T whet_shiftleft(T x, T y)",
        "return (unsigned long long)y >= 8 * sizeof(T) ? T(0) : T((unsigned long long)x << y);"),
    "shiftright": _template(
        "T whet_shiftright(T x, T y)",
        "bool far = (unsigned long long)y >= 8 * sizeof(T); "
        "return far ? T(x < 0 ? -1 : 0) : T(x >> y);"),
    "to_i32": _template(
        "int whet_to_i32(T x)",
        "return fabs(x) < T(2147483648.0) ? (int)x : -2147483647 - 1;"),
    "to_i64": _template(
        "long long whet_to_i64(T x)",
        "return fabs(x) < T(9223372036854775808.0) ? (long long)x : -9223372036854775807LL - 1;"),
    "to_u64": _template(
        "unsigned long long whet_to_u64(T x)",
        "return x >= T(9223372036854775808.0) && x < T(18446744073709551616.0) ? "
        "(unsigned long long)x : (unsigned long long)whet_to_i64(x);", "to_i64"),
    "inside": _function(
        "long long whet_inside(long long index, long long extent, long long* status)",
        "if ((unsigned long long)index < (unsigned long long)extent) return index; "
        "*status = 1; return index < 0 ? 0 : extent - 1;"),
}  # fmt: skip

# -------------------------------------------------------------------------------- shared memory
_SHARED = "(unsigned int)__cvta_generic_to_shared(p)"
# A cluster reads each other's shared memory, nothing else that it wrote.  An arrival that releases
# global memory, too, waits until the second cache has acknowledged all that was written there.
_ARRIVE = (
    "fence.acq_rel.cta;\\n"
    "fence.release.sync_restrict::shared::cta.cluster;\\n"
    "barrier.cluster.arrive.relaxed.aligned;"
)

_THREADS = {
    "shared_address": _function(
        "unsigned int whet_shared_address(const void* p)", f"return {_SHARED};"),
    # Nothing is moved: compilers keep the sum together that an address starts with.
    "start": _function(
        "unsigned int whet_start(unsigned int address)",
        'unsigned int y; asm("mov.b32 %0, %1;" : "=r"(y) : "r"(address)); return y;'),
    "start_of": _template(
        "const T* whet_start_of(const T* address)",
        'const T* y; asm("mov.b64 %0, %1;" : "=l"(y) : "l"(address)); return y;'),
    "copy_16": _function(
        "void whet_copy_16(unsigned int to, const void* from, bool valid)",
        _assembly("cp.async.cg.shared.global [%0], [%1], 16, %2;", "",
                  '"r"(to), "l"(from), "r"(valid ? 16 : 0)')),
    "copy_16_near": _function(
        "void whet_copy_16_near(unsigned int to, const void* from, bool valid)",
        _assembly("cp.async.ca.shared.global [%0], [%1], 16, %2;", "",
                  '"r"(to), "l"(from), "r"(valid ? 16 : 0)')),
    "copy_8": _function(
        "void whet_copy_8(unsigned int to, const void* from, bool valid)",
        _assembly("cp.async.ca.shared.global [%0], [%1], 8, %2;", "",
                  '"r"(to), "l"(from), "r"(valid ? 8 : 0)')),
    "copy_4": _function(
        "void whet_copy_4(unsigned int to, const void* from, bool valid)",
        _assembly("cp.async.ca.shared.global [%0], [%1], 4, %2;", "",
                  '"r"(to), "l"(from), "r"(valid ? 4 : 0)')),
    "commit": _function("void whet_commit()", _assembly("cp.async.commit_group;")),
    "wait": Intrinsic(
        f"template <int PENDING> {_HEAD} void whet_wait() {{ "
        + _assembly("cp.async.wait_group %0;", "", '"n"(PENDING)') + " }"),
    "exchange": _template(  # two instructions for 64 bits
        "T whet_exchange(T x, int mask)", "return __shfl_xor_sync(0xffffffffu, x, mask);"),
    "await_inputs": _function(
        "void whet_await_inputs()", _assembly("griddepcontrol.wait;"), 90),
    "launch_next": _function(
        "void whet_launch_next()", _assembly("griddepcontrol.launch_dependents;"), 90),
    "cluster_barrier": _function(
        "void whet_cluster_barrier()",
        _assembly(f"{_ARRIVE}\\nbarrier.cluster.wait.acquire.aligned;"), 90),
    "arrive": _function("void whet_arrive()", _assembly(_ARRIVE), 90),
    "await_arrivals": _function(
        "void whet_await_arrivals()", _assembly("barrier.cluster.wait.acquire.aligned;"), 90),
    "in_rank": _function(
        "unsigned int whet_in_rank(unsigned int address, unsigned int rank)",
        'unsigned int y; asm("mapa.shared::cluster.u32 %0, %1, %2;" '
        ': "=r"(y) : "r"(address), "r"(rank)); return y;', 90),
    "load_cluster_4": _function(
        "unsigned int whet_load_cluster_4(unsigned int address)",
        "unsigned int y; "
        + _assembly("ld.shared::cluster.u32 %0, [%1];", '"=r"(y)', '"r"(address)')
        + " return y;", 90),
    "load_cluster_8": _function(
        "uint2 whet_load_cluster_8(unsigned int address)",
        "uint2 y; " + _assembly("ld.shared::cluster.v2.u32 {%0, %1}, [%2];",
                                '"=r"(y.x), "=r"(y.y)', '"r"(address)') + " return y;", 90),
    "load_cluster_16": _function(
        "uint4 whet_load_cluster_16(unsigned int address)",
        "uint4 y; " + _assembly("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];",
                                '"=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w)', '"r"(address)')
        + " return y;", 90),
}  # fmt: skip


# ------------------------------------------------------------------------------------- matrices
def _multiply_add(kind: str, shape: str, accumulator: str = "f32") -> str:
    operands = ", ".join(f"%{n}" for n in range(4))
    left = ", ".join(f"%{n}" for n in range(4, 8))
    sums = ", ".join(f'"+f"(c[{n}])' for n in range(4))
    inputs = ", ".join([*(f'"r"(a[{n}])' for n in range(4)), '"r"(b[0])', '"r"(b[1])'])
    text = (
        f"mma.sync.aligned.{shape}.row.col.{accumulator}.{kind}.{kind}.{accumulator} "
        f"{{{operands}}}, {{{left}}}, {{%8, %9}}, {{{operands}}};"
    )
    return f'asm volatile("{text}" : {sums} : {inputs});'


def _product(kind: str, shape: str) -> Intrinsic:
    """Two instructions: the sums of a warp are 16 by 16, those of an instruction 16 by 8."""
    one = f"{_HEAD} void whet_multiply_add_{kind}_half(float* c, const unsigned int* a, "
    one += f"const unsigned int* b) {{ {_multiply_add(kind, shape)} }}"
    both = f"{_HEAD} void whet_multiply_add_{kind}(float* c, const unsigned int* a, "
    both += f"const unsigned int* b) {{ whet_multiply_add_{kind}_half(c, a, b); "
    both += f"whet_multiply_add_{kind}_half(c + 4, a, b + 2); }}"
    return Intrinsic(f"{one}\n{both}")


def _load(name: str, turned: str) -> Intrinsic:
    """Four matrices of 8 x 8 numbers of 16 bits, rows of which lanes give the addresses of."""
    return _function(
        f"void whet_{name}(unsigned int* r, unsigned int address)",
        _assembly(f"ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{%0, %1, %2, %3}}, [%4];",
                  ", ".join(f'"=r"(r[{n}])' for n in range(4)), '"r"(address)'),
    )  # fmt: skip


_MATRICES = {
    "load_matrix": _load("load_matrix", ""),
    "load_turned_matrix": _load("load_turned_matrix", ".trans"),
    "multiply_add_f16": _product("f16", "m16n8k16"),
    "multiply_add_bf16": _product("bf16", "m16n8k16"),
    "multiply_add_tf32": _product("tf32", "m16n8k8"),
}  # fmt: skip

INTRINSICS: dict[str, Intrinsic] = {**_SCALARS, **_THREADS, **_MATRICES}
