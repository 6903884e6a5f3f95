"""A reduction in parts as a kernel: that of the parts, then that of their sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from whet.ir.program import Buffer, Program
from whet.schedule.families.parts.match import Parted
from whet.schedule.families.spatial.lower import lower_spatial
from whet.schedule.program.access import flat_buffer
from whet.schedule.program.kernel import Kernel


def lower_parts(form: Parted, holes: Mapping[str, int], name: str) -> Kernel:
    """The kernel with the given number of parts and holes of the inner sketch."""
    cut = form.cut(holes["parts"])
    own = {n: x for n, x in holes.items() if n not in ("parts", "shared")}
    first = form.inner.lower(cut.form, own, name)
    second = lower_spatial(cut.finish, cut.tiling(holes["shared"]), name)
    made = joined(first, second, flat_buffer(cut.halves.buffer), name)
    return replace(made, results=form.task.outputs)


def joined(first: Kernel, second: Kernel, between: Buffer, name: str) -> Kernel:
    """One kernel after the other, with memory that only they know between them."""
    sources = dict(zip(first.program.inputs, first.arguments))
    sources |= dict(zip(second.program.inputs, second.arguments))
    sources.pop(between)
    room = (*first.program.workspace, *second.program.workspace, between)
    body = (*first.program.body, *second.program.body)
    program = Program(name, tuple(sources), second.program.outputs, body, room)
    return Kernel(program, tuple(sources.values()), second.results)
