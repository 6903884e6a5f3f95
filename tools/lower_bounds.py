"""Check that the oldest versions which pyproject.toml allows really work.

Makes a temporary environment, installs whet with every dependency at its lower bound, and
compiles and runs a small model there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SMOKE = """
import sys
import numpy as np
from onnx import TensorProto, helper
import whet

x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
w = helper.make_tensor("w", TensorProto.FLOAT, [3, 4], np.arange(12, dtype=np.float32))
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
model = helper.make_model(
    helper.make_graph(nodes, "smoke", [x], [y], [w]),
    opset_imports=[helper.make_opsetid("", 17)],
)
f = whet.compile(model)
data = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
expected = np.maximum(data @ np.arange(12, dtype=np.float32).reshape(3, 4), 0)
np.testing.assert_allclose(f(data), expected)
path = sys.argv[1]
f.save(path)
np.testing.assert_allclose(whet.load(path)(data), expected)
"""


def lower_bounds(requirements: list[str]) -> list[str]:
    """`numpy>=2.1` as `numpy==2.1`, for every requirement."""
    pinned = []
    for requirement in requirements:
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement)
        if match is None:
            raise SystemExit(f"{requirement} has no plain lower bound")
        pinned.append(f"{match[1]}=={match[2]}")
    return pinned


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = lower_bounds(project["dependencies"])
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *pinned, str(ROOT)], check=True)
        subprocess.run([python, "-c", SMOKE, f"{folder}/smoke.whet"], check=True, cwd=folder)
        subprocess.run([str(Path(folder) / "bin" / "whet"), "--version"], check=True, cwd=folder)
    sys.stdout.write(f"works with {', '.join(pinned)}\n")


main()
