"""NVRTC takes what is written: `make test-cuda`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, sample_graph
from tests.ir.thread_programs import (
    elementwise,
    product,
    ring,
    split_sum,
    transposed,
    turned_product,
    two_kernels,
)
from whet.build.native import build
from whet.codegen.cuda.emit import emit_program
from whet.codegen.cuda.nvrtc import compile_cubin, nvrtc_version
from whet.core.dtypes import bf16, f16, f32
from whet.core.errors import WhetError
from whet.core.gpu import PRESETS
from whet.ir.program import Program
from whet.ops.base import REGISTRY

pytestmark = pytest.mark.cuda

PROGRAMS = {
    "elementwise": elementwise(), "transposed": transposed(), "ring": ring(),
    "two_kernels": two_kernels(), **{f"product {d}": product(d) for d in (f16, bf16, f32)},
    **{f"turned product {d}": turned_product(d) for d in (f16, bf16, f32)},
}  # fmt: skip
NATIVE = [n for n in sorted(REGISTRY) if not REGISTRY[n].host and REGISTRY[n].deterministic]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", PRESETS.values(), ids=lambda t: t.architecture)
def test_thread_programs_compile(name: str, target: object) -> None:
    found = next(t for t in PRESETS.values() if t is target)
    text, _ = emit_program(PROGRAMS[name], found)
    assert compile_cubin(text, found.architecture).startswith(b"\x7fELF")


def test_clusters_compile() -> None:
    text, _ = emit_program(split_sum(), PRESETS["cuda-sm_90a"])
    assert compile_cubin(text, "sm_90a").startswith(b"\x7fELF")


def test_a_refusal_is_told() -> None:
    assert nvrtc_version()
    with pytest.raises(WhetError, match="NVRTC refused generated code") as error:
        compile_cubin('extern "C" __global__ void k() { nothing(); }', "sm_80")
    assert error.value.code == "WH1304"


@pytest.mark.parametrize("name", NATIVE)
def test_operators_compile(name: str) -> None:
    """Every operator has code for a GPU, whatever becomes of it there."""
    rng = np.random.default_rng(sum(name.encode()))
    cls = REGISTRY[name]
    for sample in (*cls.samples(), cls.sample(rng)):
        made = build(sample_graph(sample), PRESETS["cuda-sm_90a"], 1, NO_CACHE)
        assert made.describe()


def test_programs_without_threads_compile() -> None:
    from whet.core.dtypes import i64
    from whet.ir.expr import Var, const
    from whet.ir.program import Buffer, Loop, Store

    i, x = Var("i"), Buffer("x", (300,), f32)
    body = Loop(i, const(300, i64), (Store(x, (i,), const(1.0, f32)),), "parallel")
    text, _ = emit_program(Program("k", (), (x,), (body,)), PRESETS["cuda-sm_80"])
    assert compile_cubin(text, "sm_80")
