"""The least time that a task can take: its arithmetic at full speed, or its data moved once."""

from __future__ import annotations

from whet.core.target import Target
from whet.tasks.task import Task

_LANES_256, _LANES_512 = 8, 16


def roofline_seconds(task: Task, target: Target, threads: int) -> float:
    """The larger of the two, for the algorithm as it is written.

    Other algorithms (Winograd) do less arithmetic and can be faster than this.
    """
    nbytes = sum(tensor.type.nbytes for tensor in (*task.inputs, *task.outputs))
    return least_seconds(task.operations, nbytes, target, threads)


def least_seconds(operations: float, nbytes: int, target: Target, threads: int) -> float:
    """The larger of so many operations, two in a multiply-add, and so many bytes moved.

    Data that fits the last-level cache is taken to come from there, because other kernels have
    just made it.
    """
    cores = min(threads, target.cores)
    multiply_adds = max(
        target.constant("fma_per_ns_256") * _LANES_256,
        target.constant("fma_per_ns_512") * _LANES_512 if target.vector_bits >= 512 else 0.0,
    )
    inside = nbytes <= target.l3_bytes
    rate = target.constant("l3_bytes_per_ns" if inside else "copy_bytes_per_ns")
    # Memory is shared by the cores, caches serve each core by itself.
    moved = nbytes / (rate * (cores if inside else 1))
    return 1e-9 * max(operations / (2 * multiply_adds * cores), moved)
