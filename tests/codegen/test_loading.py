"""Machine code in a process whose memory is full of other things."""

from __future__ import annotations

import subprocess
import sys

LOADING = """
import ctypes

import numpy as np

from whet.codegen.llvm.compile import Library, emit_object, host_cpu

TABLE = '''
@table = internal constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]
define void @pick(ptr %out, i64 %i) {
  %p = getelementptr [4 x float], ptr @table, i64 0, i64 %i
  %x = load float, ptr %p
  store float %x, ptr %out
  ret void
}
'''
PAGE, FAR = 4096, 3 << 30
PRIVATE, ANONYMOUS, NO_RESERVE = 0x02, 0x20, 0x4000
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_size_t
libc.mmap.argtypes = (ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_size_t, ctypes.c_size_t)


def take(nbytes):
    return libc.mmap(0, nbytes, 0, PRIVATE | ANONYMOUS | NO_RESERVE, -1, 0)


code = emit_object(TABLE, *host_cpu())
wall = take(FAR)
size, last = 1 << 30, 0
while size >= PAGE:  # until all room above the wall is taken
    found = take(size)
    if found > wall:
        last = found if size == PAGE else last
        continue
    libc.munmap(found, size)
    size //= 4
libc.munmap(last, PAGE)  # room for a page of code, and none for its constants
out = np.zeros(1, np.float32)
library = Library([code])
library.function("pick", ctypes.c_void_p, ctypes.c_int64)(out.ctypes.data, 2)
print(out[0])
"""


def test_code_and_its_constants_lie_together() -> None:
    """With three gigabytes of something else between them, no instruction would reach."""
    done = subprocess.run(
        [sys.executable, "-c", LOADING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr
