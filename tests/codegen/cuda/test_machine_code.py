"""Machine code as nvdisasm prints it, and one warp on its way through it."""

from __future__ import annotations

from collections.abc import Sequence

from tools.machine_code.replay import BRANCH, LATENCIES, way
from tools.machine_code.sass import NO_BARRIER, Code, instructions, registers

FREE = NO_BARRIER


def printed(*code: tuple[str, int, int, Sequence[int]]) -> list[str]:
    """Lines of nvdisasm: text, stall, the barrier that is given, those that are waited for."""
    lines = ['.section\t.text.kernel,"ax",@progbits']
    for n, (text, stall, gives, waits) in enumerate(code):
        if text.endswith(":"):
            lines.append(text)
            continue
        control = stall | gives << 5 | FREE << 8 | sum(1 << b for b in waits) << 11
        lines.append(f"        /*{16 * n:04x}*/                   {text} ;  /* 0x{n:016x} */")
        lines.append(f"                                           /* 0x{control << 41:016x} */")
    return lines


def kernel(*code: tuple[str, int, int, Sequence[int]]) -> Code:
    return instructions(printed(*code))["kernel"]


def test_instructions_have_their_control_fields() -> None:
    found = kernel(
        ("LDG.E R4, desc[UR4][R2.64]", 4, 0, ()), ("@!P1 FADD R5, R4, R4", 5, FREE, (0, 3)),
        ("EXIT", 5, FREE, ()),
    )  # fmt: skip
    load, add, _ = found
    assert (load.operation, load.stall, load.gives, load.waits) == ("LDG", 4, 0, ())
    assert (add.guard, add.operation, add.waits, add.gives) == ("!P1", "FADD", (0, 3), FREE)
    assert registers(found) == 6


def test_a_use_waits_for_its_load() -> None:
    apart = kernel(
        ("LDG.E R4, [R2]", 4, 0, ()), ("FADD R5, R4, R4", 4, FREE, (0,)),
        ("LDG.E R6, [R2]", 4, 1, ()), ("FADD R7, R6, R6", 4, FREE, (1,)),
        ("STG.E [R2], R7", 4, FREE, ()), ("EXIT", 5, FREE, ()),
    )  # fmt: skip
    together = (apart[0], apart[2], apart[1], *apart[3:])
    assert way(apart).last_store == 2 * LATENCIES["LDG"] + 8
    assert way(together).last_store == LATENCIES["LDG"] + 4 + 4
    assert way(apart).counts()["LDG"] == 2


def test_a_loop_runs_as_often_as_its_products_say() -> None:
    found = kernel(
        (".L_x_0:", 0, 0, ()), ("HMMA.1688.F32 R4, R8, R9, R4", 4, FREE, ()),
        ("HMMA.1688.F32 R12, R8, R10, R12", 4, FREE, ()), ("@P0 BRA `(.L_x_0)", 5, FREE, ()),
        ("@P1 BRA `(.L_x_1)", 5, FREE, ()), ("STG.E [R2], R4", 4, FREE, ()),
        (".L_x_1:", 0, 0, ()), ("EXIT", 5, FREE, ()),
    )  # fmt: skip
    assert way(found).counts()["HMMA"] == 2
    six = way(found, "HMMA", 6)
    assert six.counts()["HMMA"] == 6
    assert six.last_store == 3 * (4 + 4 + 5 + BRANCH) + 5 + BRANCH
