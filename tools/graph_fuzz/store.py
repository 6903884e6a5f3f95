"""Failures kept as folders: the small case, the original, what happened, how to see it again."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.graph_fuzz.campaign import run_alone
from tools.graph_fuzz.case import Case, load_case, save_case
from tools.graph_fuzz.trial import Outcome

SCRIPT = '''"""{title}

Run from the root of the repository:  .venv/bin/python {name}
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))

from tools.graph_fuzz.store import replay

sys.exit(replay(Path(__file__).parent))
'''


def store_failure(folder: Path, original: Case, case: Case, outcome: Outcome, title: str) -> None:
    """Writes a failure; `case` is the smallest one that shows it."""
    save_case(case, folder)
    save_case(original, folder / "original")
    (folder / "report.txt").write_text(f"{title}\n{outcome.kind}: {outcome.detail}\n")
    script = SCRIPT.format(title=f"{outcome.kind}: {title}", name=(folder / "reproduce.py"))
    (folder / "reproduce.py").write_text(script)


def replay(folder: Path) -> int:
    """Runs a stored case and says what happens; 1 if it fails still."""
    case = load_case(folder)
    outcome = dict(run_alone([case], peer=True))[0]
    print((folder / "model.txt").read_text())
    print(f"{case.variant}\n{outcome.kind}: {outcome.detail}", file=sys.stdout)
    return int(outcome.failed)
