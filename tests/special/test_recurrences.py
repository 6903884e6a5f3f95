"""Infinite parameters of recurrences: both engines agree."""

from __future__ import annotations

import numpy as np

from tests.special.engines import both, graph_of, on_every_target
from whet.core.cpu import CpuTarget
from whet.core.types import Array, type_of
from whet.ops.recurrent import GRU, Recurrence

INF = np.inf


def parameters(recurrent_bias: float, weight: float) -> list[Array]:
    """x, w, r, biases and the first state of three units; the candidate's are not finite."""
    w, r, biases = np.full((9, 1), 0.5), np.zeros((9, 3)), np.zeros(18)
    w[6:], biases[15:] = weight, recurrent_bias
    x, h = np.array([[[1.0]], [[-0.5]]]), np.full((1, 3), 0.25)
    return [a.astype(np.float32) for a in (x, w, r, biases, h)]


def agree(op: Recurrence, arrays: list[Array], target: CpuTarget) -> Array:
    for got, want in (pairs := both(graph_of(op, *map(type_of, arrays)), arrays, target)):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    return np.asarray(pairs[0][0])


@on_every_target
def test_what_is_added_late_is_not_added_early(target: CpuTarget) -> None:
    """The reset gate multiplies an infinite bias, which no zero may meet before."""
    op = GRU.with_defaults(linear_before_reset=True)
    assert np.isfinite(agree(op, parameters(INF, 0.5), target)).all()


@on_every_target
def test_an_infinite_candidate_is_not_taken_from_the_state(target: CpuTarget) -> None:
    op = GRU(("sigmoid", "softplus"), (0.0, 0.0), (0.0, 0.0))
    assert (agree(op, parameters(0.0, INF), target)[0] == INF).all()
