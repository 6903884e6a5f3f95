"""Text IR to objects, and objects to callable addresses."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from whet.codegen.llvm.linking import require_symbols
from whet.codegen.llvm.loading import LoadedCode
from whet.core.errors import WhetError


@dataclass(frozen=True, slots=True)
class ObjectJob:
    """A module of text IR and the machine to compile it for."""

    ir: str
    triple: str
    cpu: str
    features: str


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info))


def host_cpu() -> tuple[str, str]:
    """Name and feature string of this machine's processor."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def compile_object(job: ObjectJob) -> bytes:
    """The object file of a module."""
    machine = _machine(job)
    result: bytes = machine.emit_object(_optimized(job, machine))
    return result


def emit_object(ir: str, cpu: str, features: str) -> bytes:
    """The object file of a module for this machine's architecture."""
    return compile_object(ObjectJob(ir, llvm.get_default_triple(), cpu, features))


def emit_assembly(job: ObjectJob) -> str:
    """The assembly text of a module, for inspection."""
    machine = _machine(job)
    return str(machine.emit_assembly(_optimized(job, machine)))


def _machine(job: ObjectJob) -> llvm.TargetMachine:
    _initialize()
    return llvm.Target.from_triple(job.triple).create_target_machine(
        cpu=job.cpu, features=job.features, opt=2, reloc="pic", codemodel="small", jit=False
    )


def _optimized(job: ObjectJob, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """The module with register slots promoted; all else is written well to begin with."""
    module = llvm.parse_assembly(job.ir)
    module.triple = job.triple
    builder = llvm.create_pass_builder(machine, llvm.PipelineTuningOptions(speed_level=1))
    functions = llvm.create_new_function_pass_manager()
    functions.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            functions.run(function, builder)
    return module


class Library:
    """Loaded machine code; keeps the code alive as long as it lives."""

    def __init__(self, objects: list[bytes], symbols: Mapping[str, int] | None = None) -> None:
        _initialize()
        symbols = symbols or {}
        require_symbols(objects, symbols)
        if platform.machine() == "x86_64":
            self._code: LoadedCode | _Engine = LoadedCode(objects, symbols)
        else:
            self._code = _Engine(objects, symbols)

    def address(self, name: str) -> int:
        """The address of a function."""
        found = self._code.address(name)
        if not found:
            raise WhetError("WH1301", f"the compiled code has no function '{name}'")
        return found

    def function(self, name: str, *argtypes: Any) -> Callable[..., None]:
        """A function without result as a ctypes callable (it releases the GIL)."""
        return ctypes.CFUNCTYPE(None, *argtypes)(self.address(name))


class _Engine:
    """Objects loaded by LLVM, on machines for which nothing else does it."""

    def __init__(self, objects: list[bytes], symbols: Mapping[str, int]) -> None:
        for name, address in symbols.items():
            llvm.add_symbol(name, address)
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for data in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))
