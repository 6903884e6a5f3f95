"""What the compiler generates for all models of the benchmarks, to be compared between commits.

    python tools/replay.py write FOLDER [--only REGEX] [--targets NAME ...] [--threads 2] [--jobs 2]
    python tools/replay.py diff OLD NEW [--lines 40] [--most 20]
    python tools/replay.py since REVISION [--only REGEX] ...

`write` stores the task, the chosen candidate, the loop program and the LLVM module of every kernel
as text.  `since` writes one for a commit, by that commit's own tool in a checkout of its own, and
one for the working tree, and shows what has changed, kernel by kernel; it exits with 1 if anything
has.  Nothing is compiled to machine code or run, and nothing depends on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["WHET_DB_PATH"] = str(Path(tempfile.gettempdir()) / "whet-replay-has-no-records.db")

from tools.kernel_replay.compare import compare, described
from tools.kernel_replay.models import model_names
from tools.kernel_replay.record import record_models
from tools.kernel_replay.store import Replay
from whet.core.containers import usable_processors

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("x86-64-v3", "x86-64-v4", "aarch64-neon")
KEPT = ROOT / "build" / "replay"
"""Replays of commits are kept: a commit's is always the same."""


def write(given: argparse.Namespace, folder: Path) -> None:
    kernels = []
    names = model_names(given.only)
    for n, (name, found) in enumerate(
        record_models(names, given.targets, given.threads, folder, given.jobs)
    ):
        kernels += found
        print(f"[{n + 1}/{len(names)}] {name}: {len(found)} kernels", file=sys.stderr, flush=True)
    Replay(folder).write(kernels)


def show_diff(given: argparse.Namespace, old: Path, new: Path) -> int:
    before, after = Replay(old), Replay(new)
    found = compare(before, after)
    print("\n".join(described(found, before, after, given.lines, given.most)))
    return 0 if found.is_empty else 1


def since(given: argparse.Namespace) -> int:
    asked = ("git", "rev-parse", "--short=12", f"{given.revision}^{{commit}}")
    commit = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True)
    settings = [f"--threads={given.threads}", f"--jobs={given.jobs}", f"--only={given.only}",
                "--targets", *given.targets]  # fmt: skip
    name = "-".join([commit.stdout.strip(), given.only, str(given.threads), *given.targets])
    old = KEPT / "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    if not (old / "index.jsonl").exists():
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            git = ("git", "worktree")
            subprocess.run((*git, "add", "--detach", tree, given.revision), cwd=ROOT, check=True,
                           capture_output=True)  # fmt: skip
            try:
                if not (tree / "tools/replay.py").exists():
                    sys.exit(f"{given.revision} has no tools/replay.py to write its replay with")
                command = [sys.executable, tree / "tools/replay.py", "write", old, *settings]
                subprocess.run(command, cwd=tree, check=True, env=os.environ | {"PYTHONPATH": ""})
            finally:
                subprocess.run((*git, "remove", "--force", tree), cwd=ROOT, check=True)
    write(given, KEPT / "work")
    return show_diff(given, old, KEPT / "work")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing, showing = (
        argparse.ArgumentParser(add_help=False),
        argparse.ArgumentParser(add_help=False),
    )
    writing.add_argument("--only", default="", metavar="REGEX", help="models to replay")
    writing.add_argument("--targets", nargs="+", default=list(TARGETS), help="presets")
    writing.add_argument("--threads", type=int, default=2)
    writing.add_argument("--jobs", type=int, default=usable_processors())
    showing.add_argument("--lines", type=int, default=40, help="of a change")
    showing.add_argument("--most", type=int, default=20, help="changes that are shown")
    one = commands.add_parser("write", parents=[writing], help="store a replay")
    one.add_argument("folder", type=Path)
    two = commands.add_parser("diff", parents=[showing], help="compare two replays")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    three = commands.add_parser("since", parents=[writing, showing], help="compare with a commit")
    three.add_argument("revision")
    return parser


def main() -> int:
    given = arguments().parse_args()
    if given.command == "write":
        write(given, given.folder)
        return 0
    return since(given) if given.command == "since" else show_diff(given, given.old, given.new)


if __name__ == "__main__":
    sys.exit(main())
