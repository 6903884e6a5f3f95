"""Every operator that the front end reads is drawn, and every number gives one model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.graph_fuzz.draw import Draw
from tools.graph_fuzz.growth import Growth
from tools.graph_fuzz.model import OPSETS, add_node, finished, grow_model
from tools.graph_fuzz.registry import GENERATORS, Key, front_end_operators
from tools.graph_fuzz.values import STYLES, WEIGHTS, draw_array
from whet.core.dtypes import ALL, DType
from whet.core.types import type_of
from whet.frontend.onnx.attributes import OLDEST_OPSET
from whet.frontend.onnx.mapping import CONVERTERS
from whet.frontend.onnx.tensors import FROM_ONNX

ROOT = Path(__file__).resolve().parents[2]
NOT_DRAWN = {
    ("whet", "random_normal"): "its values are random; ONNX's operators of that name are drawn",
    ("whet", "random_uniform"): "its values are random; ONNX's operators of that name are drawn",
    **{
        ("whet", name): "its bodies are graphs, for which attributes have no notation"
        for name in ("scan", "branch", "while_loop", "collecting_loop")
    },
}
TRIES = 60


def opsets_of(key: Key) -> list[tuple[int, int]]:
    """The ranges of operator sets for which the front end has converters of their own."""
    if key[0]:
        return [(max(OPSETS), max(OPSETS))]
    starts = sorted(CONVERTERS.get(key, {1: None}))
    ends = [n - 1 for n in starts[1:]] + [max(OPSETS)]
    return [(max(a, OLDEST_OPSET), b) for a, b in zip(starts, ends) if b >= OLDEST_OPSET]


def is_drawn(key: Key, low: int, high: int) -> bool:
    """Whether the operator's generator adds it to a model of one of these sets."""
    for n in range(TRIES):
        opset = high - n % (high - low + 1)
        g = Growth(Draw(n), opset, "grid")
        g.pool.append(g.input(g.array(ALL[1], (2, 3, 5, 4))))
        if add_node(g, key) and any((x.domain, x.op_type) == key for x in finished(g).graph.node):
            return True
    return False


def test_every_operator_of_the_front_end_has_a_generator() -> None:
    assert set(front_end_operators()) <= set(GENERATORS)


@pytest.mark.parametrize("domain", sorted({domain for domain, _ in GENERATORS}))
def test_every_operator_is_drawn_in_every_version(domain: str) -> None:
    keys = [key for key in front_end_operators() if key[0] == domain and key not in NOT_DRAWN]
    missing = [(key, low) for key in keys for low, high in opsets_of(key)
               if not is_drawn(key, low, high)]  # fmt: skip
    assert not missing


def test_what_is_not_drawn_cannot_be() -> None:
    assert not [key for key in NOT_DRAWN if is_drawn(key, 22, 22)]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_element_type_has_values_of_every_style(dtype: DType) -> None:
    assert WEIGHTS[dtype.name] > 0
    for style in STYLES:
        assert type_of(draw_array(Draw(1), dtype, (3, 0, 2), style)).dtype == dtype
        assert draw_array(Draw(1), dtype, (5, 3), style).shape == (5, 3)


def test_a_number_gives_the_same_model_in_every_process() -> None:
    program = (
        "import hashlib; from tools.graph_fuzz.model import grow_model\n"
        "for n in range(12):\n"
        "    m = grow_model(3, n)\n"
        "    print(hashlib.sha256(m.model.SerializeToString(deterministic=True)\n"
        "          + b''.join(a.tobytes() for a in m.inputs.values())).hexdigest())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1
    assert len(found.pop().split()) == 12


def test_models_have_all_that_makes_them_hard() -> None:
    """Over a few hundred numbers: values read twice, outputs that are read, views of outputs,
    control flow, empty tensors, special values, all kinds of element types."""
    seen: set[str] = set()
    for n in range(350):
        grown = grow_model(0, n)
        graph = grown.model.graph
        reads = [name for node in graph.node for name in node.input if name]
        outputs = {o.name for o in graph.output}
        if len(reads) > len(set(reads)):
            seen.add("read twice")
        if outputs.intersection(reads):
            seen.add("read output")
        if any(node.op_type in ("Slice", "Transpose") and set(node.output) & outputs
               for node in graph.node):  # fmt: skip
            seen.add("view of an output")
        seen.update(n.op_type for n in graph.node if n.op_type in ("If", "Loop", "Scan"))
        seen.update(str(type_of(a).dtype) for a in grown.inputs.values())
        seen.update(str(FROM_ONNX[t.data_type]) for t in graph.initializer)
        seen.update("empty" for a in grown.inputs.values() if a.size == 0)
        seen.add(grown.style)
        assert len(graph.node) <= 60
        assert outputs
    wanted = {"read twice", "read output", "view of an output", "If", "Loop", "Scan", "empty"}
    assert wanted | set(STYLES) | {str(d) for d in ALL} <= seen
