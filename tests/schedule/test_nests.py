"""Loop nests as arrays, read off programs."""

from __future__ import annotations

import numpy as np

from tests.schedule.small_tasks import convolution, matmul_relu
from whet.schedule.program.primitives import naive_program, parallel, split, vectorize
from whet.schedule.space.statements import MARKS, program_nests


def test_a_product_and_what_follows_it() -> None:
    start, update, final = program_nests(naive_program(matmul_relu(6, 8, 5)))
    assert start.operations == {}
    assert update.operations == {"float_mad": 1.0}
    assert update.loops.tolist() == [[6, 8, 5]]
    assert update.reduces == (False, False, True)
    a, b, y = (x for x in update.accesses if x.buffer != "y_sum" or x.is_write)
    assert (a.buffer, b.buffer, y.buffer, y.is_write) == ("a", "b", "y_sum", True)
    assert a.strides.tolist() == [[5, 0, 1]]
    assert b.strides.tolist() == [[0, 1, 8]]
    assert b.buffer_bytes.tolist() == [5 * 8 * 4]
    assert final.operations == {"float_compare": 1.0}


def test_marks_and_split_loops() -> None:
    program = split(naive_program(matmul_relu(6, 8, 5)), "i_1", 4, "overlap")
    program = vectorize(parallel(program, "i"), "j_1")
    start, _, final = program_nests(program)
    assert start.marks.tolist() == [[MARKS["parallel"], MARKS["serial"]]]
    assert final.marks.tolist() == [[MARKS["serial"], MARKS["serial"], MARKS["vector"]]]
    assert final.loops.tolist() == [[2, 4, 8]]
    # The second tile begins at min(4, 6 - 4).
    assert final.accesses[-1].indices.tolist() == [[[2, 0], [1, 0], [0, 1]]]
    assert np.array_equal(final.accesses[-1].strides, [[16, 8, 1]])


def test_padding_counts_as_a_choice() -> None:
    pad, *_ = program_nests(naive_program(convolution(7, 3, 3)))
    assert pad.operations["select"] == 1.0
    assert pad.operations["bool"] == 3.0
