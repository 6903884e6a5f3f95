"""torch's ways to compute a network on a GPU, as graphs that are played again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from harness.gpu_networks import Replay
from harness.onnx_torch import Translated, channels_last, translated
from whet.core.types import Array
from zoo.networks import Network

KINDS: Mapping[str, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}
"""The types of weights and inputs; single precision for all others."""
WARM_UPS = 3


class TorchNetwork:
    """A network in one precision, eager in both memory formats and, if asked for, compiled.

    What takes processors is done when it is made; `replays` needs the GPU for itself, since
    `cudnn.benchmark` takes times.  (Those of what is compiled are taken when that is made: its
    second call is recorded, and nothing may be timed then.)
    """

    def __init__(
        self, network: Network, sample: Mapping[str, Array], precision: str, *, inductor: bool
    ) -> None:
        kind = KINDS.get(precision, torch.float32)
        inputs = [torch.from_numpy(a).cuda() for a in sample.values()]
        self.inputs = [x.to(kind) if x.is_floating_point() else x for x in inputs]
        self.modules = {
            "graph nchw": moved(translated(str(network.path)), kind),
            "graph nhwc": channels_last(moved(translated(str(network.path)), kind)),
        }
        self.compiled: Callable[..., Any] | None = None
        torch.backends.cudnn.benchmark = True
        tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        if inductor:
            import torch._inductor.config as settings

            settings.freezing = True
            module = moved(translated(str(network.path)), kind)
            self.compiled = torch.compile(module, mode="reduce-overhead")
            self.call_compiled()

    def replays(self) -> Iterator[tuple[str, Replay]]:
        """All ways by name, with the fastest algorithms that cuDNN finds."""
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        with torch.no_grad():
            for name, module in self.modules.items():
                inputs = self.inputs
                if name == "graph nhwc":
                    inputs = [x.contiguous(memory_format=formats[x.ndim]) if x.ndim in formats
                              else x for x in inputs]  # fmt: skip
                yield name, recorded(module, inputs)
        if self.compiled is not None:
            for _ in range(WARM_UPS):
                self.call_compiled()
            yield "inductor", self.call_compiled

    def call_compiled(self) -> None:
        assert self.compiled is not None
        with torch.no_grad():
            self.compiled(*self.inputs)


def moved(module: Translated, kind: torch.dtype) -> Translated:
    """The module on the GPU, its numbers in that type."""
    made = module.eval().cuda()
    for name, buffer in list(made.named_buffers()):
        if buffer.is_floating_point():
            setattr(made, name, buffer.to(kind))
    return made


def recorded(module: Translated, inputs: list[Any]) -> Replay:
    """Eager calls as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            module(*inputs)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = module(*inputs)
    held = (graph, kept, module, inputs)  # memory that the recorded kernels read and write
    return lambda: held[0].replay()
