"""What the compiler chooses and generates for a model, without running anything."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tools.kernel_replay.models import model_graph
from tools.kernel_replay.store import Kernel, Replay
from whet.build.views import KernelView, kernel_views
from whet.core.cpu import PRESETS
from whet.graph.graph import Graph
from whet.schedule.default import default_choice
from whet.tasks.steps import LoopStep


def record_models(
    names: list[str], targets: list[str], threads: int, folder: Path, jobs: int
) -> Iterator[tuple[str, list[Kernel]]]:
    """Stores the texts of all kernels; yields those of one model after the other."""
    with ProcessPoolExecutor(jobs) as pool:
        made = [pool.submit(record_model, name, targets, threads, folder) for name in names]
        yield from zip(names, (future.result() for future in made))


def record_model(name: str, targets: list[str], threads: int, folder: Path) -> list[Kernel]:
    """The kernels of a model on all targets."""
    graph = model_graph(name)
    return [k for t in targets for k in record_graph(graph, t, name, threads, Replay(folder))]


def record_graph(
    graph: Graph, target: str, model: str, threads: int, replay: Replay
) -> list[Kernel]:
    """The kernels of a graph in the order of their first call."""
    return [
        Kernel(target, model, view.names[0], len(view.names),
               {part: replay.keep(text) for part, text in texts(view).items()})
        for view in kernel_views(graph, PRESETS[target], threads)
    ]  # fmt: skip


def texts(view: KernelView) -> dict[str, str]:
    """The texts of a kernel by part."""
    if isinstance(view.step, LoopStep):
        task = candidate = view.task
    else:
        chosen = default_choice(view.step.task, view.target, view.threads)
        holes = "".join(f"{name} {value}\n" for name, value in chosen.holes.items())
        task, candidate = f"{view.step.task.key}\n{view.stages}", f"{chosen.sketch.name}\n{holes}"
    llvm = view.kernel.source.text
    return {"task": task, "candidate": candidate, "program": view.program, "llvm": llvm}
