"""The backend for NVIDIA GPUs, whose GPU is this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tools.cuda_on_cpu.compiled import compile_text
from tools.cuda_on_cpu.driver import TextDriver
from whet.build.backend import BACKENDS
from whet.build.cuda.backend import CudaBackend
from whet.build.cuda.segments import CudaAssembler
from whet.codegen.cuda.generator import CudaGenerator
from whet.core.caching import FileCache
from whet.core.gpu import PRESETS, GpuTarget
from whet.runtime.executable import Adopted


class TextGenerator(CudaGenerator):
    """Makes libraries of this machine where NVRTC would make cubins."""

    def __init__(self, target: GpuTarget, *, checked: bool) -> None:
        super().__init__(target)
        object.__setattr__(self, "checked", checked)

    def objects(self, texts: Sequence[str], cache: FileCache) -> list[bytes]:
        return [compile_text(text, checked=self.checked) for text in texts]


class TextBackend(CudaBackend):
    """Segments that run on a `TextDriver`."""

    def __init__(self, *, checked: bool) -> None:
        self.checked = checked
        self.driver = TextDriver(checked=checked)

    def named_target(self, name: str) -> GpuTarget:
        return PRESETS[name]

    def unavailable(self) -> str | None:
        return None

    def missing_here(self, target: GpuTarget) -> tuple[str, ...]:
        return ()

    def generator(self, target: GpuTarget) -> CudaGenerator:
        return TextGenerator(target, checked=self.checked)

    def adopt(self, values: Sequence[Any], names: Sequence[str]) -> Sequence[Adopted | None]:
        return [None] * len(values)

    def assembler(self, target: GpuTarget, threads: int, cache: FileCache) -> CudaAssembler:
        return CudaAssembler(target, self.driver)


@contextmanager
def gpu_in_this_process(*, checked: bool) -> Iterator[TextBackend]:
    """Within it, targets that are NVIDIA GPUs run here."""
    made = TextBackend(checked=checked)
    BACKENDS.added[made.kind] = made
    try:
        yield made
    finally:
        del BACKENDS.added[made.kind]
