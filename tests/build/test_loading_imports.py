"""What is loaded from the cache asks for nothing of the compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LOADING = """
import sys
from pathlib import Path
import numpy as np
from whet.build.native import build
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.cpu import detect
from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.ops.matmul import MatMul

b = GraphBuilder()
x = b.input("x", TensorType((2, 3), f32))
y = b.one(MatMul(), x, b.constant(np.ones((3, 4), np.float32)))
f = build(Graph((x,), (y,), ("y",)), detect(), 1, FileCache(CacheConfig(dir=Path(sys.argv[1]))))
assert (f([np.ones((2, 3), np.float32)])[0] == 3).all()
compiler = ("whet.schedule", "whet.tasks.groups", "whet.build.calls", "whet.codegen.llvm.emit")
print([name for name in sys.modules if name.startswith(compiler)])
"""


def test_a_cached_model_imports_no_schedules(tmp_path: Path) -> None:
    runs = [
        subprocess.run([sys.executable, "-c", LOADING, tmp_path], text=True, capture_output=True)
        for _ in range(2)
    ]
    assert [done.returncode for done in runs] == [0, 0], [done.stderr for done in runs]
    assert "whet.codegen.llvm.emit" in runs[0].stdout
    assert runs[1].stdout.strip() == "[]"
