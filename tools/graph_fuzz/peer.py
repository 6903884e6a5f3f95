"""ONNX Runtime without rewrites, where it is installed: a second opinion on what nodes mean."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from tools.graph_fuzz.case import Case
from whet.core.types import Array

OTHERWISE = {
    "InstanceNormalization": "it subtracts the mean last, and loses digits where that is large",
    "ReduceProd": "of integers that do not fit it gives the largest",
    "Softplus": "as a gate's function it is infinite for large numbers",
    "MaxUnpool": "it counts places in the shape that is asked for, not in that of the window",
}
"""Operators and functions of gates that it computes otherwise, and how."""
AVAILABLE = importlib.util.find_spec("onnxruntime") is not None


class NoAnswer(Exception):  # noqa: N818 - no error of ours
    """The peer cannot run the model; says why."""


def peer_results(case: Case) -> tuple[Array, ...]:
    """What ONNX Runtime gives."""
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    for node in case.model.graph.node:
        for name in (node.op_type, *(t.decode() for a in node.attribute for t in a.strings)):
            if name in OTHERWISE:
                raise NoAnswer(f"{name}: {OTHERWISE[name]}")
    try:
        session = ort.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        wanted = {i.name for i in session.get_inputs()}
        given = {n: a for n, a in case.inputs.items() if n in wanted}
        return tuple(session.run(None, given))
    except Exception as error:  # what it throws has no common base
        raise NoAnswer(str(error).split("\n")[0][:160]) from error
