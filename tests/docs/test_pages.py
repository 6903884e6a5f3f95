"""The documentation agrees with the code: generated pages are current, examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def run(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_generated_pages_are_current() -> None:
    done = run("tools/generate_docs.py", "--check")
    assert done.returncode == 0, done.stderr


def python_blocks(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if python_blocks(p)], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page, run one after the other as one program."""
    done = run("-W", "error", "-c", python_blocks(page), folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("random", "chance instead of a policy"),
        ("limited space", "a space without register tiles"),
        ("no fine-tuning", "no fine-tuning"),
        ("beam", "beam search"),
    ],
)
def test_figures_of_the_ablation_are_those_of_its_file(variant: str, said: str) -> None:
    results = (ROOT / "bench" / "results" / "search_ablation.md").read_text()
    (row,) = (line for line in results.splitlines() if line.startswith(f"| {variant} "))
    figure = float(row.split("|")[-2])
    page = " ".join((ROOT / "docs" / "search-policies.md").read_text().split())
    assert f"{said} {figure:.2f}" in page
