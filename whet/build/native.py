"""A model as native code: one call that runs all kernels of the plan."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.build.memory import ALIGNMENT, Arena, plan_arena
from whet.build.placement import Storage
from whet.build.plan import Plan, Step, make_plan
from whet.codegen.llvm.compile import Library, emit_object
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.core.digest import digest_text
from whet.core.target import Target
from whet.core.types import Array
from whet.graph.graph import Constant, Graph
from whet.graph.passes import expand_composites
from whet.ir.tensor import Compute, Tensor
from whet.schedule.default import default_kernel
from whet.schedule.kernel import Kernel, prepare_constant


@dataclass(frozen=True, eq=False)
class Call:
    """A kernel and where each entry of its parameter table points."""

    kernel: Kernel
    symbol: str
    storages: tuple[Storage, ...]


def build(graph: Graph, target: Target, threads: int) -> NativeExecutable:
    """The graph as native code."""
    plan = make_plan(expand_composites(graph))
    kernels: dict[str, tuple[str, Kernel]] = {}
    calls: list[Call] = []
    packed: dict[tuple[str, ...], Storage] = {}
    arrays: dict[Storage, Array] = {}
    for step in plan.steps:
        key = step.task.key
        if key not in kernels:
            symbol = f"k{len(kernels)}"
            kernels[key] = symbol, default_kernel(step.task, target, threads, symbol)
        symbol, kernel = kernels[key]
        calls.append(Call(kernel, symbol, _storages(step, kernel, packed, arrays)))
    objects = [_compile(kernel, target) for _, kernel in kernels.values()]
    return NativeExecutable(plan, calls, objects, arrays, target, threads)


def _compile(kernel: Kernel, target: Target) -> bytes:
    module = Module()
    emit_program(kernel.program, module)
    features = ",".join(f"+{f}" for f in target.features)
    return emit_object(module.text(), target.cpu, features)


def _storages(
    step: Step,
    kernel: Kernel,
    packed: dict[tuple[str, ...], Storage],
    arrays: dict[Storage, Array],
) -> tuple[Storage, ...]:
    """The storages behind the kernel's parameters; prepared constants are made on the way."""
    found: list[Storage] = []
    for argument in kernel.arguments:
        own = _same(step.task, argument)
        if isinstance(own, Compute) and own not in step.storages:
            found.append(_prepared(step, own, packed, arrays))
        else:
            found.append(step.storages[own])
    found += [step.storages[_same(step.task, r)] for r in kernel.results]
    for buffer in kernel.program.workspace:
        found.append(Storage("arena", buffer.type.size, buffer.dtype, step.storages[
            step.task.outputs[0]].value))  # fmt: skip
    return tuple(found)


def _same(task: object, tensor: Tensor) -> Tensor:
    """The step's own tensor; tasks with equal keys have equal, hence identical, tensors."""
    return tensor


def _prepared(
    step: Step,
    argument: Compute,
    packed: dict[tuple[str, ...], Storage],
    arrays: dict[Storage, Array],
) -> Storage:
    constants: dict[Tensor, Array] = {}
    digests = []
    for tensor in step.task.constants:
        value = step.storages[tensor].value
        assert isinstance(value, Constant)
        constants[tensor] = value.array
        digests.append(f"{tensor.name}{value.digest}")
    key = (digest_text(str(argument.body), str(argument.shape)), *sorted(digests))
    if key not in packed:
        value = step.storages[step.task.outputs[0]].value
        packed[key] = Storage("constant", argument.type.size, argument.dtype, value)
        arrays[packed[key]] = prepare_constant(argument, step.task, constants)
    return packed[key]


class NativeExecutable:
    """Runs the plan.  Calls from several threads get memory of their own."""

    def __init__(
        self,
        plan: Plan,
        calls: Sequence[Call],
        objects: list[bytes],
        arrays: dict[Storage, Array],
        target: Target,
        threads: int,
    ) -> None:
        from whet.codegen.llvm.serial import SERIAL_POOL

        self.plan, self.calls, self.threads = plan, calls, threads
        self.graph = plan.graph
        self.arrays = arrays
        self.arena = plan_arena([[s for s in c.storages if s.kind == "arena"] for c in calls])
        tables: list[int] = []
        lines = []
        for c in calls:
            lines.append(
                f"  call void @{c.symbol}(ptr getelementptr (ptr, ptr %tables, i64 {len(tables)}))"
                if False
                else f"  %t{len(lines)} = getelementptr ptr, ptr %tables, i64 {len(tables)}\n"
                f"  call void @{c.symbol}(ptr %t{len(lines)})"
            )
            tables += [0] * len(c.storages)
        declares = "\n".join(
            f"declare void @{s}(ptr)" for s in dict.fromkeys(c.symbol for c in calls)
        )
        run = (
            f"{declares}\ndefine void @run(ptr %tables) {{\n"
            + "\n".join(lines)
            + "\n  ret void\n}\n"
        )
        features = ",".join(f"+{f}" for f in target.features)
        self.library = Library([
            *objects, emit_object(SERIAL_POOL, target.cpu, features),
            emit_object(run, target.cpu, features),
        ])  # fmt: skip
        self.entry = self.library.function("run", ctypes.c_void_p)
        self.contexts: list[_Context] = []
        self.lock = threading.Lock()

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        with self.lock:
            context = self.contexts.pop() if self.contexts else _Context(self)
        arrays = [np.ascontiguousarray(a) for a in inputs]
        results = list(out) if out is not None else [
            np.empty(v.tensor_type.shape, v.tensor_type.dtype.numpy) for v in self.graph.outputs]  # fmt: skip
        context.bind(arrays, results)
        self.entry(context.address)
        with self.lock:
            self.contexts.append(context)
        return tuple(results)


class _Context:
    """Memory and parameter tables for one call at a time."""

    def __init__(self, executable: NativeExecutable) -> None:
        arena = executable.arena
        self.memory = np.zeros(arena.nbytes + ALIGNMENT, np.uint8)
        base = -(-self.memory.ctypes.data // ALIGNMENT) * ALIGNMENT
        entries: list[int] = []
        self.inputs: list[tuple[int, int]] = []
        self.outputs: list[tuple[int, int]] = []
        self.keep = executable.arrays
        graph = executable.graph
        numbers = {v: n for n, v in enumerate(graph.inputs)}
        leaving = {p.storage: n for n, p in executable.plan.placement.leaving.items()}
        for call in executable.calls:
            for s in call.storages:
                at = len(entries)
                entries.append(0)
                if s.kind == "arena":
                    entries[at] = base + arena.offsets[s]
                elif s.kind == "constant":
                    entries[at] = _constant_address(executable, s)
                elif s.kind == "input":
                    self.inputs.append((at, numbers[s.value]))  # type: ignore[index]
                else:
                    number = leaving.get(s)
                    if number is None:
                        number = graph.outputs.index(s.value)
                    self.outputs.append((at, number))
        self.table = np.array(entries, dtype=np.uint64)
        self.address = self.table.ctypes.data

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Point the tables at the caller's arrays."""
        self.held = (inputs, outputs)
        if self.inputs:
            addresses = [a.ctypes.data for a in inputs]
            for at, n in self.inputs:
                self.table[at] = addresses[n]
        addresses = [a.ctypes.data for a in outputs]
        for at, n in self.outputs:
            self.table[at] = addresses[n]


def _constant_address(executable: NativeExecutable, s: Storage) -> int:
    if s not in executable.arrays:
        assert isinstance(s.value, Constant)
        executable.arrays[s] = np.ascontiguousarray(s.value.array)
    return int(executable.arrays[s].ctypes.data)


__all__ = ["Arena", "NativeExecutable", "build"]
