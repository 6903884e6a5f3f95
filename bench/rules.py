"""Finding and proving rewrite rules: how long, how much memory, how many graphs.

    python bench/rules.py --json bench/results/rules.json           # everything, about 50 minutes
    python bench/rules.py --only generate-4-ten proofs              # some rows

Every row is a process of its own with its workers; memory is the sum over all of them, sampled
from /proc ten times a second.  A first process compiles the inner loops, which is not counted.
The time on the processor is given too: on a busy machine the time on the wall says little.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.report import Goal, Report, number, say, settings_of
from whet.core.executor import Executor, LocalProcesses, Serial

Figures = dict[str, Any]
MUTANTS = 1000
SAMPLE_SECONDS = 0.1
GIB = 2**30


# ------------------------------------------------------------------------------- what is measured
def workers_of(count: int) -> Executor:
    return Serial() if count == 1 else LocalProcesses(count)


def generation(pool: str, size: int) -> Callable[[int], Figures]:
    """Graphs, equal pairs and renaming over a pool."""

    def run(workers: int) -> Figures:
        from whet.superopt.generate.pools import POOLS
        from whet.superopt.prune.search import generate
        from whet.superopt.prune.terms import Lexicon

        found = generate(
            POOLS[pool], size, Lexicon(), executor=workers_of(workers), threads=workers
        )
        return {
            "graphs": sum(c.sequences for c in found.counts),
            "walked": sum(c.visited for c in found.counts),
            "pairs": sum(c.pairs for c in found.counts),
            "equations": len(found.found),
        }

    return run


def pipeline(size: int, seed: int, workers: int, folder: Path) -> Figures:
    """The command that finds, prunes, proves and stores rules."""
    command = [sys.executable, "-m", "whet", "rules", "generate", "--size", str(size),
               "--seed", str(seed), "--workers", str(workers), "--write", str(folder), "--json",
               "--quiet"]  # fmt: skip
    document = json.loads(subprocess.check_output(command))
    return {"graphs": sum(row["sequences"] for row in document["funnel"]), **document["outcomes"]}


def whole_pipeline(size: int) -> Callable[[int], Figures]:
    def run(workers: int) -> Figures:
        with tempfile.TemporaryDirectory() as folder:
            return pipeline(size, 0, workers, Path(folder))

    return run


def repeated(workers: int) -> Figures:
    """The pipeline with a seed twice, and with another: equal files, and an equal set."""
    from whet.superopt.rules.files import load_folder

    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / name for name in ("first", "again", "other")]
        for path, seed in zip(folders, (0, 0, 1)):
            pipeline(3, seed, workers, path)
        files = [{p.name: p.read_bytes() for p in path.iterdir()} for path in folders]
        sets = [{(r.lhs, r.rhs, r.when) for r in load_folder(path)} for path in folders]
    return {"rules": len(sets[0]), "same_files": int(files[0] == files[1]),
            "same_set": int(sets[0] == sets[2]), "differ": len(sets[0] ^ sets[2])}  # fmt: skip


def proofs(workers: int) -> Figures:
    """Z3's proofs of all shipped rules, in one process."""
    from whet.superopt.rules.files import shipped
    from whet.superopt.verify.gates import claim, shared_prover
    from whet.superopt.verify.identity import check_identity

    rules = shipped()
    claims = [claim(r) for r in rules]
    # The prover takes its facts about extents from shapes that fit.
    shapes = [check_identity(c, 0).at for c in claims]
    start = time.perf_counter()
    prover = shared_prover()
    proved = sum(prover.prove(c, at).proved for c, at in zip(claims, shapes))
    return {"rules": len(rules), "proved": proved, "seconds": time.perf_counter() - start}


def all_gates(workers: int) -> Figures:
    """Every gate on all shipped rules."""
    from whet.superopt.rules.files import shipped
    from whet.superopt.verify.gates import verify_all

    reports = verify_all(shipped(certified=True), 0, workers_of(workers))
    return {"rules": len(reports), "proved": sum(r.outcome == "proved" for r in reports)}


def mutants(workers: int) -> Figures:
    """Rules made false, and which gates notice."""
    from whet.superopt.rules.files import shipped
    from whet.superopt.verify.mutants import GATES, find_and_judge, tally

    kills = find_and_judge(shipped(), MUTANTS, 0, workers_of(workers))
    return {
        "mutants": len(kills),
        **{gate: sum(getattr(k, gate) for k in kills) for gate in GATES},
        "passed": sum(k.passed for k in kills),
        "table": tally(kills),
    }


ROWS: dict[str, Callable[[int], Figures]] = {
    "generate-4-ten": generation("ten", 4),
    "generate-4-twenty": generation("twenty", 4),
    "generate-5-ten": generation("ten", 5),
    "pipeline-3": whole_pipeline(3),
    "pipeline-4": whole_pipeline(4),
    "seeds": repeated,
    "proofs": proofs,
    "gates": all_gates,
    "mutants": mutants,
}


# -------------------------------------------------------------------------------------- measuring
@dataclass(frozen=True, slots=True)
class Cost:
    """What a row cost, its workers included."""

    wall_seconds: float
    processor_seconds: float
    peak_bytes: int


def resident_bytes(root: int) -> int:
    """The memory of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            size = int((entry / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        pages[int(entry.name)] = size
    total, open_ = 0, [root]
    while open_:
        process = open_.pop()
        total += pages.get(process, 0)
        open_ += children.get(process, [])
    return total * os.sysconf("SC_PAGE_SIZE")


def in_a_process(row: str, workers: int) -> tuple[Figures, Cost]:
    """Run a row in a process of its own."""
    command = [sys.executable, __file__, "--child", row, "--workers", str(workers)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak, ended = 0, threading.Event()

    def sample() -> None:
        nonlocal peak
        while not ended.wait(SAMPLE_SECONDS):
            peak = max(peak, resident_bytes(process.pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    output, _ = process.communicate()
    wall = time.perf_counter() - start
    ended.set()
    sampler.join()
    if process.returncode:
        raise SystemExit(f"{row} failed with exit code {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(output), Cost(wall, used, peak)


# -------------------------------------------------------------------------------------- reporting
WALL_BOUNDS = {"generate-4-ten": 30, "generate-4-twenty": 240, "generate-5-ten": 900,
               "pipeline-3": 60, "pipeline-4": 1800}  # fmt: skip
MEMORY_BOUNDS = {"generate-4-ten": 3, "generate-5-ten": 12}


def goals_of(row: str, figures: Figures, cost: Cost) -> list[Goal]:
    found = []
    if row in WALL_BOUNDS:
        found.append(Goal(f"{row}: seconds", cost.wall_seconds, WALL_BOUNDS[row], at_least=False))
    if row in MEMORY_BOUNDS:
        found.append(Goal(f"{row}: GiB", cost.peak_bytes / GIB, MEMORY_BOUNDS[row], at_least=False))
    if row == "generate-4-ten":
        found.append(Goal(f"{row}: raw graphs", figures["graphs"], 66e6))
    if row == "proofs":
        found.append(Goal(f"{row}: seconds", figures["seconds"], 60, at_least=False))
        found.append(Goal(f"{row}: proved", figures["proved"], figures["rules"]))
    if row == "gates":
        found.append(Goal(f"{row}: proved", figures["proved"], figures["rules"]))
    if row == "mutants":
        found.append(Goal(f"{row}: how many", figures["mutants"], MUTANTS))
        found.append(Goal(f"{row}: passed all gates", figures["passed"], 0, at_least=False))
    if row == "seeds":
        found.append(Goal("same files from the same seed", figures["same_files"], 1))
        found.append(Goal("same rules from another seed", figures["same_set"], 1))
    return found


def told(figures: Figures) -> str:
    shown = {k: v for k, v in figures.items() if k not in ("graphs", "table")}
    return ", ".join(f"{k.replace('_', ' ')} {number_or_count(v)}" for k, v in shown.items())


def number_or_count(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else number(value)


def report(chosen: Sequence[str], arguments: argparse.Namespace) -> Report:
    made = Report("Finding and proving rules", settings_of(arguments))
    say("compiling the inner loops")
    in_a_process("compile", arguments.workers)
    rows = []
    for row in chosen:
        say(row)
        figures, cost = in_a_process(row, arguments.workers)
        made.rows.append({"row": row, "figures": figures, **dataclasses.asdict(cost)})
        made.goals += goals_of(row, figures, cost)
        graphs = f"{figures['graphs']:,}" if "graphs" in figures else "-"
        costs = (cost.wall_seconds, cost.processor_seconds, cost.peak_bytes / GIB)
        rows.append([row, *map(number, costs), graphs, told(figures)])
        say("  " + ", ".join(rows[-1][1:]))
        if "table" in figures:
            header = ("change", "mutants", "prover", "identity", "bounded", "passed all")
            made.add_table("Mutants that each gate notices", header, figures["table"])
    header = ("row", "wall s", "processor s", "peak GiB", "raw graphs", "found")
    made.add_table("Cost", header, rows)
    made.tables.reverse()
    made.notes.append("raw graphs: orders in which graphs can be built up, what TASO enumerates; "
                      "TASO's own generator does about 105,000 a second")  # fmt: skip
    return made


def main() -> None:
    first, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), help="some rows")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--json", type=Path, metavar="OUT",
                        help="store the figures here, and the tables beside it (.md)")  # fmt: skip
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        rows = ROWS | {"compile": generation("ten", 2)}
        print(json.dumps(rows[arguments.child](arguments.workers)))
        return
    report(arguments.only, arguments).finish(arguments.json)


if __name__ == "__main__":
    main()
