"""What `make demo` runs, and what it shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def test_the_demo_prints_its_table() -> None:
    found = subprocess.run(
        [sys.executable, str(DEMO), "--seconds", "0.2"], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    for row in ("nodes in the model", "median ms", "speed-up", "native"):
        assert row in found.stdout
