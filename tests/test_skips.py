"""What is skipped is listed with its reason, and only for want of a processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = """
import pytest
from tests.skips import ANOTHER_PROCESSOR

@pytest.mark.parametrize("n", range(3))
def test_far(n):
    pytest.skip(ANOTHER_PROCESSOR + "pdp-11")

@pytest.mark.skipif(True, reason=ANOTHER_PROCESSOR + "z80")
def test_further():
    pass

@pytest.mark.xfail
def test_known():
    raise ValueError
"""


def run_pytest(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The file alone, with the hooks and nothing of the project's configuration."""
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "tests.skips", "-p",
               "no:cacheprovider", *options, str(path)]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("options", [(), ("-q", "-n", "1")], ids=["here", "xdist"])
def test_reasons_are_counted(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "test_far.py"
    path.write_text(SKIPPED)
    done = run_pytest(path, *options)
    assert done.returncode == 0, done.stdout
    lines = list(filter(None, done.stdout.splitlines()))
    (title,) = [n for n, line in enumerate(lines) if line.strip("= ") == "skipped"]
    assert lines[title + 1 : title + 3] == [
        "     3  needs another processor: pdp-11", "     1  needs another processor: z80",
    ]  # fmt: skip


LAZY = {
    "test_called": "import pytest\ndef test_it():\n    pytest.skip('called')",
    "test_marked": "import pytest\n@pytest.mark.skip(reason='marked')\ndef test_it(): pass",
    "test_module": "import pytest\npytest.skip('module', allow_module_level=True)",
}


def test_other_reasons_are_failures(tmp_path: Path) -> None:
    for name, text in LAZY.items():
        (tmp_path / f"{name}.py").write_text(text)
    done = run_pytest(tmp_path, "--continue-on-collection-errors")
    assert "1 failed, 2 errors" in done.stdout
    for reason in ("called", "marked", "module"):
        assert f"skipped, and not for want of a processor: {reason}" in done.stdout
    assert "nothing was skipped" in done.stdout
