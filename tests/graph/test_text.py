"""Graph text: what it looks like, that it parses back, and how damage is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.work import calls_of
from whet.core.dtypes import ALL, DType, f32, i64
from whet.core.errors import GraphError
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, apply, make_constant, make_input
from whet.graph.literals import array_from_items, show_array
from whet.graph.syntax import Reader
from whet.graph.text import parse_graph, print_graph, stored_arrays
from whet.ops import REGISTRY
from whet.ops.base import Sample
from whet.ops.scan import Scan
from whet.ops.shared.control import Control

SAMPLES = [
    pytest.param(sample, id=f"{name}-{n}")
    for name, cls in sorted(REGISTRY.items())
    for n, sample in enumerate((*cls.samples(), cls.sample(np.random.default_rng(7))))
]

GOLDEN = """\
i0: f32[2, 3] = input("image.1")
c0: f32[3, 10] = constant("{digest}")
c1: f32[] = constant([0.1])
v0: f32[2, 10] = matmul(i0, c0)  # layer/ fc
v1: f32[2, 10] = add(v0, c1)  # layer/ fc
v2: f32[2, 4], v3: f32[2, 6] = split(v1, axis=1, sizes=[4, 6])  # layer/ fc
v4: f32[4, 2] = transpose(v2, perm=[1, 0])  # layer/ fc
return "y"=v4, "rest"=v3, "copy"=i0
"""


def sample_graph(sample: Sample) -> Graph:
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(sample.types))
    outputs = apply(sample.op, *inputs)
    return Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))


def small_graph() -> Graph:
    b = GraphBuilder()
    b.current_name = "layer/\nfc"
    x = b.input("image.1", TensorType((2, 3), f32))
    y = b.one(REGISTRY["matmul"](), x, b.constant(np.arange(30, dtype=np.float32).reshape(3, 10)))
    y = b.one(REGISTRY["add"](), y, b.constant(np.asarray(0.1, np.float32)))
    first, second = b.results(REGISTRY["split"](1, (4, 6)), y)
    y = b.one(REGISTRY["transpose"]((1, 0)), first)
    return Graph((x,), (y, second, x), ("y", "rest", "copy"), b.names)


def test_text_of_a_small_graph() -> None:
    graph = small_graph()
    (digest,) = stored_arrays(graph)
    assert print_graph(graph) == str(graph) == GOLDEN.format(digest=digest)


def test_parsed_graph_is_the_same_graph_with_the_same_names() -> None:
    graph = small_graph()
    parsed = parse_graph(print_graph(graph), stored_arrays(graph))
    assert (parsed.inputs, parsed.outputs) == (graph.inputs, graph.outputs)
    assert parsed.output_names == graph.output_names
    assert [parsed.names[n] for n in parsed.nodes] == ["layer/ fc"] * 4


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_operator_parses_back(sample: Sample) -> None:
    graph = sample_graph(sample)
    text = print_graph(graph)
    parsed = parse_graph(text, stored_arrays(graph))
    assert print_graph(parsed) == text
    if not isinstance(sample.op, Control):  # their samples have other bodies than graphs
        assert parsed.outputs == graph.outputs


def scan_graph() -> Graph:
    b = GraphBuilder()
    row = TensorType((3,), f32)
    weights = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    bias = np.linspace(-1, 1, 60, dtype=np.float32)[:3] * np.float32(1.1)

    def step(state: object, piece: object) -> tuple[object, object]:
        row_type = b.one(REGISTRY["reshape"]((1, 3)), state)
        mixed = b.one(REGISTRY["matmul"](), row_type, b.constant(weights))
        flat = b.one(REGISTRY["reshape"]((3,)), mixed)
        new = b.one(REGISTRY["add"](), b.one(REGISTRY["add"](), flat, piece), b.constant(bias))
        return new, new

    body = b.body((row, row), step)
    start, rows = b.input("h", row), b.input("x", TensorType((4, 3), f32))
    last, stacked = b.results(Scan(body, 4, 1, (0,), (0,)), start, rows)
    return Graph((start, rows), (last, stacked), ("last", "all"))


def test_bodies_are_nested_text() -> None:
    graph = scan_graph()
    text = print_graph(graph)
    assert "body={\n  i0: f32[3] = input(" in text
    parsed = parse_graph(text, stored_arrays(graph))
    assert parsed.outputs == graph.outputs
    assert print_graph(parsed) == text


# ------------------------------------------------------------------------------------ literals
@given(
    st.sampled_from(ALL).flatmap(
        lambda d: st.tuples(st.just(d), st.binary(min_size=0, max_size=16 * d.itemsize))
    )
)
def test_short_arrays_keep_their_bits(case: tuple[DType, bytes]) -> None:
    dtype, data = case
    if dtype.kind == "bool":
        array = np.frombuffer(data, np.uint8).astype(np.bool_)
    elif dtype.bits < 8 and dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
        spread = np.frombuffer(data, np.uint8).astype(np.int64) % (1 << dtype.bits) + low
        array = spread.astype(dtype.numpy)
    elif dtype.bits < 8:
        array = (np.frombuffer(data, np.uint8) & 15).astype(np.uint8).view(dtype.numpy)
    else:
        whole = len(data) - len(data) % dtype.itemsize
        array = np.frombuffer(data[:whole], dtype.numpy)
    graph = Graph((), (make_constant(array),), ("y",))
    (parsed,) = parse_graph(print_graph(graph), stored_arrays(graph)).outputs
    assert parsed is graph.outputs[0]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([0.1, -0.0, np.inf, 1e-45], np.float32), "[0.1, -0.0, inf, 1e-45]"),
        (np.array([[1, -2]], np.int8), "[1, -2]"),
        (np.array(True), "[true]"),
        (np.array([np.nan]), "[nan]"),
        (np.zeros(17, np.float32), None),
        (np.array([0x7FC00001], np.uint32).view(np.float32), None),  # a NaN with a payload
    ],
)
def test_array_literals(array: np.ndarray, text: str | None) -> None:
    assert show_array(array) == text


def test_elements_must_fit_the_type() -> None:
    assert array_from_items([300], TensorType((1,), REGISTRY["cast"](i64).to)) is not None
    for items, dtype in (
        ([300], "i8"),
        ([1.5], "i64"),
        ([True], "f32"),
        ([1], "bool"),
        ([], "f32"),
    ):
        reader = Reader(f"{dtype}[1]")
        assert array_from_items(items, reader.type()) is None


# -------------------------------------------------------------------------------------- damage
LINE = 'i0: f32[2, 3] = input("x")\n'
DAMAGED = [
    ("", "WH1201", "line 1: expected a name, found the end of the text"),
    (LINE, "WH1201", "line 2: expected a name, found the end of the text"),
    (LINE + "v0: f32[2, 3] = relu(v9)\n", "WH1202", "line 2: 'v9' is not defined"),
    (LINE + "v0: f32[2, 3] = relu(v0)\n", "WH1202", "line 2: 'v0' is not defined"),
    (LINE + LINE, "WH1202", "line 2: input 'x' is defined twice"),
    (LINE + "i0: f32[2, 3] = relu(i0)\n", "WH1202", "line 2: 'i0' is defined twice"),
    (LINE + "v0: f32[3, 2] = relu(i0)\n", "WH1201", "line 2: relu gives f32[2, 3], not f32[3, 2]"),
    (LINE + "v0: f32[2, 3] = relu(i0, i0)\n", "WH1201", "line 2: relu takes x, got 2 values"),
    (LINE + "v0: f32[2, 3] = frobnicate(i0)\n", "WH1106", "line 2: unknown operator 'frobnicate'"),
    (LINE + "v0: f32[2, 3] = relu(i0, k=1)\n", "WH1201", "line 2: relu has no attribute"),
    (LINE + "v0: f32[3, 2] = transpose(i0)\n", "WH1201", "line 2: attributes of transpose"),
    (LINE + "v0: f32[3, 2] = transpose(i0, perm=[1, 0], perm=[1, 0])\n", "WH1201",
     "line 2: attribute 'perm' is given twice"),
    (LINE + "v0: f32[3, 2] = transpose(i0, perm=" + "[" * 99, "WH1201", "nested deeper than"),
    (LINE + f"v0: f32[3, 2] = transpose(i0, perm=[{'9' * 30}])", "WH1201", "not fit 64 bits"),
    (LINE + f"v0: f32[3, 2] = transpose(i0, perm=[{'9' * 9999}])", "WH1201", "9999 characters"),
    (LINE + "c0: f32[2] = constant([1.0])\n", "WH1201", "line 2: the elements do not fit f32[2]"),
    (LINE + "c0: f32[1099511627776] = constant([1.0])\n", "WH1201", "line 2: the elements"),
    (LINE + "c0: f32[99999999999999] = constant([1.0])\n", "WH1201", "line 2: impossible tensor"),
    (LINE + 'c0: f32[9] = constant("feed")\n', "WH1202", "line 2: there is no array 'feed'"),
    (LINE + "c0: f99[9] = constant([1])\n", "WH1201", "line 2: unknown element type 'f99'"),
    (LINE + "c0: f32[1.5] = constant([1])\n", "WH1201", "line 2: extents must be integers"),
    (LINE + "c0: f32[?] = constant([1])\n", "WH1201", "line 2: constant defines one value"),
    (LINE + 'return "y"=i0, "y"=i0', "WH1202", "line 2: names are not unique"),
    (LINE + 'return "y"=i0\nrelu', "WH1201", "line 3: expected the end of the text"),
    (LINE + 'return "y\n', "WH1201", "line 2: unexpected character"),
    (LINE + "\x00", "WH1201", "line 2: unexpected character '\\x00'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "message"), DAMAGED)
def test_damage_is_named_with_its_line(text: str, code: str, message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)) as caught:
        parse_graph(text)
    assert caught.value.code == code


def test_a_changed_array_is_noticed() -> None:
    graph = small_graph()
    (digest,) = stored_arrays(graph)
    with pytest.raises(GraphError, match=r"line 2: array .* has other contents"):
        parse_graph(print_graph(graph), {digest: np.zeros((3, 10), np.float32)})


CALLS_PER_CHARACTER = 100
"""More than parsing takes, whatever is damaged."""


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_text_parses_or_is_refused(data: st.DataObject) -> None:
    graph = data.draw(st.sampled_from([small_graph(), scan_graph()]))
    text = print_graph(graph)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(
            st.sampled_from(["", "[", "]", "(", "{", "}", ",", "=", '"', "#", "\n", "-", "9", "v0",
                             "999999999999", "inf", "relu(", "body={", "None", "é"])
        )  # fmt: skip
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 6)) :]
    arrays, problem = stored_arrays(graph), None

    def parse() -> None:
        nonlocal problem
        try:
            parse_graph(text, arrays)
        except GraphError as error:
            problem = error

    assert calls_of(parse) < CALLS_PER_CHARACTER * len(text)
    if problem is not None:
        assert problem.code in ("WH1106", "WH1201", "WH1202")
        assert re.search(r"line \d+", problem.message)


def chain_text(length: int) -> str:
    """The text of relu(relu(...)), a node per line."""
    lines = [LINE.strip(), "v0: f32[2, 3] = relu(i0)"]
    lines += [f"v{n}: f32[2, 3] = relu(v{n - 1})" for n in range(1, length)]
    return "\n".join([*lines, f'return "y"=v{length - 1}'])


def test_a_long_graph_is_read() -> None:
    assert len(parse_graph(chain_text(20_000)).nodes) == 20_000


def test_the_work_of_reading_grows_with_the_text_alone() -> None:
    short, long = (calls_of(lambda n=n: parse_graph(chain_text(n))) for n in (500, 2000))
    assert long < 4.2 * short
