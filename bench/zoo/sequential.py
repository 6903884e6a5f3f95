"""Transformers and a recurrent network; the defaults are the networks as they are measured."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from zoo.writer import Writer

VOCABULARY = 30_522


def bert_base(
    layers: int = 12,
    tokens: int = 128,
    vocabulary: int = VOCABULARY,
    width: int = 768,
    heads: int = 12,
) -> onnx.ModelProto:
    """BERT-base: token ids to the pooled first token."""
    w = Writer()
    ids = w.input("x0", (1, tokens), TensorProto.INT64)
    y = w.node("Gather", w.normal((vocabulary, width), 0.5), ids)
    y = w.node("Add", y, w.normal((1, tokens, width), 0.5))
    y = w.layer_norm(y, width, 1e-12)
    for _ in range(layers):
        y = w.layer_norm(w.node("Add", y, _attention(w, y, tokens, width, heads)), width, 1e-12)
        z = w.linear(_gelu(w, w.linear(y, width, 4 * width)), 4 * width, width)
        y = w.layer_norm(w.node("Add", y, z), width, 1e-12)
    first = w.node("Gather", y, w.constant(np.array(0)), axis=1)
    return w.model(w.node("Tanh", w.linear(first, width, width)))


def bert_attention(tokens: int = 128, width: int = 768, heads: int = 12) -> onnx.ModelProto:
    """The self-attention of one layer of BERT, with its projections."""
    w = Writer()
    return w.model(_attention(w, w.input("x0", (1, tokens, width)), tokens, width, heads))


def vit_tiny(
    layers: int = 12, image: int = 224, width: int = 192, heads: int = 3, classes: int = 1000
) -> onnx.ModelProto:
    """ViT-Ti/16 at 224 x 224."""
    patches = (image // 16) ** 2
    tokens = patches + 1
    w = Writer()
    y = w.conv(w.input("x0", (1, 3, image, image)), 3, width, 16, 16, 0, relu=False)
    y = w.node("Transpose", w.node("Reshape", y, w.ints(1, width, patches)), perm=[0, 2, 1])
    y = w.node("Concat", w.normal((1, 1, width), 0.5), y, axis=1)
    y = w.node("Add", y, w.normal((1, tokens, width), 0.5))
    for _ in range(layers):
        z = _attention(w, w.layer_norm(y, width, 1e-6), tokens, width, heads)
        y = w.node("Add", y, z)
        z = w.linear(w.layer_norm(y, width, 1e-6), width, 4 * width)
        y = w.node("Add", y, w.linear(_gelu(w, z), 4 * width, width))
    first = w.node("Gather", w.layer_norm(y, width, 1e-6), w.constant(np.array(0)), axis=1)
    return w.model(w.linear(first, width, classes))


def llama_prefill(
    layers: int = 4,
    tokens: int = 128,
    width: int = 768,
    heads: int = 12,
    shared: int = 4,
    inner: int = 2048,
) -> onnx.ModelProto:
    """Decoder layers as in Llama: 12 heads, 4 of keys and values, rotary positions, SwiGLU."""
    size = width // heads
    w = Writer()
    y = w.input("x0", (1, tokens, width))
    angles = np.arange(tokens)[:, None] / 10000 ** (np.arange(0, size, 2) / size)
    angles = np.concatenate([angles, angles], 1)
    cosine = w.constant(np.cos(angles).astype(np.float32))
    sine = w.constant(np.sin(angles).astype(np.float32))
    mask = w.constant(np.triu(np.full((tokens, tokens), -1e9, np.float32), 1))

    def split_heads(x: str, count: int) -> str:
        x = w.node("Reshape", x, w.ints(1, tokens, count, size))
        return w.node("Transpose", x, perm=[0, 2, 1, 3])

    def rotate(x: str) -> str:
        first, second = w.nodes_with("Split", (x,), 2, axis=-1, num_outputs=2)
        turned = w.node("Concat", w.node("Neg", second), first, axis=-1)
        return w.node("Add", w.node("Mul", x, cosine), w.node("Mul", turned, sine))

    def repeat(x: str) -> str:
        x = w.node("Unsqueeze", x, w.ints(2))
        x = w.node("Expand", x, w.ints(1, shared, heads // shared, tokens, size))
        return w.node("Reshape", x, w.ints(1, heads, tokens, size))

    for _ in range(layers):
        x = _rms_norm(w, y, width)
        q = rotate(split_heads(w.linear(x, width, width, bias=False), heads))
        k = rotate(split_heads(w.linear(x, width, shared * size, bias=False), shared))
        v = split_heads(w.linear(x, width, shared * size, bias=False), shared)
        z = _weighted(w, q, repeat(k), repeat(v), size, mask)
        z = w.node("Reshape", w.node("Transpose", z, perm=[0, 2, 1, 3]), w.ints(1, tokens, width))
        y = w.node("Add", y, w.linear(z, width, width, bias=False))
        x = _rms_norm(w, y, width)
        gate, up = (w.linear(x, width, inner, bias=False) for _ in range(2))
        z = w.node("Mul", w.node("Mul", gate, w.node("Sigmoid", gate)), up)
        y = w.node("Add", y, w.linear(z, inner, width, bias=False))
    return w.model(_rms_norm(w, y, width))


def nasrnn(hidden: int = 512, length: int = 10) -> onnx.ModelProto:
    """The recurrent cell of TASO's example, unrolled; 8 products of x and 8 of h per step."""
    w = Writer()
    xs, h = w.input("x0", (length, 1, hidden)), w.input("x1", (1, hidden))
    weights = [[w.normal((hidden, hidden), hidden**-0.5) for _ in range(2)] for _ in range(8)]
    node = w.node
    for step in range(length):
        x = node("Gather", xs, w.constant(np.array(step)))
        t = [node("Add", node("MatMul", x, a), node("MatMul", h, b)) for a, b in weights]
        m0 = node("Add", node("Relu", t[0]), node("Sigmoid", t[3]))
        m1 = node("Add", node("Sigmoid", t[1]), node("Tanh", t[2]))
        m2 = node("Mul", node("Sigmoid", t[4]), node("Tanh", t[5]))
        m3 = node("Mul", node("Sigmoid", t[6]), node("Relu", t[7]))
        m4 = node("Add", node("Sigmoid", m1), node("Tanh", m2))
        m5 = node("Mul", node("Tanh", m0), node("Tanh", m3))
        h = node("Tanh", node("Mul", node("Tanh", m4), node("Tanh", m5)))
    return w.model(h)


def _attention(w: Writer, x: str, tokens: int, width: int, heads: int) -> str:
    """Self-attention with projections, head by head."""
    size = width // heads

    def split_heads(v: str) -> str:
        v = w.node("Reshape", v, w.ints(1, tokens, heads, size))
        return w.node("Transpose", v, perm=[0, 2, 1, 3])

    q, k, v = (split_heads(w.linear(x, width, width)) for _ in range(3))
    z = w.node("Transpose", _weighted(w, q, k, v, size), perm=[0, 2, 1, 3])
    return w.linear(w.node("Reshape", z, w.ints(1, tokens, width)), width, width)


def _weighted(w: Writer, q: str, k: str, v: str, size: int, mask: str | None = None) -> str:
    """softmax(q k^T / sqrt(size) + mask) v, the scale shared by q and k as exporters do it."""
    scale = w.number(size**-0.25)
    q = w.node("Mul", q, scale)
    k = w.node("Mul", w.node("Transpose", k, perm=[0, 1, 3, 2]), scale)
    scores = w.node("MatMul", q, k)
    if mask is not None:
        scores = w.node("Add", scores, mask)
    return w.node("MatMul", w.node("Softmax", scores, axis=-1), v)


def _gelu(w: Writer, x: str) -> str:
    erf = w.node("Erf", w.node("Div", x, w.number(2**0.5)))
    return w.node("Mul", w.node("Mul", x, w.node("Add", erf, w.number(1.0))), w.number(0.5))


def _rms_norm(w: Writer, x: str, width: int) -> str:
    square = w.node("ReduceMean", w.node("Pow", x, w.number(2.0)), w.ints(-1), keepdims=1)
    root = w.node("Sqrt", w.node("Add", square, w.number(1e-5)))
    y = w.node("Mul", x, w.node("Reciprocal", root))
    return w.node("Mul", y, w.normal((width,), 0.1, mean=1.0))
