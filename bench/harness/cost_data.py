"""Measured candidates of many tasks: what cost models are taught with and judged by.

Tasks come from networks and single operators; every third one, by its digest, is held out: no
model sees it before it is judged on it.  Candidates are chosen by chance, the sketch by the root
of how many it offers, so that large spaces do not crowd out small ones.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.report import say
from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.db.store import Database
from whet.frontend.onnx import import_model
from whet.graph.passes import optimize
from whet.joint.tuning import weighted_tasks
from whet.measure.cpu.measurer import Measurer
from whet.measure.records import record_of
from whet.measure.results import Candidate
from whet.schedule.families.family import Family
from whet.schedule.space.registry import SKETCHES
from whet.tasks.task import Task
from whet.tune.models.protocol import Batch, Trials
from zoo.networks import build_networks
from zoo.operators import cases

NETWORKS = ("resnet50", "mobilenet_v2", "dcgan", "resnext50", "squeezenet", "vit_tiny")
"""Those that are read quickly; the others' layers are much like theirs."""
SHORTEST, LONGEST = 4e-6, 6e-4
"""Tasks whose best draft, in seconds, is outside are left out: noise below, waiting above."""
FEWEST = 120
"""Candidates that a task must have: of fewer, chance would take nearly all."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A task with all of its candidates, one batch per sketch."""

    name: str
    task: Task
    batches: tuple[Batch, ...]

    @property
    def held_out(self) -> bool:
        return int(self.task.key[:8], 16) % 3 == 0

    @property
    def size(self) -> int:
        return sum(len(b) for b in self.batches)


def model_files(folder: Path, given: Sequence[Path]) -> list[tuple[str, Path]]:
    """The models of every folder's index.json; without folders, the zoo's, written to `folder`."""
    if not given:
        operators = cases(batches=(1,))
        networks = [*build_networks(folder, NETWORKS), *(c.written(folder) for c in operators)]
        return [(n.name, n.path) for n in networks]
    found = []
    for place in given:
        index = json.loads((place / "index.json").read_text())
        found += [(key, place / entry["file"]) for key, entry in index.items()]
    return found


def subjects_of(
    files: Sequence[tuple[str, Path]], target: CpuTarget, threads: int, most: int
) -> list[Subject]:  # fmt: skip
    """Up to so many tasks of the models that can be measured well, in an order that mixes them."""
    tasks: dict[str, tuple[str, Task]] = {}
    for name, path in files:
        graph = optimize(import_model(str(path)).graph)
        for weighted in weighted_tasks([graph], target, threads, "real"):
            tasks.setdefault(weighted.task.key, (f"{name}/{weighted.name}", weighted.task))
    found: list[Subject] = []
    for key in sorted(tasks):
        if len(found) == most:
            break
        subject = make_subject(*tasks[key], target, threads)
        best = min((float(b.draft.min()) for b in subject.batches), default=0.0)
        if SHORTEST <= best <= LONGEST and subject.size >= FEWEST:
            found.append(subject)
    return found


def make_subject(name: str, task: Task, target: CpuTarget, threads: int) -> Subject:
    batches = []
    for sketch in (s for s in SKETCHES.values() if s.machine == "cpu"):
        form = sketch.fits(task)
        if form is None:
            continue
        holes = sketch.space(form, target, threads)
        if len(next(iter(holes.values()))):
            batches.append(Batch(task, sketch, form, target, threads, holes))
    return Subject(name, task, tuple(batches))


def chance(subject: Subject, count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Distinct candidates as batch and row, always the same ones for a seed."""
    rng = np.random.default_rng([seed, int(subject.task.key[:8], 16)])
    sizes = np.array([len(b) for b in subject.batches])
    share = np.sqrt(sizes) / np.sqrt(sizes).sum()
    found: dict[tuple[int, int], None] = {}
    for _ in range(20 * count):
        if len(found) == count:
            break
        number = int(rng.choice(len(sizes), p=share))
        found[number, int(rng.integers(sizes[number]))] = None
    return list(found)


def favourite(subject: Subject) -> Candidate:
    """What the analytic model would choose."""
    best = min(range(len(subject.batches)), key=lambda n: float(subject.batches[n].draft.min()))
    return candidate(subject, (best, int(subject.batches[best].draft.argmin())))


def candidate(subject: Subject, place: tuple[int, int]) -> Candidate:
    batch, row = subject.batches[place[0]], place[1]
    return Candidate(batch.sketch.name, {h: int(c[row]) for h, c in batch.holes.items()})


def collect(
    subjects: Sequence[Subject], database: Database, seconds: float, counts: tuple[int, int]
) -> None:
    """Measure what is missing of every task: so many candidates of held-out ones, of others.

    What has been measured before is not measured again, so this may be stopped at any time.
    """
    end, trials, start = time.monotonic() + seconds, 0, time.monotonic()
    with Measurer() as measurer:
        for subject in subjects:
            if time.monotonic() > end:
                break
            first = subject.batches[0]
            known = {
                (r.sketch, tuple(sorted(r.holes.items())))
                for r in database.records(subject.task.key, first.target, first.threads)
            }
            wanted = [
                candidate(subject, place)
                for place in chance(subject, counts[0] if subject.held_out else counts[1])
            ]
            fresh = [c for c in wanted if (c.sketch, tuple(sorted(c.holes.items()))) not in known]
            if not fresh:
                continue
            # Not kept, for it is not there by chance: it says early what is hopelessly slow.
            measurer.measure(subject.task, [favourite(subject)], first.threads, first.target)
            measured = measurer.measure(subject.task, fresh, first.threads, first.target)
            database.add(record_of(m, subject.task, first.target, first.threads) for m in measured)
            trials += len(fresh)
            took = time.monotonic() - start
            say(f"{trials} trials, {trials / took:.1f}/s, {subject.name} {len(fresh)}")


def complete(batch: Batch, holes: Mapping[str, int]) -> Mapping[str, int] | None:
    """A record's holes; those that its sketch has got since have the value that changes nothing.

    None if the record has holes that the sketch has no more.
    """
    tiling = batch.sketch.tiling if isinstance(batch.sketch, Family) else None
    if tiling is not None and set(holes) <= {f.name for f in dataclasses.fields(tiling)}:
        holes = vars(tiling(**holes))
    return holes if set(batch.holes) <= set(holes) else None


def stored_trials(subjects: Sequence[Subject], database: Database) -> dict[str, list[Trials]]:
    """What the database knows of the tasks, by the tasks' keys; a batch per sketch."""
    found: dict[str, list[Trials]] = {}
    for subject in subjects:
        target, threads = subject.batches[0].target, subject.batches[0].threads
        by_sketch: dict[str, dict[tuple[int, ...], float]] = {}
        known = {b.sketch.name: b for b in subject.batches}
        for record in database.records(subject.task.key, target, threads):
            own = known.get(record.sketch)
            values = None if own is None else complete(own, record.holes)
            if own is None or values is None:
                continue
            row = tuple(values[h] for h in own.holes)
            seconds = np.inf if record.seconds is None else record.seconds
            by_sketch.setdefault(record.sketch, {})[row] = seconds
        for batch in subject.batches:
            rows = by_sketch.get(batch.sketch.name, {})
            if rows:
                table: Array = np.array(list(rows), np.int64)
                holes = dict(zip(batch.holes, table.T))
                few = Batch(batch.task, batch.sketch, batch.form, target, threads, holes)
                seconds = np.array(list(rows.values()))
                found.setdefault(subject.task.key, []).append(Trials(few, seconds))
    return found
