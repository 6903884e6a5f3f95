"""Random candidates go through the measurer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "fuzz_candidates.py"


def test_none_is_wrong() -> None:
    command = [sys.executable, str(TOOL), "--candidates", "6", "--tasks", "1", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "0 wrong results accepted, 0 refused" in done.stdout
