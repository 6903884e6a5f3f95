"""Instructions of kernels, from what nvdisasm prints of a cubin.

nvdisasm comes with NVIDIA's toolkit, or by `pip install nvidia-cuda-nvdisasm`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

NO_BARRIER = 7
"""The number of no barrier."""
_KERNEL = re.compile(r"\.section\s+\.text\.(\S+?),")
_LABEL = re.compile(r"(\.L_\S+):$")
_CODE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);\s*/\* 0x([0-9a-f]{16}) \*/")
_UPPER = re.compile(r"/\* 0x([0-9a-f]{16}) \*/$")
_GUARD = re.compile(r"@(!?U?P\w+)\s+(.*)")
_TARGET = re.compile(r"`\((\.L_\S+?)\)")
_REGISTER = re.compile(r"\bR(\d+)\b")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, and when it lets its warp go on."""

    text: str
    guard: str
    """The predicate that it runs under; empty if it always does."""
    operation: str
    """Without what follows the first point: LDG, HMMA."""
    target: int | None
    """The number of the instruction that a branch goes to."""
    stall: int
    """Cycles until the next one of this warp may begin, at least."""
    gives: int
    """The barrier that its result is announced at."""
    frees: int
    """The barrier that says when its operands have been read."""
    waits: tuple[int, ...]
    """The barriers that it waits for."""

    @property
    def runs(self) -> bool:
        return self.guard not in ("!PT", "!UPT")


Code = tuple[Instruction, ...]


def nvdisasm() -> str | None:
    """The disassembler, if there is one here."""
    found = shutil.which("nvdisasm")
    if found is not None:
        return found
    spec = find_spec("nvidia")
    places = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    return next((str(f) for p in places for f in sorted(p.glob("*/bin/nvdisasm"))), None)


def disassembled(cubin: bytes) -> dict[str, Code]:
    """The instructions of every kernel by its name."""
    program = nvdisasm()
    assert program is not None, "nvdisasm is not installed: pip install nvidia-cuda-nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [program, "-c", "-hex", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return instructions(printed.splitlines())


def instructions(lines: Sequence[str]) -> dict[str, Code]:
    """The instructions that nvdisasm has printed."""
    return {name: tuple(_linked(found)) for name, found in _sections(lines)}


def registers(code: Code) -> int:
    """Registers of a thread: one more than the last that is named."""
    named = (int(n) for i in code for n in _REGISTER.findall(i.text))
    return max(named, default=-1) + 1


def _sections(lines: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, str, int]]]]:
    """Kernels, with the label in front of each instruction, its text, and its control bits."""
    name, found, label, text = "", [], "", ""
    for line in map(str.strip, lines):
        if kernel := _KERNEL.match(line):
            if name:
                yield name, found
            name, found, label = kernel[1].strip('"'), [], ""
        elif at := _LABEL.match(line):
            label = at[1]
        elif code := _CODE.match(line):
            text = code[2].strip()
        elif text and (upper := _UPPER.match(line)):
            found.append((label, text, int(upper[1], 16) >> 41))
            label = text = ""
    if name:
        yield name, found


def _linked(found: Sequence[tuple[str, str, int]]) -> Iterator[Instruction]:
    places = {label: n for n, (label, _, _) in enumerate(found) if label}
    for _, text, control in found:
        guarded = _GUARD.match(text)
        guard, rest = (guarded[1], guarded[2]) if guarded else ("", text)
        to = _TARGET.search(text)
        yield Instruction(
            text, guard, rest.split()[0].split(".")[0], places.get(to[1]) if to else None,
            control & 15, control >> 5 & 7, control >> 8 & 7,
            tuple(n for n in range(6) if control >> 11 + n & 1),
        )  # fmt: skip
