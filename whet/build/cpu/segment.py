"""A native segment: the kernels of one plan behind one entry point."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from whet.build.cpu.image import STATUS_BYTES, SegmentImage
from whet.build.cpu.threads import Threads
from whet.build.outside import refuse_outside
from whet.codegen.llvm.compile import Library
from whet.core.alignment import aligned_zeros
from whet.core.cpu import CpuTarget
from whet.core.foreign import refuse_foreign
from whet.core.memory import require_memory
from whet.core.types import Array
from whet.graph.graph import Graph
from whet.runtime.arrays import address_of, is_ready
from whet.runtime.executable import OutliersError
from whet.runtime.results import Results

ENTRY = "whet_run"


class NativeSegment:
    """Runs an image.  Calls from several threads get memory of their own."""

    def __init__(self, image: SegmentImage, graph: Graph, threads: Threads) -> None:
        require_memory(image.arena_bytes, "values between the operators")
        self.image, self.threads = image, threads
        self.library = Library(list(image.objects), threads.symbols)
        self.entry = self.library.function(ENTRY, ctypes.c_void_p, ctypes.c_void_p)
        self.contexts: list[Context] = []
        self.watched = image.watched
        self.is_guarded = any(s.kind == "alarm" for s in image.slots)
        self.pointer_count = len(graph.inputs) + len(graph.outputs)
        types = [v.tensor_type for v in graph.outputs]
        self._results = [Results(t.shape, t.dtype.numpy) for t in types]

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        """The outputs for inputs of the right types, in any memory layout.

        Arrays in `out` must be contiguous, aligned and apart from the inputs.  `OutliersError` if
        guarded kernels met values that they would spread; then results mean nothing.
        """
        try:
            context = self.contexts.pop()  # one operation, hence safe between threads
        except IndexError:
            context = Context(self)
        results = out if out is not None else [r.new() for r in self._results]
        pointers, held, number = context.pointers, [], 0
        for array in inputs:
            if not is_ready(array):
                array = np.array(array, order="C")
                held.append(array)  # must live until the call has returned
            pointers[number] = address_of(array)
            number += 1
        for array in results:
            pointers[number] = address_of(array)
            number += 1
        self.threads.apply()
        self.entry(context.table_address, context.pointers_address)
        refused = self.watched and context.refused_by(self.watched)
        alarmed = self.is_guarded and context.was_alarmed()
        self.contexts.append(context)
        if alarmed:  # what was spread may have been an index
            raise OutliersError
        if refused:
            refuse_outside(refused)
        return tuple(results)


class ForeignSegment:
    """An image that was built for another processor: it can be looked at, and not run."""

    def __init__(self, image: SegmentImage, target: CpuTarget, missing: Sequence[str]) -> None:
        self.image, self.target, self.missing = image, target, missing

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        refuse_foreign(self.target, self.missing)


class Context:
    """Memory and parameter tables for one call at a time."""

    def __init__(self, segment: NativeSegment) -> None:
        image = segment.image
        # Zeroed once: borders that no other value's memory covers are never written again.
        self.memory = aligned_zeros(image.arena_bytes)
        self.status = (ctypes.c_int64 * (len(segment.watched) + 1))()  # the alarm is the last
        # Addresses of the caller's arrays are filled in by the entry point at each call.
        entries = image.addresses(address_of(self.memory), ctypes.addressof(self.status))
        self.table = (ctypes.c_uint64 * max(len(entries), 1))(*entries)
        self.pointers = (ctypes.c_uint64 * max(segment.pointer_count, 1))()
        self.table_address = ctypes.addressof(self.table)
        self.pointers_address = ctypes.addressof(self.pointers)

    def was_alarmed(self) -> bool:
        """Whether guarded kernels met outliers in this call; the next one begins anew."""
        alarm, self.status[-1] = self.status[-1], 0
        return bool(alarm)

    def refused_by(self, watched: Sequence[str]) -> list[str]:
        """The kernels that met something impossible in this call; the next one begins anew."""
        found = [name for name, status in zip(watched, self.status) if status]
        if found:
            ctypes.memset(self.status, 0, STATUS_BYTES * len(watched))
        return found
