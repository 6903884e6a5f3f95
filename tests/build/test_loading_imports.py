"""What is loaded from the cache asks for nothing of the compiler."""

from __future__ import annotations

import subprocess
import sys

LOADING = """
import sys
import whet.build.native
print([name for name in sys.modules if name.startswith(("whet.schedule", "whet.tasks.groups"))])
"""


def test_a_cached_model_imports_no_schedules() -> None:
    done = subprocess.run([sys.executable, "-c", LOADING], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
