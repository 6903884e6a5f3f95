"""Traces: text, JSON, replay, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.schedule.small_tasks import (
    TASKS,
    arrays_for,
    chain,
    check_native,
    check_program,
    matmul,
)
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.errors import ScheduleError
from whet.schedule.default import default_choice
from whet.schedule.space.registry import choices
from whet.schedule.space.trace import Hole, Trace, TransformStep, replay, replay_kernel, trace_of

TILED = Trace(
    (
        TransformStep("split", loop="i", factor=Hole("i.0"), tail="peel"),
        TransformStep("rewrite_layout", buffer="b", order=(1, 0, 2), splits=(1, Hole("j.0"))),
        TransformStep("split", loop="j", factor=Hole("j.0"), tail="perfect"),
        TransformStep("parallel", loop="io"),
    ),
    {"i.0": 4, "j.0": 2},
)


def test_text() -> None:
    assert str(TILED) == (
        "split(loop=i, factor=?i.0, tail=peel)\n"
        "rewrite_layout(buffer=b, order=(1, 0, 2), splits=(1, ?j.0))\n"
        "split(loop=j, factor=?j.0, tail=perfect)\n"
        "parallel(loop=io)\n"
        "where i.0 = 4, j.0 = 2"
    )


def test_json_round_trip() -> None:
    again = Trace.from_json(TILED.to_json())
    assert again == TILED
    task = matmul()
    assert replay(again, task) is replay(TILED, task)


def test_a_trace_without_steps_is_the_naive_program() -> None:
    task = chain()
    check_program(replay(Trace((), {}), task), task, arrays_for(task))


def test_holes_change_numbers_only() -> None:
    other = TILED.with_holes({"i.0": 3})
    assert other.steps == TILED.steps
    assert "for ii in 3" in str(replay(other, matmul()))


def test_packed_constants_are_bound() -> None:
    task = matmul()
    kernel = replay_kernel(TILED, task)
    assert [a.shape for a in kernel.arguments] == [(6, 5), (4, 5, 2)]
    check_native(kernel, task, arrays_for(task), HOST)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_sketches_are_traces_too(name: str) -> None:
    task = TASKS[name]()
    target = PRESETS["x86-64-v3"]
    for choice in choices(task, target, 1, "real"):
        trace = Trace.from_json(trace_of(choice).to_json())
        assert replay(trace, task, "k") is choice.kernel("k").program


def test_the_default_of_a_product_is_a_contraction() -> None:
    trace = trace_of(default_choice(matmul(64, 64, 64), PRESETS["x86-64-v3"], 1))
    assert trace.steps[0].kind == "contraction"
    assert {"mr", "nv", "lanes"} <= set(trace.holes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "this is not a trace: Expecting property name"),
        ("[]", "this is not a trace: "),
        ('{"version": 1, "steps": []}', "this is not a trace: 'holes'"),
        ('{"version": 1, "steps": [], "holes": {"a": true}}', "True is not an integer"),
        ('{"version": 1, "steps": [], "holes": {"a": 1.5}}', "1.5 is not an integer"),
        ('{"version": 2, "steps": [], "holes": {}}', "the trace has version 2, not 1"),
        ('{"version": 1, "steps": [{"kind": "split", "with": {"loop": {}}}], "holes": {}}',
         "{} is not an integer"),
    ],
)  # fmt: skip
def test_damaged_traces(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match="WH2120") as caught:
        Trace.from_json(text)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("trace", "code", "message"),
    [
        (Trace((TransformStep("melt"),), {}), "WH2121", "there is no schedule step 'melt'"),
        (Trace((TransformStep("unroll", loop=Hole("x")),), {}), "WH2120",
         "the trace has no number for its hole 'x'"),
        (Trace((TransformStep("split", loop="i"),), {}), "WH2120",
         "step 'split': missing a required argument: 'factor'"),
        (Trace((TransformStep("unroll", loop="z"),), {}), "WH2101", "there is no loop 'z'"),
        (Trace((TransformStep("rows", lanes=1, vectors=1, rows_per_step=1),), {}), "WH2120",
         "sketch 'rows' does not fit the task"),
        (Trace((TransformStep("rewrite_layout", buffer="a", order=(1, 0)),), {}), "WH2105",
         "'a' is not a constant"),
    ],
)  # fmt: skip
def test_traces_that_do_not_fit(trace: Trace, code: str, message: str) -> None:
    task = TASKS["argmax"]() if trace.steps[0].kind == "rows" else matmul()
    with pytest.raises(ScheduleError) as caught:
        replay(trace, task)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_errors_say_which_step() -> None:
    with pytest.raises(ScheduleError) as caught:
        replay(Trace((TILED.steps[0], TransformStep("unroll", loop="z")), TILED.holes), matmul())
    assert "in step 1 of the trace: unroll(loop=z)" in str(caught.value)


def test_json_is_plain() -> None:
    data = json.loads(TILED.to_json())
    assert data["steps"][0] == {
        "kind": "split",
        "with": {"loop": "i", "factor": {"hole": "i.0"}, "tail": "peel"},
    }
