"""The meaning of programs for GPUs: all threads of a cluster advance statement by statement.

    y[b * 32 + l] = x[b * 32 + l] + 1      ->      one NumPy addition over all l, and several b

It is what generated kernels are tested against.  Every value is an array over the threads that are
active, so that it is fast enough for the shapes of real sketches, and every cell of memory that
threads share remembers who wrote and read it, so that a program which only works by luck is an
error: `WH1306` (races), `WH1307` (values that are not there yet), `WH1308` (statements that not all
threads reach, or in a form that no machine has) and `WH1302` (accesses out of bounds).
"""

from whet.ir.lockstep.kernel import run_threads

__all__ = ["run_threads"]
