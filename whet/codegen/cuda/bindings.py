"""The driver through NVIDIA's bindings, which are imported when one is asked for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache as cached, lru_cache
from typing import Any

from whet.codegen.cuda.driver import Handle, Ready, Recording, Stream
from whet.codegen.cuda.launch import Launch
from whet.core.errors import UsageError, fail
from whet.core.gpu import PORTABLE_CLUSTER

_PLAIN_SHARED_BYTES = 48 << 10
"""Shared memory that a kernel need not ask for."""
_KNOWN_STREAMS = 64
_NO_DRIVER_HINT = "install NVIDIA's driver, or build for the target cpu"


@cached
def cuda_driver() -> CudaDriver:
    """The driver of the first GPU; `UsageError` if there is none."""
    return CudaDriver()


class CudaDriver:
    """The first GPU of this machine; see `whet.codegen.cuda.driver.Driver`."""

    def __init__(self) -> None:
        self.api = api = _bindings()
        self._success = api.CUresult.CUDA_SUCCESS
        self._set_current, self._launch_graph = api.cuCtxSetCurrent, api.cuGraphLaunch
        _start(api)
        self.device = self._done(api.cuDeviceGet(0))
        self.context = self._done(api.cuDevicePrimaryCtxRetain(self.device))
        # Of the bindings' own types: a number costs a third of a call, every time.
        self._stream = lru_cache(maxsize=_KNOWN_STREAMS)(api.CUstream)
        self.activate()
        self._capturing = threading.Lock()
        self._capture_stream = self.new_stream()

    def _done(self, result: tuple[Any, ...]) -> Any:
        """The value of a call, or an error with the driver's name for it."""
        if result[0] != self._success:
            self._refuse(result[0])
        return result[1] if len(result) > 1 else None

    def _refuse(self, error: Any) -> None:
        if error == self.api.CUresult.CUDA_ERROR_DEINITIALIZED:
            return  # the process ends, and the driver has taken all back
        name = getattr(error, "name", str(error))
        if error == self.api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            fail("WH1005", f"the GPU has not enough memory ({name})")
        fail("WH1010", f"the driver of the GPU refused a call: {name}")

    def activate(self) -> None:
        (error,) = self._set_current(self.context)
        if error:
            self._refuse(error)

    def name(self) -> str:
        found: bytes = self._done(self.api.cuDeviceGetName(128, self.device))
        return found.split(b"\0")[0].decode()

    def attribute(self, name: str) -> int:
        """A fact about the GPU by the driver's name for it; 0 if this driver does not know it."""
        kind = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        if kind is None:
            return 0
        error, value = self.api.cuDeviceGetAttribute(kind, self.device)
        return int(value) if error == self._success else 0

    # ----------------------------------------------------------------------------------- memory
    def allocate(self, nbytes: int) -> int:
        return int(self._done(self.api.cuMemAlloc(max(nbytes, 1))))

    def free(self, address: int) -> None:
        self.activate()  # memory can be dropped in any thread
        self._done(self.api.cuMemFree(address))

    def allocate_host(self, nbytes: int) -> int:
        return int(self._done(self.api.cuMemHostAlloc(max(nbytes, 1), 0)))

    def free_host(self, address: int) -> None:
        self.activate()
        self._done(self.api.cuMemFreeHost(address))

    def copy_in(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        self._done(self.api.cuMemcpyHtoDAsync(target, source, nbytes, stream))

    def copy_out(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        self._done(self.api.cuMemcpyDtoHAsync(target, source, nbytes, stream))

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        self._done(self.api.cuMemcpyDtoDAsync(target, source, nbytes, stream))

    def clear(self, address: int, nbytes: int, stream: Stream) -> None:
        self._done(self.api.cuMemsetD8Async(address, 0, nbytes, stream))

    # ---------------------------------------------------------------------------------- kernels
    def load(self, cubin: bytes) -> Handle:
        return self._done(self.api.cuModuleLoadData(cubin))

    def unload(self, module: Handle) -> None:
        self.activate()
        self._done(self.api.cuModuleUnload(module))

    def function(self, module: Handle, launch: Launch) -> Handle:
        api, kinds = self.api, self.api.CUfunction_attribute
        found = self._done(api.cuModuleGetFunction(module, launch.symbol.encode()))
        if launch.shared_bytes > _PLAIN_SHARED_BYTES:
            kind = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._done(api.cuFuncSetAttribute(found, kind, launch.shared_bytes))
        if launch.cluster > PORTABLE_CLUSTER:
            kind = kinds.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._done(api.cuFuncSetAttribute(found, kind, 1))
        return found

    def launch(self, kernel: Ready, stream: Stream) -> None:
        config = self._config(kernel, stream)
        location = kernel.parameters.location
        self._done(self.api.cuLaunchKernelEx(config, kernel.function, location, 0))

    def _config(self, kernel: Ready, stream: Stream) -> Any:
        api, launch = self.api, kernel.launch
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.clusters * launch.cluster, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
        config.sharedMemBytes, config.hStream = launch.shared_bytes, api.CUstream(stream)
        attributes, kinds = [], api.CUlaunchAttributeID
        if launch.cluster > 1:
            made = api.CUlaunchAttribute()
            made.id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            made.value.clusterDim.x = launch.cluster
            made.value.clusterDim.y = made.value.clusterDim.z = 1
            attributes.append(made)
        if kernel.early:
            made = api.CUlaunchAttribute()
            made.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            made.value.programmaticStreamSerializationAllowed = 1
            attributes.append(made)
        if attributes:
            config.attrs = attributes
        config.numAttrs = len(attributes)
        return config

    def capture(self, kernels: Sequence[Ready]) -> Recording:
        api, nodes = self.api, []
        with self._capturing:
            stream = self._capture_stream
            mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            self._done(api.cuStreamBeginCapture(stream, mode))
            try:
                for kernel in kernels:
                    self.launch(kernel, stream)
                    nodes.append(self._last_node(stream))
            except BaseException:
                api.cuStreamEndCapture(stream)  # or the stream could capture nothing more
                raise
            graph = self._done(api.cuStreamEndCapture(stream))
        made = self._done(api.cuGraphInstantiate(graph, 0))
        # The graph stays: its nodes are the names by which parameters are changed.
        named = [(node, self._node_parameters(kernel)) for node, kernel in zip(nodes, kernels)]
        return Recording(tuple(kernels), (graph, made), tuple(named))

    def _last_node(self, stream: Stream) -> Handle:
        """What the next kernel will depend on: the one that was captured last."""
        error, _status, _number, _graph, nodes, *_ = self.api.cuStreamGetCaptureInfo(stream)
        self._done((error,))
        (node,) = nodes
        return node

    def _node_parameters(self, kernel: Ready) -> Any:
        """All about a launch that can be changed; it points to the present parameters."""
        launch = kernel.launch
        made = self.api.CUDA_KERNEL_NODE_PARAMS()
        made.func = kernel.function
        made.gridDimX, made.gridDimY, made.gridDimZ = launch.clusters * launch.cluster, 1, 1
        made.blockDimX, made.blockDimY, made.blockDimZ = launch.threads, 1, 1
        made.sharedMemBytes, made.kernelParams = launch.shared_bytes, kernel.parameters.location
        return made

    def change(self, recording: Recording, number: int) -> None:
        node, parameters = recording.nodes[number]
        made = recording.graph[1]
        self._done(self.api.cuGraphExecKernelNodeSetParams(made, node, parameters))

    def play(self, recording: Recording, stream: Stream) -> None:
        (error,) = self._launch_graph(recording.graph[1], self._stream(stream))
        if error:
            self._refuse(error)

    def discard(self, recording: Recording) -> None:
        graph, made = recording.graph
        self._done(self.api.cuGraphExecDestroy(made))
        self._done(self.api.cuGraphDestroy(graph))

    # ----------------------------------------------------------------------------------- order
    def new_stream(self) -> Stream:
        flags = self.api.CUstream_flags.CU_STREAM_NON_BLOCKING
        return int(self._done(self.api.cuStreamCreate(flags)))

    def close_stream(self, stream: Stream) -> None:
        self._done(self.api.cuStreamDestroy(stream))

    def synchronize(self, stream: Stream) -> None:
        self._done(self.api.cuStreamSynchronize(stream))

    def new_event(self, *, timed: bool = False) -> Handle:
        flags = self.api.CUevent_flags
        kind = flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING
        return self._done(self.api.cuEventCreate(kind))

    def close_event(self, event: Handle) -> None:
        self._done(self.api.cuEventDestroy(event))

    def record(self, event: Handle, stream: Stream) -> None:
        self._done(self.api.cuEventRecord(event, self._stream(stream)))

    def wait(self, stream: Stream, event: Handle) -> None:
        self._done(self.api.cuStreamWaitEvent(stream, event, 0))

    def finish(self, event: Handle) -> None:
        self._done(self.api.cuEventSynchronize(event))

    def milliseconds(self, first: Handle, last: Handle) -> float:
        return float(self._done(self.api.cuEventElapsedTime(first, last)))


def _bindings() -> Any:
    try:
        import cuda.bindings.driver as driver
    except ImportError:
        fail("WH1008", "a GPU needs the package 'cuda-bindings', which is not installed",
             hint="pip install 'whet[cuda]', or build for the target cpu",
             kind=UsageError)  # fmt: skip
    return driver


def _start(api: Any) -> None:
    """Starts the driver; there must be a GPU."""
    try:
        (error,) = api.cuInit(0)
    except (OSError, RuntimeError) as problem:  # its library is not there
        fail("WH1010", "there is no NVIDIA driver here", *str(problem).splitlines()[:1],
             hint=_NO_DRIVER_HINT, kind=UsageError)  # fmt: skip
    if error != api.CUresult.CUDA_SUCCESS:
        fail("WH1010", f"NVIDIA's driver does not start here: {error.name}", hint=_NO_DRIVER_HINT,
             kind=UsageError)  # fmt: skip
    error, count = api.cuDeviceGetCount()
    if error != api.CUresult.CUDA_SUCCESS or not count:
        fail("WH1010", "there is no NVIDIA GPU here", hint="build for the target cpu",
             kind=UsageError)  # fmt: skip
