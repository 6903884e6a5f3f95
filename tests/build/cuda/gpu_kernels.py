"""Small kernels for the real GPU, as images of segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.build.cuda.segments import sum_graph
from whet.build.cuda.detect import detected_gpu
from whet.build.cuda.image import CudaImage, KernelCall
from whet.build.cuda.segment import CudaSegment
from whet.build.slots import Slot
from whet.codegen.cuda.bindings import cuda_driver
from whet.codegen.cuda.launch import Launch
from whet.codegen.cuda.nvrtc import compile_cubins

THREADS = 256
X, Y, Z, MIDDLE = Slot("array", 0), Slot("array", 1), Slot("array", 2), Slot("arena", 0)

ADD = """
extern "C" __global__ void {name}_0(const float* x, const float* y, float* z{status}) {{
  {wait}
  const int i = blockIdx.x * {threads} + threadIdx.x;
  {check}
  if (i < {size}) z[i] = x[i] + y[i];
}}
"""
WAIT = """asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");"""
CLUSTERS = """
extern "C" __global__ void {name}_0(const float* x, const float* y, float* z) {{
  extern __shared__ float room[];
  unsigned blocks;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  room[{last}] = (float)blocks;
  const int i = blockIdx.x * {threads} + threadIdx.x;
  if (i < {size}) z[i] = x[i] + y[i] + room[{last}];
}}
"""


def add_text(name: str, size: int, *, waits: bool = False, watches: bool = False) -> str:
    """z = x + y; an x below zero is refused if it watches."""
    return ADD.format(
        name=name, size=size, threads=THREADS, wait=WAIT if waits else "",
        status=", long long* status" if watches else "",
        check=f"if (i < {size} && x[i] < 0) *status = 1;" if watches else "",
    )  # fmt: skip


def launch(
    name: str, size: int, *, cluster: int = 1, shared: int = 0, waits: bool = False
) -> Launch:
    clusters = -(-size // (THREADS * cluster))
    return Launch(f"{name}_0", clusters, cluster, THREADS, shared, awaits=waits)


def adding(size: int, *, watches: bool = False) -> CudaSegment:
    """z = x + y on vectors."""
    call = KernelCall(launch("add", size), 0, (X, Y, Z), "add")
    if watches:
        call = KernelCall(call.launch, 0, (X, Y, Z, Slot("status", 0)), "add")
    return segment([add_text("add", size, watches=watches)], [call], size,
                   watched=("add",) if watches else ())  # fmt: skip


def chain(size: int, steps: int) -> CudaSegment:
    """z = x + steps * y, in so many kernels that are launched early, on two arenas in turn."""
    waits = detected_gpu().has_dependent_launch
    rooms = (MIDDLE, Slot("arena", 4 * size))
    calls = []
    for n in range(steps):
        source = X if n == 0 else rooms[n % 2]
        target = Z if n == steps - 1 else rooms[(n + 1) % 2]
        made = launch("add", size, waits=waits)
        calls.append(KernelCall(made, 0, (source, Y, target), f"add {n}"))
    return segment([add_text("add", size, waits=waits)], calls, size, arena=8 * size)


def clustered(size: int, cluster: int, shared: int) -> CudaSegment:
    """z = x + y + cluster, by clusters of blocks with much shared memory."""
    text = CLUSTERS.format(name="wide", size=size, threads=THREADS, last=shared // 4 - 1)
    made = launch("wide", size, cluster=cluster, shared=shared)
    return segment([text], [KernelCall(made, 0, (X, Y, Z), "wide")], size)


def segment(
    texts: Sequence[str], calls: Sequence[KernelCall], size: int, *, arena: int = 0,
    watched: tuple[str, ...] = (),
) -> CudaSegment:  # fmt: skip
    target = detected_gpu()
    cubins = compile_cubins(list(texts), target.architecture)
    image = CudaImage(tuple(cubins), tuple(calls), arena, np.zeros(0, np.uint8), {}, watched)
    return CudaSegment(image, sum_graph(size), cuda_driver(), early=target.has_dependent_launch)
