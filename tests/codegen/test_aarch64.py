"""Code for aarch64 from the same sketches: its instructions, and its results under an emulator."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from tests.build.random_graphs import random_graph
from tests.build.schedules import RandomSchedule, check_results
from tests.codegen.aarch64 import relocate
from tests.codegen.elf import LinkError, link
from tests.codegen.examples import EXAMPLES, make_example, sketch_first
from tests.codegen.foreign import EMULATORS, ProgramDiedError, compile_for, how_to_run
from tests.codegen.loops import busiest_loop
from tests.ops.test_properties import check_same
from tests.skips import ANOTHER_PROCESSOR
from whet.build.native import NO_CACHE
from whet.codegen.llvm.generator import LlvmGenerator
from whet.core.cpu import PRESETS
from whet.graph.interpret import interpret
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import find_sketch
from whet.tasks.task import Task

NEON = PRESETS["aarch64-neon"]
runs = pytest.mark.skipif(
    how_to_run() is None,
    reason=f"{ANOTHER_PROCESSOR}aarch64, or {' or '.join(EMULATORS)} (of qemu-user) on the PATH",
)


# ----------------------------------------------------------------------------------- assembly
def count(loop: Sequence[str], *starts: str) -> int:
    return sum(line.startswith(starts) for line in loop)


@pytest.mark.parametrize("name", ["matmul", "dense", "convolution"])
def test_products_stay_in_registers(name: str) -> None:
    graph, _ = make_example(name)
    schedule = sketch_first(NEON, "contraction")
    loop = busiest_loop(compile_for(graph, NEON, schedule).assembly(), "fmla")
    fused = [line for line in loop if line.startswith("fmla")]
    assert len(fused) >= 8, "too few independent sums to hide the latency"
    assert all(".4s" in line for line in fused)
    assert sum(line.endswith(".s[0]") for line in fused) > len(fused) / 2, "broadcast by element"
    assert count(loop, "ld") < len(fused)
    assert not [line for line in loop if "sp" in line]


@pytest.mark.parametrize(("mr", "nv"), [(4, 6), (5, 5), (6, 4), (9, 3), (14, 2), (10, 2)])
def test_tiles_of_all_registers_are_not_spilled(mr: int, nv: int) -> None:
    """The rule that bounds tiles, mr * nv + nv + 1 registers, holds for 32 of them."""

    def tiled(task: Task, name: str) -> Kernel:
        sketch = find_sketch("contraction")
        form = sketch.fits(task)
        space = sketch.space(form, NEON, 1)
        (rows,) = np.nonzero((space["mr"] == mr) & (space["nv"] == nv))
        return sketch.lower(form, {hole: int(space[hole][rows[0]]) for hole in space}, name)

    graph, _ = make_example("matmul")
    loop = busiest_loop(compile_for(graph, NEON, tiled).assembly(), "fmla")
    assert count(loop, "fmla") == mr * nv
    assert not [line for line in loop if "sp" in line]


@pytest.mark.parametrize("name", ["softmax", "functions", "pooling", "depthwise"])
def test_vectors_are_used_without_library_calls(name: str) -> None:
    graph, _ = make_example(name)
    text = compile_for(graph, NEON, sketch_first(NEON)).assembly()
    called = {line.split()[1] for line in text.splitlines() if line.split()[:1] == ["bl"]}
    assert called <= {"whet_parallel"}
    assert ".4s" in text


# ------------------------------------------------------------------------------------ linking
def test_what_nothing_defines_is_named() -> None:
    text = "declare void @sinf()\ndefine void @f() {\n call void @sinf()\n ret void\n}"
    with pytest.raises(LinkError, match="nothing defines sinf"):
        link(LlvmGenerator(NEON).objects([text], NO_CACHE), 0x10000)


def test_writable_data_is_refused() -> None:
    """Kernels keep no state: all they write to is in their parameters."""
    with pytest.raises(LinkError, match=r"\.bss is not code"):
        link(LlvmGenerator(NEON).objects(["@state = global i32 0"], NO_CACHE), 0x10000)


@pytest.mark.parametrize(
    ("kind", "before", "target", "after"),
    [
        (283, 0x94000000, 0x11000, 0x94000400),  # bl, 0x1000 bytes ahead
        (283, 0x94000000, 0x0FFFC, 0x97FFFFFF),  # bl, one instruction back
        (275, 0x90000000, 0x13456, 0xF0000000),  # adrp x0, three pages ahead
        (277, 0x91000000, 0x13456, 0x91115800),  # add x0, x0, #0x456
        (299, 0x3DC00000, 0x13450, 0x3DC11400),  # ldr q0, [x0, #0x450]
    ],
)  # fmt: skip
def test_addresses_in_instructions(kind: int, before: int, target: int, after: int) -> None:
    image = bytearray(struct.pack("<I", before))
    relocate(image, 0, 0x10000, kind, target)
    assert struct.unpack("<I", image) == (after,)


# ------------------------------------------------------------------------------------ results
@runs
@pytest.mark.parametrize("name", EXAMPLES)
def test_results_are_those_of_the_interpreter(name: str) -> None:
    graph, arrays = make_example(name)
    built = compile_for(graph, NEON, sketch_first(NEON, name))
    with np.errstate(all="ignore"):
        expected = interpret(graph, arrays)
    for at_end in (True, False):
        for got, want in zip(built.run(arrays, at_end=at_end), expected, strict=True):
            check_same(got, np.asarray(want), name)


@runs
@pytest.mark.parametrize("seed", range(10))
def test_any_schedule_is_right(seed: int) -> None:
    """Random graphs, each kernel a draw of sketch and holes."""
    rng = np.random.default_rng(5000 + seed)
    graph = random_graph(rng, 3)
    arrays = tuple(rng.uniform(-1, 1, v.tensor_type.shape).astype(np.float32) for v in graph.inputs)
    schedule = RandomSchedule(rng, 1, NEON)
    results = compile_for(graph, NEON, schedule).run(arrays, at_end=bool(seed % 2))
    check_results([results], graph, arrays, f"seed {seed}: {schedule.shown}\n{graph}")


@runs
def test_memory_is_guarded() -> None:
    """An input one element shorter than the kernel believes is noticed: the program dies."""
    graph, (x,) = make_example("matmul")
    built = compile_for(graph, NEON, sketch_first(NEON))
    with pytest.raises(ProgramDiedError, match="signal 11"):
        built.run([x.reshape(-1)[:-1]], at_end=True)
