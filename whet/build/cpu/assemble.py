"""From the steps of a plan to the image of a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.build.calls import AnyCall, BoundPlan, ControlCall, bind_plan, kernel_calls
from whet.build.cpu.image import CallNote, SegmentImage
from whet.build.cpu.segment import ENTRY
from whet.build.kernels import KernelMaker
from whet.build.slots import Slot
from whet.codegen.llvm.entry import FlowCall, TableCall, declarations, routine_ir
from whet.codegen.llvm.flow import flow_ir
from whet.core.caching import FileCache
from whet.ir.tensor import describe
from whet.tasks.steps import LoopStep, Plan, Step


def assemble(
    plan: Plan, maker: KernelMaker, support: Sequence[str], cache: FileCache
) -> SegmentImage:
    """The image of a plan; `support` is text IR that its kernels need besides."""
    bound = bind_plan(plan, maker, cache)
    table = _Table(bound)
    table.routine(ENTRY, plan, bound.calls)
    kernels = dict.fromkeys(c.kernel.source.text for c in kernel_calls(bound.calls))
    objects = maker.generator.objects([*kernels, table.text(), *support], cache)
    return SegmentImage(
        tuple(objects), tuple(table.slots), tuple(table.notes), bound.arena_bytes,
        bound.constants, bound.shared, tuple(table.watched),
    )  # fmt: skip


@dataclass(eq=False)
class _Table:
    """The table of addresses and the routines that use it, under construction."""

    bound: BoundPlan
    slots: list[Slot] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)
    """The names of what has a status, by its number."""
    notes: list[CallNote] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    flows: int = 0

    def routine(
        self,
        name: str,
        plan: Plan,
        calls: Sequence[AnyCall],
        linkage: str = "",
        status: Slot | None = None,
    ) -> None:
        """Adds the code that makes the calls, and their parameters.

        A loop ends when something goes wrong in it, so all that is inside shares its status.
        """
        made: list[TableCall | FlowCall] = []
        arrays: list[tuple[int, int]] = []
        for call in calls:
            start = len(self.slots)
            for s in call.storages:
                slot = self.bound.slot(plan, s)
                if slot.kind == "array":
                    arrays.append((len(self.slots), slot.at))
                self.slots.append(slot)
            if isinstance(call, ControlCall):
                shared = status or self.new_status(call.step.name)
                self.slots.append(shared)
                made.append(FlowCall(self.flow(call, start, shared)))
                continue
            made.append(TableCall(call.kernel.symbol, start))
            symbol, text = call.kernel.symbol, _describe(call.step)
            self.notes.append(CallNote(symbol, start, call.step.name, text))
            if call.kernel.source.has_status:
                self.slots.append(status or self.new_status(call.step.name))
        self.texts.append(routine_ir(name, made, arrays, linkage))

    def new_status(self, name: str) -> Slot:
        self.watched.append(name)
        return Slot("status", len(self.watched) - 1)

    def flow(self, call: ControlCall, start: int, status: Slot) -> str:
        """Adds the code of a loop or branch and of its bodies."""
        number = self.flows
        self.flows += 1
        names = [f"body{number}.{n}" for n in range(len(call.bodies))]
        for name, plan, body in zip(names, call.step.bodies, call.bodies, strict=True):
            self.routine(name, plan, body, "internal", status)
        self.texts.append(flow_ir(call.step.flow, f"flow{number}", start, names))
        return f"flow{number}"

    def text(self) -> str:
        return "\n".join([declarations([n.symbol for n in self.notes]), *self.texts])


def _describe(step: Step | LoopStep) -> str:
    if isinstance(step, LoopStep):
        return f"loops of {step.nodes[0].op}" if step.nodes else "zeros around a value"
    return describe(*step.task.outputs)
