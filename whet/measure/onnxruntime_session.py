"""Sessions of ONNX Runtime, which is optional: models as it would run them for a user."""

from __future__ import annotations

import importlib
from typing import Any

from whet.core.errors import fail


def peer_module(name: str) -> Any:
    """The package of another runtime.

    Raises: `WH3005` if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        fail("WH3005", f"{name} is not installed", str(error), hint=f"pip install {name}")


def open_session(model: str | bytes, threads: int, among_others: bool = False) -> Any:
    """A session on the CPU with all optimizations; `model` is a path, or the model itself.

    Threads of a session keep waiting for work after a call; among others, whose turn is next, they
    stop at its end.
    """
    ort = peer_module("onnxruntime")
    if hasattr(ort, "disable_telemetry_events"):
        ort.disable_telemetry_events()
    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    if among_others:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
