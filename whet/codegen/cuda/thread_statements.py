"""Statements of threads as calls of intrinsics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whet.codegen.cuda.addresses import memory_address, shared_address
from whet.codegen.cuda.places import FRAGMENT_REGISTERS
from whet.codegen.cuda.support import no_code, require_code
from whet.core.dtypes import f32, i64
from whet.ir.expr import Expr, Var, const
from whet.ir.program import Buffer, Loop, substitute_block
from whet.ir.threads import (
    Arrive,
    AwaitArrivals,
    AwaitInputs,
    Barrier,
    Commit,
    Copy,
    Exchange,
    LaunchNext,
    MatrixLoad,
    MatrixMultiplyAdd,
    ThreadStmt,
    Wait,
    fragments_in,
)

if TYPE_CHECKING:
    from whet.codegen.cuda.emit import _KernelWriter
    from whet.codegen.cuda.values import Values

_KINDS = {"f16": "f16", "bf16": "bf16", "f32": "tf32"}


def write(writer: _KernelWriter, stmt: ThreadStmt) -> None:
    """One statement."""
    lines = writer.lines
    match stmt:
        case Copy():
            _copy(writer, stmt)
        case Commit():
            lines.line(f"{lines.call('commit')}();")
        case Wait(pending=pending):
            lines.line(f"{lines.call('wait')}<{pending}>();")
        case Barrier(scope="warp"):
            lines.line("__syncwarp();")
        case Barrier(scope="block"):
            lines.line("__syncthreads();")
        case Barrier(scope="cluster"):
            lines.line(f"{lines.call('cluster_barrier')}();")
        case Arrive():
            lines.line(f"{lines.call('arrive')}();")
        case AwaitArrivals():
            lines.line(f"{lines.call('await_arrivals')}();")
        case Exchange():
            _exchange(writer, stmt)
        case MatrixLoad():
            _load_matrix(writer, stmt)
        case MatrixMultiplyAdd():
            _multiply_add(writer, stmt)
        case AwaitInputs():
            if lines.target.has_dependent_launch:  # else kernels run one after the other
                lines.line(f"{lines.call('await_inputs')}();")
        case LaunchNext():
            if lines.target.has_dependent_launch:
                lines.line(f"{lines.call('launch_next')}();")
        case _:
            no_code(f"a {type(stmt).__name__}")


def _copy(writer: _KernelWriter, stmt: Copy) -> None:
    lines, values, places = writer.lines, writer.values, writer.places
    values.begin(*stmt.at, *stmt.start, stmt.valid)
    nbytes = stmt.elements * stmt.target.dtype.itemsize
    to = shared_address(values, stmt.target, stmt.at)
    valid = values.value(stmt.valid)
    if valid == "true" or _is_inside(values, stmt):
        source = memory_address(values, stmt.source, stmt.start)
    else:
        # The address of what is not read must be one of the buffer all the same.  It is masked and
        # not chosen: a choice would be a branch around the arithmetic of each address.
        valid = values.named(valid, "bool")
        place = values.text_of(places.address(stmt.source, stmt.start).expr())
        source = f"{places.bases[stmt.source]} + ({place} & -(int){valid})"
    kind = "copy_16_near" if stmt.near and nbytes == 16 else f"copy_{nbytes}"
    lines.line(f"{lines.call(kind)}({to}, {source}, {valid});")


def _is_inside(values: Values, stmt: Copy) -> bool:
    """Whether what a copy would read is part of its buffer, valid or not."""
    lengths = [1] * (len(stmt.start) - 1) + [stmt.elements]
    for index, length, extent in zip(stmt.start, lengths, stmt.source.shape):
        found = values.indices.reach(index)
        if found is None or found[0] < 0 or found[1] + length > extent:
            return False
    return True


def _exchange(writer: _KernelWriter, stmt: Exchange) -> None:
    lines, values, places = writer.lines, writer.values, writer.places
    values.begin(*stmt.at, *stmt.start)
    place = values.text_of(places.address(stmt.target, stmt.at).expr())
    given = values.load(stmt.source, stmt.start)
    base = places.bases[stmt.target]
    lines.line(f"{base}[{place}] = {lines.call('exchange')}({given}, {stmt.mask});")


# ------------------------------------------------------------------------------------- matrices
def allocate_fragment(writer: _KernelWriter, buffer: Buffer) -> None:
    """Registers for a lane's elements of all matrices of a buffer."""
    role = writer.places.roles[buffer]
    count = buffer.type.size // (buffer.shape[-1] * buffer.shape[-2])
    kind = "float" if buffer.dtype is f32 else "unsigned int"
    name = writer.lines.name(buffer.name)
    writer.lines.line(f"{kind} {name}[{count * FRAGMENT_REGISTERS[role]}];")
    writer.places.bases[buffer] = name


def _load_matrix(writer: _KernelWriter, stmt: MatrixLoad) -> None:
    """Each lane gives the address of a row of 16 bytes, and gets its elements."""
    lines, fragment, lane = writer.lines, stmt.fragment, writer.lane
    size = stmt.source.dtype.itemsize
    row_bytes = stmt.source.element_strides[-2] * size
    high, right = f"({lane} / 8 % 2)", f"({lane} / 16)"
    if writer.places.roles[fragment] == "right":
        high, right = right, high
    writer.values.begin(*stmt.number, *stmt.at)
    matrix = _matrix(writer, fragment, stmt.number)
    if stmt.turned and size == 4:
        _load_elements(writer, stmt, matrix)
        return
    function = "load_matrix"
    if stmt.turned:
        function, high, right = "load_turned_matrix", right, high
    in_matrix = f"({lane} % 8 + {high} * 8) * {row_bytes} + {right} * 16"
    address = shared_address(writer.values, stmt.source, stmt.at, in_matrix)
    lines.line(f"{lines.call(function)}((unsigned int*){matrix}, {address});")


def _load_elements(writer: _KernelWriter, stmt: MatrixLoad, matrix: str) -> None:
    """Each lane reads its elements of a matrix: of 32 bits, none can be turned on the way."""
    lines, e = writer.lines, writer.lines.name("e")
    row, column = _held_element(writer, stmt.fragment, e)
    first = writer.values.text_of(writer.places.address(stmt.source, stmt.at).expr())
    base, step = writer.places.bases[stmt.source], stmt.source.element_strides[-2]
    lines.line("#pragma unroll")
    with lines.block(f"for (int {e} = 0; {e} < 4; ++{e})"):
        lines.line(f"{matrix}[{e}] = ({base} + {first})[({column}) * {step} + {row}];")


def _multiply_add(writer: _KernelWriter, stmt: MatrixMultiplyAdd) -> None:
    kind = stmt.left.dtype
    require_code(kind.name in _KINDS and kind == stmt.right.dtype, f"products of {kind} matrices")
    writer.values.begin(*stmt.expressions)
    total = _matrix(writer, stmt.total, stmt.total_number)
    left = _matrix(writer, stmt.left, stmt.left_number)
    right = _matrix(writer, stmt.right, stmt.right_number)
    function = writer.lines.call(f"multiply_add_{_KINDS[kind.name]}")
    cast = "(const unsigned int*)"
    writer.lines.line(f"{function}({total}, {cast}{left}, {cast}{right});")


def _matrix(writer: _KernelWriter, buffer: Buffer, number: Sequence[Expr]) -> str:
    return f"({writer.places.bases[buffer]} + {writer.values.matrix(buffer, number)})"


def fragment_loop(writer: _KernelWriter, stmt: Loop) -> None:
    """The elements that this lane holds; see `whet.ir.threads.lane_elements`.

    Neighbours in a row are a vector: they are moved at once where memory allows.
    """
    lines = writer.lines
    buffers = list(fragments_in(stmt))
    require_code(bool(buffers), "a loop over the elements of no matrix")
    buffer, columns = buffers[0], buffers[0].shape[-1]
    require_code(all(b.dtype is f32 for b in buffers), "elements of matrices that are not f32")
    count = 8 if writer.places.roles[buffer] == "sum" else columns // 2
    beside = 2 if writer.places.roles[buffer] == "sum" else columns // 8
    e, r, c = lines.name("e"), lines.name("row"), lines.name("column")
    row, column = _held_element(writer, buffer, e)
    at, left, run = Var(r), Var(c), Var("beside")
    held: dict[Expr, Expr] = {
        stmt.var // columns: at, stmt.var % columns: left + run,
        stmt.var: at * columns + left + run,
    }  # fmt: skip
    lines.line("#pragma unroll")
    with lines.block(f"for (int {e} = 0; {e} < {count}; {e} += {beside})"):
        lines.line(f"const int {r} = {row}, {c} = {column};")
        writer.places.elements = (at, left, e)
        with (
            writer.indices.symbol(at, r, buffer.shape[-2]),
            writer.indices.symbol(left, c, columns, beside),
        ):
            body = substitute_block(stmt.body, held)
            writer.vector(Loop(run, const(beside, i64), body, "vector"))
        writer.places.elements = None


def _held_element(writer: _KernelWriter, buffer: Buffer, e: str) -> tuple[str, str]:
    """Row and column of element number `e` of those that this lane holds of a matrix."""
    lane, columns = writer.lane, buffer.shape[-1]
    role = writer.places.roles[buffer]
    if role == "sum":
        return f"{lane} / 4 + {e} / 2 % 2 * 8", f"{e} / 4 * 8 + {lane} % 4 * 2 + {e} % 2"
    run = columns // 8
    high, right = f"{e} / {run} % 2", f"{e} / {run} / 2"
    if role == "right":
        high, right = right, high
    row = f"{lane} / 4 + {high} * 8"
    return row, f"{right} * {columns // 2} + {lane} % 4 * {run} + {e} % {run}"
