"""The code generator for NVIDIA GPUs: CUDA C++, and cubins made of it by NVRTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from whet.codegen.cuda.emit import emit_program
from whet.codegen.cuda.nvrtc import compile_cubins, nvrtc_version
from whet.codegen.generator import Source
from whet.core.caching import FileCache
from whet.core.digest import digest_text
from whet.core.errors import UsageError, check
from whet.core.gpu import GpuTarget
from whet.ir.program import Buffer, Program

_KIND = "object"


@dataclass(frozen=True)
class CudaGenerator:
    """Makes code for a GPU; see `whet.codegen.generator.Generator`."""

    target: GpuTarget
    language: ClassVar[str] = "CUDA C++"

    def source(self, program: Program, limits: Mapping[Buffer, int] | None = None) -> Source:
        check(limits is None, "WH1002", "code for GPUs does not check its accesses",
              hint="unset WHET_CHECK_ACCESSES", kind=UsageError)  # fmt: skip
        text, has_status = emit_program(program, self.target)
        return Source(text, has_status)

    def job(self, text: str) -> dict[str, str]:
        return {"text": text, "architecture": self.target.architecture}

    def objects(self, texts: Sequence[str], cache: FileCache) -> list[bytes]:
        return cached_cubins(texts, self.target.architecture, cache)

    def listing(self, text: str) -> str:
        return text


def cached_cubins(texts: Sequence[str], architecture: str, cache: FileCache) -> list[bytes]:
    """Cubins of source texts, taken from the cache where it has them."""
    keys = [digest_text(t, architecture, nvrtc_version()) for t in texts]
    kept = {key: cache.get(_KIND, key) for key in dict.fromkeys(keys)}
    found = {key: cubin for key, cubin in kept.items() if cubin is not None}
    missing = {key: text for key, text in zip(keys, texts) if key not in found}
    made = compile_cubins(list(missing.values()), architecture) if missing else []
    for key, cubin in zip(missing, made):
        cache.put(_KIND, key, cubin)
        found[key] = cubin
    return [found[key] for key in keys]
