"""Graphs compiled for a machine that is not this one, and run under an emulator."""

from __future__ import annotations

import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.codegen import aarch64
from tests.codegen.elf import EXECUTE, READ, MemoryMap, executable, link
from whet.build.cpu.assemble import assemble
from whet.build.cpu.image import SegmentImage
from whet.build.cpu.segment import ENTRY
from whet.build.kernels import KernelMaker, NativeKernel, Schedule
from whet.build.native import NO_CACHE
from whet.codegen.llvm.generator import LlvmGenerator
from whet.codegen.llvm.serial import SERIAL_POOL
from whet.codegen.llvm.support import has_code
from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.graph.graph import Graph
from whet.graph.passes import expand_composites
from whet.schedule.prices import AnalyticPrice
from whet.tasks.pieces import NativePiece
from whet.tasks.plan import plan_graph

EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")
SECONDS = 60
_CODE_ROOM = 1 << 24


class ProgramDiedError(Exception):
    """A signal ended the program, most likely because it touched a forbidden page."""


def how_to_run() -> list[str] | None:
    """What to put in front of a program for aarch64, or None when it cannot be run here."""
    if platform.machine() == "aarch64":
        return []
    found = next(filter(None, map(shutil.which, EMULATORS)), None)
    return None if found is None else [found]


@dataclass(frozen=True, eq=False)
class ForeignBuild:
    """A graph that is one native segment, as objects for the target."""

    graph: Graph
    target: CpuTarget
    image: SegmentImage
    kernels: tuple[NativeKernel, ...]

    def assembly(self) -> str:
        """The assembly text of all kernels."""
        return "\n".join(assembly(kernel.source.text, self.target) for kernel in self.kernels)

    def run(self, arrays: Sequence[Array], *, at_end: bool) -> list[Array]:
        """The outputs, with all memory between forbidden pages."""
        front = how_to_run()
        assert front is not None
        program = self.program(arrays, at_end=at_end)
        types = [v.tensor_type for v in self.graph.outputs]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "program"
            file.write_bytes(program)
            file.chmod(0o700)
            done = subprocess.run([*front, str(file)], capture_output=True, timeout=SECONDS)
        if done.returncode < 0:
            raise ProgramDiedError(f"signal {-done.returncode}: {done.stderr!r}")
        assert done.returncode == 0, done.stderr
        assert len(done.stdout) == sum(t.nbytes for t in types)
        results, start = [], 0
        for t in types:
            raw = np.frombuffer(done.stdout, np.uint8, t.nbytes, start)
            results.append(raw.view(t.dtype.numpy).reshape(t.shape))
            start += t.nbytes
        return results

    def program(self, arrays: Sequence[Array], *, at_end: bool) -> bytes:
        """A static program that holds the inputs and writes the outputs to standard output."""
        memory = MemoryMap(at_end=at_end)
        base = {
            "constant": memory.put(self.image.constants.tobytes(), READ),
            "arena": memory.put(bytes(self.image.arena_bytes)),
        }
        shared = [memory.put(a.tobytes(), READ) for a in self.image.shared.values()]
        entries = [
            shared[s.at] if s.kind == "shared" else base[s.kind] + s.at if s.kind in base else 0
            for s in self.image.slots
        ]
        table = memory.put(struct.pack(f"<{len(entries)}Q", *entries))
        inputs = [memory.put(np.ascontiguousarray(a).tobytes(), READ) for a in arrays]
        # Ones in all bits are NaN in every type that has it.
        sizes = [v.tensor_type.nbytes for v in self.graph.outputs]
        outputs = [memory.put(b"\xff" * size) for size in sizes]
        pointers = memory.put(struct.pack(f"<{len(inputs + outputs)}Q", *inputs, *outputs))
        linux = memory.put(aarch64.CALL_LINUX, READ | EXECUTE)
        begin = _start_ir(table, pointers, linux, list(zip(outputs, sizes)))
        start = LlvmGenerator(self.target).objects([begin], NO_CACHE)
        at = memory.reserve(_CODE_ROOM) & -64
        code = link([*start, *self.image.objects], at)
        assert len(code.data) <= _CODE_ROOM
        memory.fill(at, code.data, READ | EXECUTE)
        return executable(memory.regions, code.symbols["_start"])


def _start_ir(table: int, pointers: int, linux: int, outputs: Sequence[tuple[int, int]]) -> str:
    """Where the program begins: run the segment, write the outputs, end."""

    def call(number: int, *arguments: int) -> str:
        given = ", ".join(f"i64 {n}" for n in (number, *arguments, *(0,) * (3 - len(arguments))))
        return f"  call i64 inttoptr (i64 {linux} to ptr)({given})"

    return "\n".join([
        f"declare void @{ENTRY}(ptr, ptr)",
        "define void @_start() nounwind {",
        f"  call void @{ENTRY}(ptr inttoptr (i64 {table} to ptr), "
        f"ptr inttoptr (i64 {pointers} to ptr))",
        *(call(aarch64.WRITE, 1, address, size) for address, size in outputs),
        call(aarch64.EXIT, 0),
        "  unreachable",
        "}",
        "",
    ])  # fmt: skip


def compile_for(graph: Graph, target: CpuTarget, schedule: Schedule) -> ForeignBuild:
    """The graph compiled for the target, to run on one thread."""
    maker = KernelMaker(LlvmGenerator(target), schedule)
    plan = plan_graph(expand_composites(graph), AnalyticPrice(target, 1, "real"), has_code)
    assert not plan.reasons, list(plan.reasons.values())
    (piece,) = plan.pieces
    assert isinstance(piece, NativePiece)
    image = assemble(plan.plans[piece], maker, [SERIAL_POOL], NO_CACHE)
    return ForeignBuild(graph, target, image, tuple(maker.made.values()))


def assembly(ir: str, target: CpuTarget) -> str:
    return LlvmGenerator(target).listing(ir)
