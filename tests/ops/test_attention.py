"""Attention and rotary embedding against a plain NumPy version in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from whet.core.dtypes import f32
from whet.core.errors import OperatorError, UnsupportedError
from whet.core.types import TensorType
from whet.ops.attention import Attention

RNG = np.random.default_rng(8)
Run = Callable[..., list[Any]]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def plain(q: Any, k: Any, v: Any, allowed: Any = True, bias: Any = 0.0, cap: float = 0.0) -> Any:
    """Attention query by query; keys that are not allowed do not take part."""
    batch, heads, length, size = q.shape
    shared = heads // k.shape[1]
    allowed = np.broadcast_to(allowed, (batch, heads, length, k.shape[2]))
    bias = np.broadcast_to(bias, allowed.shape)
    y = np.zeros((batch, heads, length, v.shape[3]))
    for b, h, i in np.ndindex(batch, heads, length):
        seen = np.flatnonzero(allowed[b, h, i])
        if seen.size:
            scores = k[b, h // shared, seen].astype(np.float64) @ q[b, h, i] / np.sqrt(size)
            if cap:
                scores = cap * np.tanh(scores / cap)
            e = np.exp(scores + bias[b, h, i, seen])
            y[b, h, i] = e / e.sum() @ v[b, h // shared, seen]
    return y


def check(got: Any, expected: Any) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("causal", [0, 1])
def test_shared_heads(kv_heads: int, causal: int, whet_node: Run) -> None:
    q, k, v = normal(2, 4, 3, 8), normal(2, kv_heads, 5, 8), normal(2, kv_heads, 5, 6)
    mask = normal(4, 3, 5)
    (y,) = whet_node("Attention", [q, k, v, mask], opset=23, is_causal=causal)[:1]
    allowed = np.tri(3, 5, dtype=bool) if causal else True
    check(y, plain(q, k, v, allowed, mask))


def test_packed_heads(whet_node: Run) -> None:
    q, k, v = normal(2, 3, 32), normal(2, 5, 16), normal(2, 5, 12)
    (y,) = whet_node("Attention", [q, k, v], opset=23, q_num_heads=4, kv_num_heads=2)[:1]
    split = [x.reshape(2, x.shape[1], n, -1).swapaxes(1, 2) for x, n in ((q, 4), (k, 2), (v, 2))]
    check(y, plain(*split).swapaxes(1, 2).reshape(2, 3, 24))


def test_packed_heads_need_their_number(whet_node: Run) -> None:
    with pytest.raises(UnsupportedError, match="without a number of heads"):
        whet_node("Attention", [normal(2, 3, 32)] * 3, opset=23)


def test_masked_rows_are_zero(whet_node: Run) -> None:
    q, k, v = normal(1, 2, 3, 8), normal(1, 2, 5, 8), normal(1, 2, 5, 8)
    allowed = RNG.random((3, 5)) < 0.5
    allowed[1] = False
    (y,) = whet_node("Attention", [q, k, v, allowed], opset=23)[:1]
    check(y, plain(q, k, v, allowed))
    assert not y[:, :, 1].any()


def test_cache(whet_node: Run) -> None:
    q, k, v = normal(1, 2, 3, 8), normal(1, 2, 3, 8), normal(1, 2, 3, 8)
    past_k, past_v = normal(1, 2, 4, 8), normal(1, 2, 4, 8)
    y, new_k, new_v = whet_node("Attention", [q, k, v, None, past_k, past_v], opset=23,
                                outputs=3, is_causal=1)  # fmt: skip
    np.testing.assert_array_equal(new_k, np.concatenate([past_k, k], 2))
    np.testing.assert_array_equal(new_v, np.concatenate([past_v, v], 2))
    check(y, plain(q, new_k, new_v, np.tri(3, 7, 4, dtype=bool)))


def test_valid_keys_per_sequence(whet_node: Run) -> None:
    q, k, v = normal(2, 2, 3, 8), normal(2, 2, 6, 8), normal(2, 2, 6, 8)
    valid = np.array([4, 2])
    inputs = [q, k, v, None, None, None, valid]
    keys = np.arange(6)
    (y,) = whet_node("Attention", inputs, opset=24)[:1]
    check(y, plain(q, k, v, (keys < valid[:, None])[:, None, None, :]))
    (y,) = whet_node("Attention", inputs, opset=24, is_causal=1)[:1]
    last = np.arange(3)[:, None] + (valid - 3)[:, None, None]
    check(y, plain(q, k, v, ((keys <= last) & (keys < valid[:, None, None]))[:, None]))


@pytest.mark.parametrize(("left", "right"), [(1, -1), (-1, 1), (2, 1), (0, 0)])
def test_windows(left: int, right: int, whet_node: Run) -> None:
    q, k, v = normal(1, 2, 6, 8), normal(1, 2, 6, 8), normal(1, 2, 6, 8)
    (y,) = whet_node("Attention", [q, k, v], opset=25, left_window_size=left,
                     right_window_size=right)[:1]  # fmt: skip
    ahead = np.arange(6)[None, :] - np.arange(6)[:, None]
    allowed = (ahead >= -left if left >= 0 else True) & (
        ahead <= right if right >= 0 else ahead < 9
    )
    check(y, plain(q, k, v, allowed))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_scores_as_output(mode: int, whet_node: Run) -> None:
    q, k, v, mask = normal(1, 2, 3, 8), normal(1, 2, 5, 8), normal(1, 2, 5, 8), normal(3, 5)
    y, _, _, scores = whet_node("Attention", [q, k, v, mask], opset=23, outputs=4, softcap=2.0,
                                qk_matmul_output_mode=mode)  # fmt: skip
    check(y, plain(q, k, v, bias=mask, cap=2.0))
    stages = [q.astype(np.float64) @ k.swapaxes(2, 3) / np.sqrt(8)]
    stages.append(2 * np.tanh(stages[0] / 2))
    stages.append(stages[1] + mask)
    e = np.exp(stages[2])
    stages.append(e / e.sum(-1, keepdims=True))
    check(scores, stages[mode])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
def test_rotary_embedding(interleaved: int, turned: int, whet_node: Run) -> None:
    x = normal(2, 3, 5, 8)
    size = turned or 8
    angles = RNG.uniform(0, 6, (10, size // 2)).astype(np.float32)
    positions = RNG.integers(0, 10, (2, 5))
    (y,) = whet_node("RotaryEmbedding", [x, np.cos(angles), np.sin(angles), positions], opset=23,
                     interleaved=interleaved, rotary_embedding_dim=turned)  # fmt: skip
    expected = x.astype(np.float64)
    for n in range(size // 2):
        a, b = (2 * n, 2 * n + 1) if interleaved else (n, n + size // 2)
        angle = angles[positions, n][:, None, :]
        number = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angle)
        expected[..., a], expected[..., b] = number.real, number.imag
    check(y, expected)


def test_shapes_must_fit() -> None:
    q = TensorType((1, 2, 3, 8), f32)
    for k, v in (((1, 2, 5, 7), (1, 2, 5, 8)), ((1, 1, 5, 8), (1, 1, 5, 8)),
                 ((1, 2, 5, 8), (1, 2, 4, 8))):  # fmt: skip
        with pytest.raises(OperatorError, match="do not fit") as error:
            Attention(1.0).infer_types((q, TensorType(k, f32), TensorType(v, f32)))
        assert error.value.code == "WH1102"
