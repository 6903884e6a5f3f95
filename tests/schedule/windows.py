"""Convolutions as tasks, and kernels of them run on guarded memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tests.build.guard_pages import GuardedMemory
from whet.codegen.llvm.compile import Library, emit_object
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.serial import SERIAL_POOL
from whet.core.cpu import CpuTarget
from whet.core.dtypes import f32
from whet.core.types import Array, Shape, TensorType
from whet.ir.expr import call
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Placeholder, Tensor, placeholder
from whet.ops.conv import Conv
from whet.schedule.program.access import flat_buffer
from whet.schedule.program.kernel import Kernel, prepare_constant
from whet.tasks.task import Border, Task


def channels_last(shape: Shape, border: Border) -> tuple[Shape, int, int]:
    """Strides, offset and number of elements of [batch, channels, *spatial] in memory."""
    strides = [0] * len(shape)
    step = 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis] = step
        step *= shape[axis] + sum(border[axis])
    return tuple(strides), sum(low * s for (low, _), s in zip(border, strides)), step


@dataclass(frozen=True)
class Windows:
    """A convolution, by default followed by nothing and with its padding kept in memory."""

    spatial: Shape
    channels: int
    columns: int
    batch: int = 1
    kernel: int | Shape = 3
    pad: int = 1
    stride: int = 1
    dilation: int | Shape = 1
    groups: int = 1
    border: bool = True
    epilogue: bool = False
    constant: bool = True

    @property
    def taps(self) -> Shape:
        """The kernel's extents."""
        return self.along(self.kernel)

    def along(self, sizes: int | Shape) -> Shape:
        """A size for every spatial axis."""
        return (sizes,) * len(self.spatial) if isinstance(sizes, int) else sizes

    @cached_property
    def op(self) -> Conv:
        rank = len(self.spatial)
        return Conv((self.stride,) * rank, (self.pad,) * 2 * rank, self.along(self.dilation),
                    self.groups)  # fmt: skip

    @cached_property
    def x(self) -> Placeholder:
        return placeholder((self.batch, self.channels, *self.spatial), f32, "x")

    @cached_property
    def w(self) -> Placeholder:
        return placeholder((self.columns, self.channels // self.groups, *self.taps), f32, "w")

    @cached_property
    def bias(self) -> Placeholder:
        return placeholder((self.columns,), f32, "bias")

    @cached_property
    def residual(self) -> Placeholder:
        return placeholder(self.op.infer(self.x.type, self.w.type).shape, f32, "residual")

    @cached_property
    def output(self) -> Compute:
        plain = self.op.compute(self.x, self.w)
        if not self.epilogue:
            return plain
        value = plain.body + self.bias[plain.axes[1]] + self.residual[plain.axes]
        return Compute("y", plain.axes, call("max", value, 0.0))

    @cached_property
    def task(self) -> Task:
        inner = ((0, 0), (0, 0), *((self.pad, self.pad),) * len(self.spatial))
        borders: dict[Tensor, Border] = {self.x: inner} if self.border else {}
        buffers: dict[Tensor, Buffer] = {}
        for tensor in (self.x, self.residual, self.output):
            plain: Border = ((0, 0),) * tensor.rank
            strides, offset, _ = channels_last(tensor.shape, borders.get(tensor, plain))
            buffers[tensor] = Buffer(tensor.name, tensor.shape, f32, strides, offset)
        for tensor in (self.w, self.bias):
            buffers[tensor] = Buffer(tensor.name, tensor.shape, f32)
        constants: frozenset[Tensor] = frozenset({self.w}) if self.constant else frozenset()
        return Task((self.output,), buffers, constants, borders)

    @cached_property
    def arrays(self) -> dict[Tensor, Array]:
        rng = np.random.default_rng(7)
        scale = {self.w: (self.channels * math.prod(self.taps)) ** -0.5}
        return {
            t: (rng.standard_normal(t.shape) * scale.get(t, 1.0)).astype(np.float32)
            for t in (self.x, self.w, self.bias, self.residual)
        }

    @cached_property
    def expected(self) -> Array:
        """The result in double precision."""
        x, w, bias, residual = (self.arrays[t].astype(np.float64)
                                for t in (self.x, self.w, self.bias, self.residual))  # fmt: skip
        y = self.op.reference(x, w)
        if not self.epilogue:
            return y
        column = bias.reshape(-1, *(1,) * len(self.spatial))
        return np.asarray(np.maximum(y + column + residual, 0))

    def run(self, kernel: Kernel, target: CpuTarget, *, at_end: bool = True) -> Array:
        """The output of the kernel, all memory between forbidden pages."""
        bound = self.bind(kernel, native(kernel, target), GuardedMemory(at_end=at_end))
        bound.call()
        return bound.result.copy()

    def bind(self, kernel: Kernel, library: Library, memory: GuardedMemory) -> Bound:
        """The kernel with arguments, ready to be called."""
        table = [self.argument(a, memory) for a in kernel.arguments]
        result = self.place(self.output, memory)
        table += [result, *(memory.empty(b.type) for b in kernel.program.workspace)]
        function = library.function(kernel.program.name, ctypes.c_void_p)
        addresses = np.array([a.ctypes.data for a in table], np.uint64)
        return Bound(self.view(self.output, result), addresses, function, (table, library))

    def argument(self, argument: Tensor, memory: GuardedMemory) -> Array:
        if argument in self.task.buffers:
            return self.place(argument, memory)
        assert isinstance(argument, Compute)
        weights: dict[Tensor, Array] = {self.w: self.arrays[self.w]}
        return memory.copy(prepare_constant(argument, self.task, weights), argument.type)

    def place(self, tensor: Tensor, memory: GuardedMemory) -> Array:
        """Memory of a boundary tensor: filled if it is an input, with a border of zeros."""
        buffer = self.task.buffers[tensor]
        border = self.task.borders.get(tensor)
        size = flat_buffer(buffer).shape[0]
        if border is not None:
            _, _, size = channels_last(tensor.shape, border)
        made = memory.empty(TensorType((size,), f32))
        if tensor in self.arrays:
            made[...] = 0
            self.view(tensor, made)[...] = self.arrays[tensor]
        return made

    def view(self, tensor: Tensor, flat: Array) -> Array:
        buffer = self.task.buffers[tensor]
        strides = [s * flat.itemsize for s in buffer.element_strides]
        return np.lib.stride_tricks.as_strided(flat[buffer.offset :], buffer.shape, strides)


@dataclass(frozen=True, eq=False)
class Bound:
    """A kernel and its parameter table; `keep` are the owners of the memory behind it."""

    result: Array
    addresses: Array
    function: Callable[[int], None]
    keep: tuple[object, ...]

    def call(self) -> None:
        self.function(self.addresses.ctypes.data)


def native(kernel: Kernel, target: CpuTarget, pool: Mapping[str, int] | None = None) -> Library:
    """The machine code of a kernel, on the threads of the pool or on one."""
    features = ",".join(f"+{f}" for f in target.features)
    texts = [module_text(kernel, target), *([SERIAL_POOL] if pool is None else [])]
    return Library([emit_object(ir, target.cpu, features) for ir in texts], pool)


def module_text(kernel: Kernel, target: CpuTarget) -> str:
    """The LLVM module of a kernel."""
    module = Module(target)
    emit_program(kernel.program, module)
    return module.text()


def relative_error(found: Array, expected: Array) -> float:
    """The largest deviation in units of the largest value."""
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())
