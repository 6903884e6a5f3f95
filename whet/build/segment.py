"""A native segment: the kernels of one plan behind one entry point."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.build.constants import ConstantStore, address_of
from whet.build.entry import ENTRY, TableCall, entry_ir
from whet.build.kernels import KernelMaker, NativeKernel, compile_all
from whet.build.memory import ALIGNMENT, plan_arena
from whet.build.placement import Storage
from whet.build.plan import AnyStep, LoopStep, Plan
from whet.build.threads import Threads
from whet.codegen.llvm.compile import Library
from whet.core.caching import FileCache
from whet.core.types import Array
from whet.ir.tensor import Compute


@dataclass(frozen=True, eq=False)
class Call:
    """A kernel, the step that it computes and what its parameters point to."""

    kernel: NativeKernel
    step: AnyStep
    storages: tuple[Storage, ...]

    @property
    def symbol(self) -> str:
        return self.kernel.symbol


def bind_kernel(kernel: NativeKernel, step: AnyStep, constants: ConstantStore) -> Call:
    """The kernel with the storages of the step; packed constants are made on the way."""
    if isinstance(step, LoopStep):
        found = list(step.storages)
    else:
        found = [
            constants.packed(step, argument)
            if isinstance(argument, Compute) and argument not in step.storages
            else step.storages[argument]
            for argument in kernel.kernel.arguments
        ]
        found += [step.storages[r] for r in kernel.kernel.results]
    for buffer in kernel.kernel.program.workspace:
        found.append(Storage("arena", buffer.type.size, buffer.dtype, found[-1].value))
    return Call(kernel, step, tuple(found))


class NativeSegment:
    """Runs a plan.  Calls from several threads get memory of their own."""

    def __init__(
        self, plan: Plan, calls: Sequence[Call], constants: ConstantStore,
        maker: KernelMaker, cache: FileCache,
    ) -> None:  # fmt: skip
        self.plan, self.calls, self.constants = plan, tuple(calls), constants
        self.graph = plan.graph
        self.arena = plan_arena([[s for s in c.storages if s.kind == "arena"] for c in calls])
        self.threads = Threads(maker.threads, cache)
        table_calls, forwarded = self._lay_out_table()
        kernels = list(dict.fromkeys(c.kernel for c in calls))
        irs = [*(k.ir for k in kernels), entry_ir(table_calls, forwarded), *self.threads.code]
        self.library = Library(compile_all(irs, maker.target, cache), self.threads.symbols)
        self.entry = self.library.function(ENTRY, ctypes.c_void_p, ctypes.c_void_p)
        self.contexts: list[Context] = []
        self._outputs = [
            (v.tensor_type.shape, v.tensor_type.dtype.numpy) for v in plan.graph.outputs
        ]

    def _lay_out_table(self) -> tuple[list[TableCall], list[tuple[int, int]]]:
        """Where each kernel's parameters are, and which of them are arrays of the caller's."""
        graph = self.graph
        inputs = {v: n for n, v in enumerate(graph.inputs)}
        leaving = {p.storage: n for n, p in self.plan.placement.leaving.items()}
        calls, forwarded, at = [], [], 0
        for call in self.calls:
            calls.append(TableCall(call.symbol, at))
            for s in call.storages:
                if s.kind == "input":
                    forwarded.append((at, inputs[s.value]))  # type: ignore[index]
                elif s.kind == "output":
                    number = leaving.get(s)
                    number = graph.outputs.index(s.value) if number is None else number
                    forwarded.append((at, len(inputs) + number))
                at += 1
        return calls, forwarded

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        """The outputs for inputs of the right types, in any memory layout.

        Arrays in `out` must be contiguous, aligned and apart from the inputs.
        """
        try:
            context = self.contexts.pop()  # one operation, hence safe between threads
        except IndexError:
            context = Context(self)
        arrays = [a if a.flags.c_contiguous and a.flags.aligned else np.array(a, order="C")
                  for a in inputs]  # fmt: skip
        results = out if out is not None else [np.empty(s, d) for s, d in self._outputs]
        for number, array in enumerate((*arrays, *results)):
            context.pointers[number] = address_of(array)
        self.threads.apply()
        self.entry(context.table_address, context.pointers_address)
        self.contexts.append(context)
        return tuple(results)


class Context:
    """Memory and parameter tables for one call at a time."""

    def __init__(self, segment: NativeSegment) -> None:
        arena = segment.arena
        # Zeroed once: borders of values are never written again.
        self.memory = np.zeros(arena.nbytes + ALIGNMENT, np.uint8)
        base = -(-address_of(self.memory) // ALIGNMENT) * ALIGNMENT
        entries: list[int] = []
        for call in segment.calls:
            for s in call.storages:
                if s.kind == "arena":
                    entries.append(base + arena.offsets[s])
                elif s.kind == "constant":
                    entries.append(segment.constants.address(s))
                else:
                    entries.append(0)  # filled in by the entry point at each call
        self.table = (ctypes.c_uint64 * max(len(entries), 1))(*entries)
        count = len(segment.graph.inputs) + len(segment.graph.outputs)
        self.pointers = (ctypes.c_uint64 * max(count, 1))()
        self.table_address = ctypes.addressof(self.table)
        self.pointers_address = ctypes.addressof(self.pointers)
