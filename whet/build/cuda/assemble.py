"""From the steps of a plan to the image of a segment."""

from __future__ import annotations

from whet.build.calls import Call, bind_plan
from whet.build.cuda.image import CudaImage, KernelCall
from whet.build.kernels import KernelMaker
from whet.build.slots import Slot
from whet.codegen.cuda.launch import in_turn, launches_of, lets_next_in
from whet.core.caching import FileCache
from whet.tasks.steps import Plan


def assemble(plan: Plan, maker: KernelMaker, cache: FileCache) -> CudaImage:
    """The image of a plan, which has neither loops nor branches.

    Zero borders have memory of their own: it is plentiful, and a kernel that only clears a border
    would cost as much as one that computes.
    """
    bound = bind_plan(plan, maker, cache, shares_borders=False)
    cubins: dict[str, int] = {}
    calls: list[KernelCall] = []
    watched: list[str] = []
    flat = [call for call in bound.calls if isinstance(call, Call)]
    assert len(flat) == len(bound.calls), "a plan for a GPU is flat"
    programs = [call.kernel.kernel.program for call in flat]
    ordered = in_turn((launches_of(p), lets_next_in(p)) for p in programs)
    for call, launches in zip(flat, ordered, strict=True):
        slots = [bound.slot(plan, s) for s in call.storages]
        if call.kernel.source.has_status:
            slots.append(Slot("status", len(watched)))
            watched.append(call.step.name)
        cubin = cubins.setdefault(call.kernel.source.text, len(cubins))
        calls += (KernelCall(launch, cubin, tuple(slots), call.step.name) for launch in launches)
    compiled = maker.generator.objects(list(cubins), cache)
    return CudaImage(
        tuple(compiled), tuple(calls), bound.arena_bytes, bound.constants, bound.shared,
        tuple(watched),
    )  # fmt: skip
