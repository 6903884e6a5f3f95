"""CUDA text on a CPU does what its program says, and faults in it are found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ir.test_lockstep_faults import FAULTS, Fault
from tests.ir.thread_programs import (
    elementwise,
    examples,
    exchanged,
    overlapped,
    product,
    refilled,
    ring,
    rotated,
    split_sum,
    transposed,
    turned_product,
    two_kernels,
    warp_totals,
)
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.compiled import Compiled, Range, RefusedError, compile_text, run_text
from whet.codegen.cuda.emit import emit_program
from whet.codegen.cuda.launch import launches_of
from whet.core.dtypes import bf16, f16, f32, f64, i8, i64
from whet.core.gpu import PRESETS
from whet.ir.lockstep import run_threads
from whet.ir.program import Program

pytestmark = needs_text_runner

PROGRAMS = {
    p.name: p for p in (elementwise(), transposed(), ring(), rotated(), split_sum(), overlapped(),
                        two_kernels(), exchanged(), refilled())
} | {
    f"{warp_totals.__name__} of {dtype}": warp_totals(dtype) for dtype in (f32, f64, f16, i64, i8)
} | {
    f"{make.__name__} of {dtype}": make(dtype)
    for make in (product, turned_product) for dtype in (f16, bf16, f32)
}  # fmt: skip
UNSEEN = {
    # another result, or undefined values, and nothing that a thread may not do
    "tiles overlap with other values", "two threads store different values to memory",
    "workspace that nobody wrote", "lanes load different matrices", "matrix load out of bounds",
    "elements beyond the matrix", "matrix that nobody wrote", "number of a matrix that differs",
    "register that nobody wrote", "a loop of blocks among threads",
    "exchange with what nobody wrote", "what lanes would exchange",
    "exchange of registers that differ", "exchange of memory", "exchange of another type",
    # there is no such text
    "store to an input", "copy of 12 bytes", "element in the wrong lane", "part of another block",
}  # fmt: skip
"""Faults that only programs show."""


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_text_means_the_program(program: Program) -> None:
    arrays = examples(program)
    wanted = run_threads(program, arrays)
    for got, want in zip(run_text(program, arrays), wanted, strict=True):
        wide = [a.astype(np.float64) for a in (got, want)]
        np.testing.assert_allclose(*wide, rtol=1e-6, atol=1e-6 * np.abs(wide[1]).max())


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.name not in UNSEEN], ids=str)
def test_a_fault_is_found(fault: Fault) -> None:
    with pytest.raises(RefusedError):
        run_text(fault.wrong, examples(fault.wrong))


def test_unseen_faults_are_faults() -> None:
    assert {f.name for f in FAULTS} >= UNSEEN
    assert len(FAULTS) - len(UNSEEN) > 30


def changed_text(old: str, new: str) -> None:
    """Runs the transposition with a change of its text."""
    program = transposed()
    text, _ = emit_program(program, PRESETS["cuda-sm_90a"])
    assert text.count(old) > 0, text
    compiled = Compiled(compile_text(text.replace(old, new), checked=True))
    (array,) = examples(program)
    result = np.zeros(program.outputs[0].shape, np.float32)
    ranges = [Range(array.ctypes.data, array.nbytes),
              Range(result.ctypes.data, result.nbytes, 1)]  # fmt: skip
    (launch,) = launches_of(program)
    compiled.run(launch, [array.ctypes.data, result.ctypes.data], ranges)


def test_the_text_itself_is_run() -> None:
    changed_text("__syncthreads();", "__syncthreads();")
    with pytest.raises(RefusedError, match=r"race|where nothing was written"):
        changed_text("__syncthreads();", "__syncwarp();")
    with pytest.raises(RefusedError, match="waits for threads that do not come"):
        changed_text("__syncthreads();", "__syncthreads(); if (threadIdx.x < 32) __syncthreads();")
    with pytest.raises(AssertionError, match="g\\+\\+ refused the text of a kernel"):
        changed_text("__syncthreads();", "no_function();")
