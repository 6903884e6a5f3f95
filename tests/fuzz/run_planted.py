"""Runs the fuzzer on planted bugs and prints what it finds, as JSON:

python tests/fuzz/run_planted.py [--shrink] [BUG ...]

It is a program of its own because workers are forked, which a process with threads must not do.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["WHET_CALIBRATE"] = "0"
os.environ["WHET_STRICT"] = "1"  # an unforeseen failure is seen as such
os.environ["WHET_DB_PATH"] = str(Path(tempfile.gettempdir()) / "whet-fuzz-has-no-records.db")

from tests.fuzz.planted import BUGS, Bug
from tools.graph_fuzz.campaign import Plan, looked_at_again, run_plan
from tools.graph_fuzz.case import Case, draw_variant
from tools.graph_fuzz.model import grow_model
from tools.graph_fuzz.shrink import Budget, shrink
from tools.graph_fuzz.trial import Outcome

SEED = 7
MOST = 40
"""Graphs within which a bug must be found."""


def make(bug: Bug, index: int) -> tuple[Case, Outcome]:
    """A small model of the bug's operators, in its style."""
    keys = [("", name) for name in bug.operators]
    styled = (g for n in count() for g in [grow_model(SEED, 1000 * index + n, keys)]
              if len(g.model.graph.node) <= 7 and bug.style in (None, g.style))  # fmt: skip
    grown = next(styled)
    variant = draw_variant(SEED, index, "cpu", grown.style, nodes=25)
    case = Case(grown.model, grown.inputs, replace(variant, way=bug.way or "plain"))
    return case, Outcome("ok", target="cpu", style=grown.style, nodes=case.size)


def hunt(bug: Bug, *, small: bool) -> dict[str, Any]:
    """How the bug shows first, after how many graphs, and how small it was made."""
    with bug.plant():
        plan = Plan(SEED, bug.first, MOST, "cpu", jobs=1, peer=False)
        for index, outcome in run_plan(plan, lambda n: make(bug, n)):
            if outcome.failed:
                case, _ = make(bug, index)
                outcome = looked_at_again(case, outcome)
                found: dict[str, Any] = {"kind": outcome.kind, "detail": outcome.detail}
                found["graphs"] = index + 1 - bug.first
                if small:
                    shrunk = shrink(case, outcome, Budget(trials=40))
                    found |= {"nodes": case.size, "left": shrunk.size}
                return found
    return {"kind": "none", "graphs": MOST}


def main() -> int:
    small = "--shrink" in sys.argv
    names = [a for a in sys.argv[1:] if a != "--shrink"] or list(BUGS)
    print(json.dumps({name: hunt(BUGS[name], small=small) for name in names}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
