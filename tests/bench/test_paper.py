"""The experiments of the paper on small networks, and the parts that judge and draw."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import paper
from experiments import searching
from experiments.case_studies import SUM_OF_CONVOLUTIONS
from experiments.compare import NOISE, Outcome, Variant, compare, not_slower, verdicts
from experiments.rewriting import everywhere, finished, rule_rewrites, whole
from experiments.setting import Setting, imported
from harness.pairs import Turns, bootstrapped, built_with, random_inputs
from harness.pictures import Bars, Frame, Line, bar_chart, heat_map, line_chart, ticks
from whet.core.types import Array
from whet.graph.graph import Graph, apply
from whet.graph.interpret import interpret
from whet.ops.base import REGISTRY
from whet.superopt.rules.files import shipped
from whet.tasks.layout import choose_layouts, keep_rows
from zoo.convolutional import residual_module
from zoo.reduced import REDUCED

SVG = "{http://www.w3.org/2000/svg}"
PICTURES = {
    "groups": ["groups_32_8"],
    "nasnet": ["nasnet"],
    "nasrnn": ["nasrnn"],
    "qkv": ["qkv"],
    "resnet": ["resnet"],
    "alpha": ["alpha_squeezenet_seconds", "alpha_squeezenet_states"],
    "sizes": ["sizes_alone", "sizes_with_axes"],
    "heat": ["heat_matching", "heat_taken"],
    "layouts": ["layouts_squeezenet"],
    "axes": [],
}


def texts(picture: str) -> list[str]:
    """The texts of a picture, which must be well-formed."""
    return [e.text or "" for e in ET.fromstring(picture).iter(f"{SVG}text")]


# ------------------------------------------------------------------------------------- the parts
def test_every_part_is_run_here() -> None:
    assert list(PICTURES) == list(paper.PARTS)


@pytest.mark.parametrize("part", PICTURES)
def test_parts_run_on_small_networks(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--reduced", "--threads", "1", "--seconds", "0.3", "--states", "4", "--measure", "0",
               "--only", "squeezenet", "--json", f"{tmp_path}/out.json",
               "--pictures", f"{tmp_path}/pictures"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["paper.py", "--part", part, *options])
    paper.main()
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["rows"], "a part without figures"
    drawn = sorted((tmp_path / "pictures").glob("*"))
    assert [p.stem for p in drawn] == PICTURES[part]
    for path in drawn:
        said = texts(path.read_text())
        assert any(data["machine"]["date"] in t and "1 thread" in t for t in said), said
    measured = [row for row in data["rows"] if "median_s" in row]
    assert bool(measured) == (part not in ("alpha", "sizes", "heat", "axes"))
    for row in measured:
        assert row["low_s"] <= row["median_s"] <= row["high_s"]
        assert row["predicted_s"] > 0
    if part == "groups":
        assert [row["variant"] for row in measured] == ["8", "4", "2", "1"]
    if part == "layouts":
        names = ["neither", "substitutions only", "layouts only", "one after the other"]
        assert [row["variant"] for row in measured] == [*names, "joint"]
        assert len(data["goals"]) == len(names)


def test_rewrites_of_the_case_studies_all_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--reduced", "--threads", "1", "--seconds", "0", "--measure", "0"]
    parts = ["nasnet", "nasrnn", "qkv", "resnet"]
    out = ["--json", f"{tmp_path}/out.json"]
    monkeypatch.setattr(sys, "argv", ["paper.py", "--part", *parts, *options, *out])
    paper.main()
    notes = json.loads((tmp_path / "out.json").read_text())["notes"]
    assert not [note for note in notes if "fits nowhere" in note]


def test_a_sum_of_convolutions_becomes_one() -> None:
    graph = imported(partial(residual_module, image=6, cin=4, cout=4))
    start = whole(graph)
    assert everywhere(start, rule_rewrites(SUM_OF_CONVOLUTIONS)) is None, "kernels differ"
    enlarged = everywhere(start, rule_rewrites("conv-conv-9fa8c5a2"))
    assert enlarged is not None
    summed = everywhere(enlarged, rule_rewrites(SUM_OF_CONVOLUTIONS))
    assert summed is not None
    made = finished(graph, summed)
    count = lambda g: sum(node.op.name == "conv" for node in g.nodes)
    assert (count(graph), count(made)) == (3, 2)
    inputs = random_inputs(graph)
    for a, b in zip(interpret(graph, inputs), interpret(made, inputs), strict=True):
        assert np.allclose(a, b, atol=1e-4)


def test_rules_have_the_size_of_their_larger_side() -> None:
    by_name = {rule.name: rule for rule in shipped()}
    assert searching.size_of(by_name["conv-conv-8a922824"]) == 2
    assert searching.size_of(by_name["matmul-add-6b657933"]) == 3
    assert max(map(searching.size_of, shipped())) == searching.SIZES[-1]


# -------------------------------------------------------------------------------------- judging
def outcome(*seconds: float, again: float | None = None) -> Outcome:
    """Variants that always take as long; the last turns are those of the second build."""
    every = (*seconds, seconds[0] if again is None else again)
    turns = Turns(tuple(np.full(10, s) for s in every), 0.0)
    names = tuple("abcdef"[: len(seconds)])
    return Outcome(names, (None,) * len(seconds), turns, tuple(range(len(seconds))), (0.0,) * 9)


def test_verdicts() -> None:
    found = outcome(1.0, 0.9, 1.2, 1.005)
    assert [found.verdict(n) for n in range(4)] == ["-", "pays", "does not pay", "no difference"]
    said = " ".join(verdicts(found))
    assert "does not pay: 'c' (1200 ms), against 1000 ms of 'a'" in said
    noisy = outcome(1.0, 0.9, 1.2, again=0.85)
    assert noisy.noise == pytest.approx(0.176, abs=1e-3)
    assert [noisy.verdict(n) for n in (1, 2)] == ["no difference", "no difference"]


def test_goals_keep_their_bound_on_noisy_machines() -> None:
    quiet, noisy = outcome(1.0, 1.05), outcome(1.0, 1.05, again=0.9)
    goals = [not_slower("x", found, 1, than=0) for found in (quiet, noisy)]
    assert [goal.bound for goal in goals] == [1 - NOISE, 1 - NOISE]
    assert [(goal.met, goal.disturbed) for goal in goals] == [(False, False), (False, True)]
    assert not_slower("x", outcome(1.0, 0.999), 0, than=1).met


def test_the_same_code_runs_once() -> None:
    setting = Setting(1, 0.0, 0.0, 1, (), True, None, False)
    graph = imported(REDUCED["nasrnn"])
    again = finished(graph, whole(graph))
    variants = [Variant("a", graph), Variant("b", again), Variant("c", graph, keep_rows)]
    found = compare(variants, setting)
    assert found.slots == (0, 0, 0), "nothing in this network wishes for another layout"
    assert len(found.turns.seconds) == 2
    assert found.verdict(2) == "same code as 'a'"
    assert found.ratio(0, 2).middle == 1.0


def test_variants_that_compute_something_else_are_refused() -> None:
    setting = Setting(1, 0.0, 0.0, 1, (), True, None, False)
    graph = imported(partial(residual_module, image=6, cin=4, cout=4))
    (y,) = graph.outputs
    doubled = Graph(graph.inputs, apply(REGISTRY["add"](), y, y), graph.output_names)
    with pytest.raises(SystemExit, match="'b' is off by"):
        compare([Variant("a", graph), Variant("b", doubled)], setting)


@pytest.mark.parametrize("seed", [0, 1])
def test_intervals_hold_the_median(seed: int) -> None:
    values: Array = np.random.default_rng(seed).lognormal(0.0, 0.2, 200)
    found = bootstrapped(values)
    assert found.low < found.middle == np.median(values) < found.high
    assert found.low < 1.0 < found.high


# -------------------------------------------------------------------------------------- layouts
@pytest.mark.parametrize("name", ["squeezenet", "resnext50", "bert_base"])
def test_networks_in_rows_compute_the_same(name: str) -> None:
    graph = imported(REDUCED[name])
    inputs = random_inputs(graph)
    expected = interpret(graph, inputs)
    for got, want in zip(built_with(graph, 2, keep_rows)(inputs), expected, strict=True):
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    assert not keep_rows(graph, {}).inner
    assert bool(choose_layouts(graph).inner) == (name != "bert_base")


# --------------------------------------------------------------------------------------- drawing
def test_bars_have_values_intervals_and_notes() -> None:
    frame = Frame("A < B & C", "what", "seconds", ("a note",))
    series = [Bars("expected", [1.0, None]), Bars("measured", [2.0, 4.0], [(1.5, 2.5), None])]
    picture = bar_chart(frame, ["first", "second one"], series)
    said = texts(picture)
    wanted = {"A < B & C", "what", "seconds", "expected", "measured", "a note", "none", "2", "4"}
    assert wanted <= set(said)
    bars = [e for e in ET.fromstring(picture).iter(f"{SVG}rect") if float(e.get("x", "0")) > 0]
    heights = [float(e.get("height", "0")) for e in bars if float(e.get("height", "0")) > 12]
    assert len(heights) == 3
    assert heights[2] == pytest.approx(2 * heights[1], abs=0.2)


def test_lines_that_last_until_the_next_point() -> None:
    frame = Frame("t", "x", "y")
    points = [(0.0, 3.0), (1.0, 2.0), (4.0, 1.0)]
    stepped = ET.fromstring(line_chart(frame, [Line("a", points, steps=True)]))
    ways = [e.get("d", "") for e in stepped.iter(f"{SVG}path")]
    assert len(re.findall("[ML]", ways[-1])) == 5
    flat = line_chart(frame, [Line("flat", [(1.0, 2.0)]), Line("none", [])])
    assert "flat" in texts(flat)


def test_heat_maps_are_darker_where_there_is_more() -> None:
    picture = heat_map(Frame("t", "n", "r"), ["r1"], ["c1", "c2"], [["", "7"]], [[0.0, 1.0]])
    fills = [e.get("fill") for e in ET.fromstring(picture).iter(f"{SVG}rect")][1:]
    assert fills == ["#f3f3f3", "#1f4e79"]
    assert {"r1", "c1", "c2", "7"} <= set(texts(picture))
    assert ET.fromstring(heat_map(Frame("t", "n", "r"), [], [], [], [])) is not None


@pytest.mark.parametrize("high", [0.003, 1.0, 7.0, 123.0, 9.9e5])
def test_ticks_are_few_and_inside(high: float) -> None:
    found = ticks(0.0, high)
    assert 3 <= len(found) <= 8
    assert found[0] == 0.0
    assert found[-1] <= high * (1 + 1e-9)
