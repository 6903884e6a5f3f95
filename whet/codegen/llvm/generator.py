"""The code generator for CPUs: text IR, and objects made of it by LLVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from whet.codegen.generator import Source
from whet.codegen.llvm.compile import ObjectJob, emit_assembly, llvm_version
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.workers import compile_objects
from whet.core.caching import FileCache
from whet.core.containers import usable_processors
from whet.core.cpu import CpuTarget
from whet.core.digest import digest_text
from whet.ir.program import Buffer, Program


@dataclass(frozen=True)
class LlvmGenerator:
    """Makes code for a CPU; see `whet.codegen.generator.Generator`."""

    target: CpuTarget
    language: ClassVar[str] = "LLVM IR"

    def source(self, program: Program, limits: Mapping[Buffer, int] | None = None) -> Source:
        module = Module(self.target)
        emit_program(program, module, limits)
        return Source(module.text(), module.has_status)

    def job(self, text: str) -> dict[str, str]:
        return asdict(self._job(text))

    def objects(self, texts: Sequence[str], cache: FileCache) -> list[bytes]:
        jobs = [self._job(text) for text in texts]
        keys = [digest_text(j.ir, j.triple, j.cpu, j.features, llvm_version()) for j in jobs]
        found = {key: cache.get("object", key) for key in dict.fromkeys(keys)}
        missing = {key: job for key, job in zip(keys, jobs) if found[key] is None}
        cores = usable_processors()
        for key, made in zip(missing, compile_objects(list(missing.values()), cores)):
            cache.put("object", key, made)
            found[key] = made
        return [_present(found, key) for key in keys]

    def listing(self, text: str) -> str:
        return emit_assembly(self._job(text))

    def _job(self, text: str) -> ObjectJob:
        t = self.target
        return ObjectJob(text, t.triple, t.cpu, ",".join(f"+{f}" for f in t.features))


def _present(found: Mapping[str, bytes | None], key: str) -> bytes:
    data = found[key]
    assert data is not None
    return data
