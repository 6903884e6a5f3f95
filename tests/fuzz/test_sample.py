"""A sample of random graphs on all targets; `make fuzz-graphs` runs many more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GRAPHS = 36


def test_random_graphs_are_right_on_every_target(tmp_path: Path) -> None:
    command = [sys.executable, "tools/fuzz_graphs.py", "--count", str(GRAPHS), "--seed", "2",
               "--jobs", "1", "--shrink", "0", "--out", str(tmp_path)]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "summary.txt" in {p.name for p in tmp_path.iterdir()}
