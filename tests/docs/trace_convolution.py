"""The way of one convolution: the functions of whet that a compile and a call enter.

python tests/docs/trace_convolution.py FOLDER   ->   "file function" in order of first entry

It needs a process of its own: what an earlier compile has loaded or remembered is not entered
again.  FOLDER, empty or not there, is for the model, the cache and the records.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

X, Y, W = (1, 3, 16, 16), (1, 128, 16, 16), (128, 3, 3, 3)
"""Of shapes like these, one kernel that converts layouts on its way is cheaper than three by about
a third on every preset, and other sketches are far behind: the way does not hang on the machine."""


def save_model(path: Path) -> None:
    """A 3x3 convolution with a bias and a ReLU."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal(W).astype(np.float32),
        "b": rng.standard_normal(W[0]).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {"x": X, "y": Y}.items()
    )
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "convolution", [x], [y], stored)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def entered(folder: Path) -> list[tuple[str, str]]:
    """File and qualified name of all functions, in the order in which they are first entered."""
    import whet

    home = Path(whet.__file__).resolve().parent.parent
    model = folder / "model.onnx"
    save_model(model)
    x = np.ones(X, np.float32)
    seen: dict[CodeType, None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.setdefault(frame.f_code)

    sys.setprofile(watch)
    try:
        whet.compile(model)(x)
    finally:
        sys.setprofile(None)
    found: dict[tuple[str, str], None] = {}
    for code in seen:
        path = Path(code.co_filename)
        if code.co_flags & inspect.CO_OPTIMIZED and path.is_relative_to(home / "whet"):
            found.setdefault((path.relative_to(home).as_posix(), code.co_qualname))
    return list(found)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "WHET_CACHE_DIR": str(place / "cache"),
        "WHET_DB_PATH": str(place / "records.db"),
        "WHET_CALIBRATE": "0",
        "WHET_STRICT": "1",
        # With more, the code of the pool of threads is compiled and loaded first.
        "WHET_THREADS": "1",
    }
    for file, function in entered(place):
        print(file, function)
