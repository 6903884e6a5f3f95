"""Graphs as segments of a recorded driver."""

from __future__ import annotations

import numpy as np

from tests.build.comparing import NO_CACHE, plan_of
from tests.build.cuda.recorded_driver import RecordedDriver, RecordedGenerator
from whet.build.cuda.assemble import assemble
from whet.build.cuda.image import CudaImage
from whet.build.cuda.segment import CudaSegment
from whet.build.kernels import KernelMaker
from whet.core.caching import FileCache
from whet.core.dtypes import f32, i64
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add
from whet.ops.conv import Conv
from whet.ops.gather import Gather
from whet.ops.matmul import MatMul
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.primitives.naive import naive_program
from whet.tasks.task import Task

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def plainly(task: Task, name: str) -> Kernel:
    """The kernel before any schedule step."""
    return Kernel(naive_program(task, name), task.inputs, task.outputs)


def image_of(graph: Graph, generator: RecordedGenerator, cache: FileCache = NO_CACHE) -> CudaImage:
    return assemble(plan_of(graph), KernelMaker(generator, plainly), cache)


def segment_of(
    graph: Graph, *, watches: bool = False, early: bool = True
) -> tuple[CudaSegment, RecordedDriver]:
    driver = RecordedDriver(RecordedGenerator(watches=watches))
    return segment_on(driver, graph, early=early), driver


def segment_on(driver: RecordedDriver, graph: Graph, *, early: bool = True) -> CudaSegment:
    return CudaSegment(image_of(graph, driver.generator), graph, driver, early=early)


def sum_graph(*shape: int) -> Graph:
    """One operator."""
    b = GraphBuilder()
    x, y = b.input("x", TensorType(shape, f32)), b.input("y", TensorType(shape, f32))
    return Graph((x, y), (b.one(Add(), x, y),), ("z",))


def product_graph(size: int = 160) -> Graph:
    """A product with a weight that is large enough to be shared, and a ReLU."""
    b = GraphBuilder()
    x = b.input("x", TensorType((2, size), f32))
    weight = b.constant(np.eye(size, dtype=np.float32) - 0.5 * np.eye(size, k=1, dtype=np.float32))
    return Graph((x,), (b.one(Relu(), b.one(MatMul(), x, weight)),), ("y",))


def convolutions() -> Graph:
    """Convolutions of different shapes, all with borders."""
    b = GraphBuilder()
    x = b.input("x", TensorType((1, 2, 6, 6), f32))
    value, channels = x, 2
    for out, stride in ((4, 1), (6, 2), (6, 1), (3, 2), (2, 1)):
        conv = Conv(strides=(stride, stride), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1)
        value, channels = b.one(conv, value, b.constant(normal(out, channels, 3, 3))), out
    return Graph((x,), (value,), ("y",))


def gathering() -> Graph:
    b = GraphBuilder()
    x, at = b.input("x", TensorType((5, 2), f32)), b.input("at", TensorType((3,), i64))
    return Graph((x, at), (b.one(Gather(0), x, at),), ("y",))
