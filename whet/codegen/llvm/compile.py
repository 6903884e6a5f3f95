"""Text IR to objects, and objects to callable addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache

import llvmlite.binding as llvm

from whet.core.errors import WhetError

PASSES = ("sroa",)
"""Promotes register slots; everything else is written well to begin with."""


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def host_cpu() -> tuple[str, str]:
    """Name and feature string of this machine's processor."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _machine(cpu: str, features: str) -> llvm.TargetMachine:
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small", jit=False
    )


def emit_object(ir: str, cpu: str, features: str) -> bytes:
    """The object file of a module of text IR."""
    machine = _machine(cpu, features)
    module = _parse(ir)
    _run_passes(module, machine)
    result: bytes = machine.emit_object(module)
    return result


def emit_assembly(ir: str, cpu: str, features: str) -> str:
    """The assembly text of a module, for inspection."""
    machine = _machine(cpu, features)
    module = _parse(ir)
    _run_passes(module, machine)
    return str(machine.emit_assembly(module))


def _parse(ir: str) -> llvm.ModuleRef:
    module = llvm.parse_assembly(ir)
    module.triple = llvm.get_default_triple()
    return module


def _run_passes(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    builder = llvm.create_pass_builder(machine, llvm.PipelineTuningOptions(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    functions = llvm.create_new_function_pass_manager()
    functions.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            functions.run(function, builder)
    passes.run(module, builder)


class Library:
    """Loaded machine code; keeps the code alive as long as it lives."""

    def __init__(self, objects: list[bytes], symbols: Mapping[str, int] | None = None) -> None:
        _initialize()
        for name, address in (symbols or {}).items():
            llvm.add_symbol(name, address)
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for data in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of a function."""
        found = int(self._engine.get_function_address(name))
        if not found:
            raise WhetError("WH1301", f"the compiled code has no function '{name}'")
        return found

    def function(self, name: str, *argtypes: type) -> ctypes._CFuncPtr:
        """A function without result as a ctypes callable (it releases the GIL)."""
        return ctypes.CFUNCTYPE(None, *argtypes)(self.address(name))
