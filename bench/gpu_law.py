"""The price of contractions on GPUs, fitted to measured kernels and judged by layers left out.

    python bench/gpu_law.py KERNELS.jsonl.xz OWN.jsonl.xz --json bench/results/gpu_law.json [--ship]

Fits the law of every leaf (`whet/schedule/families/gpu_contraction/law.py`) and grows the trees
that correct it.  `harness/gpu_kernels.py` says what files of kernels hold: those of others, and
whet's own (`gpu_layers.py --kernels`), which are judged apart.  Kernels on threads
are judged, and their law is fitted, as whet launches them: one when the other has ended.  Those on
tensor cores are judged by launches before that, and fitted to both.

Every figure is of layers that neither the law nor the trees had seen: layers of equal shape are
left out together.  Registers are estimated from the tiles of threads and warps, as whet estimates
its own.  *First* is how much longer than the best measured kernel of the layer the one takes that
is ranked first, *best of 8* the same of the fastest among the first eight; among all measured
kernels, and among those that whet's own space offers for the layer.

`--ship` writes the trees into the package; the laws go into `law.py` by hand, and the report says
where that has others.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.gpu_fit import LAUNCHES, Model, fit
from harness.gpu_kernels import LEAVES, TARGET, Layer, form_of, read_kernels
from harness.report import ABSENT, Goal, Report, say
from whet.core.types import Array
from whet.schedule.families.gpu_contraction import correction as shipped
from whet.schedule.families.gpu_contraction.law import LAWS
from whet.schedule.families.gpu_contraction.match import Leaf
from whet.schedule.families.gpu_contraction.price import gpu_costs
from whet.schedule.families.gpu_contraction.space import HOLES, gpu_holes

TOP = 8
WANTED = 3.0
"""Percent that the best of the first eight may be behind, in the mean."""
TAUGHT = ("ResNet-50", "BERT-base")
"""Networks of which many kernels of every layer were measured; of others at most eight."""
RANKINGS = ("law", "law and trees")
SMALLEST = 16
"""Rows and columns of a tile on tensor cores.  Smaller products are other work, mostly, and would
make trees believe that they know everything between them and the rest."""
FEWEST = 4
"""Kernels of a layer between which there is something to choose."""


# ------------------------------------------------------------------------------------- judging
@dataclass(frozen=True)
class Verdict:
    """How far behind the best kernel of a layer the first ones of a ranking are, as ratios."""

    first: float
    best_of_8: float


@dataclass(frozen=True)
class Judged:
    """A ranking of some kernels of a layer, by a model of other layers."""

    leaf: str
    layer: str
    network: str
    ranking: str
    among: str
    verdict: Verdict

    def row(self) -> dict[str, Any]:
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k != "verdict"}
        return fields | dataclasses.asdict(self.verdict)


def is_tile(layer: Layer) -> bool:
    """Whether a layer fills a tile of the smallest size."""
    return min(layer.shape.rows, layer.shape.columns) >= SMALLEST


def verdict(expected: Array, times: Array, among: Array) -> Verdict | None:
    """None where there is nothing to choose from."""
    rows = np.flatnonzero(among)
    if not len(rows):
        return None
    order = rows[np.argsort(expected[rows], kind="stable")]
    best = float(times[rows].min())
    return Verdict(float(times[order[0]]) / best, float(times[order[:TOP]].min()) / best)


def judged(model: Model, layer: Layer) -> Iterator[Judged]:
    """By the law and with trees, among all kernels and among those that whet offers; whet's own are
    among those that were ranked first when they were measured."""
    launch = LAUNCHES[model.leaf.name][-1]
    layer = layer.measured(launch)
    if len(layer) < FEWEST:
        return
    times, every = layer.times[launch], np.ones(len(layer), bool)
    choices = {"own": every} if layer.is_own else {"all": every, "offered": layer.offered()}
    for ranking, expected in zip(RANKINGS, (model.by_law(layer), model.expected(layer))):
        for among, mask in choices.items():
            found = verdict(expected, times, mask)
            if found is not None:
                yield Judged(
                    layer.leaf.name, layer.name, layer.network, ranking, among, found
                )  # fmt: skip


def folds(layers: Sequence[Layer]) -> Iterator[tuple[list[Layer], list[Layer]]]:
    """Layers to learn from and layers to judge by: all of one shape."""
    for shape in dict.fromkeys(layer.shape for layer in layers):
        yield (
            [layer for layer in layers if layer.shape != shape],
            [layer for layer in layers if layer.shape == shape],
        )


def layers_left_out(leaf: Leaf, layers: Sequence[Layer]) -> list[Judged]:
    """Every layer by a model of all others."""
    return [
        found
        for taught, unseen in folds(layers)
        for model in [fit(leaf, taught)]
        for layer in unseen
        for found in judged(model, layer)
    ]


def networks_left_out(leaf: Leaf, layers: Sequence[Layer], whole: Model) -> list[Judged]:
    """BERT by a model of ResNet-50, and MobileNet's few kernels by a model of both."""
    resnet = [layer for layer in layers if layer.network == "ResNet-50"]
    models = {"BERT-base": fit(leaf, resnet), "MobileNet-V2": whole}
    return [
        found
        for layer in layers if layer.network in models
        for found in judged(models[layer.network], layer)
        if found.among == "all"
    ]  # fmt: skip


def behind(ratios: Sequence[float]) -> tuple[float, float]:
    """Percent behind the best, in the geometric mean and at worst."""
    return 100 * (float(np.exp(np.mean(np.log(ratios)))) - 1), 100 * (max(ratios) - 1)


def choices(leaf: Leaf, layers: Sequence[Layer]) -> Iterator[dict[str, Any]]:
    """What whet now takes first of its own space, beside the best kernel that was measured."""
    for layer in layers:
        times, form = layer.times[LAUNCHES[leaf.name][-1]], form_of(leaf, layer.shape)
        space = gpu_holes(form, TARGET)
        first = int(np.argmin(gpu_costs(form, TARGET, space)))
        sizes = [int(space[hole][first]) for hole in HOLES[:-1]]
        same = np.flatnonzero((layer.sizes == sizes).all(axis=1))
        best = int(np.argmin(times))
        yield {
            "leaf": leaf.name, "layer": layer.name, "shape": dataclasses.astuple(layer.shape),
            "chosen": sizes, "best": layer.sizes[best].tolist(),
            "chosen_us": float(times[same[0]]) / 1000 if len(same) else None,
            "best_us": float(times[best]) / 1000,
        }  # fmt: skip


# -------------------------------------------------------------------------------------- report
def add_layers(report: Report, found: Sequence[Judged]) -> None:
    table = []
    for leaf in LAUNCHES:
        for ranking in RANKINGS:
            cells = []
            for among in ("all", "offered", "own"):
                mine = [j.verdict for j in found
                        if (j.leaf, j.ranking, j.among) == (leaf, ranking, among)]  # fmt: skip
                if not mine:
                    cells += [ABSENT] * 2
                    continue
                for figure in ("first", "best_of_8"):
                    mean, worst = behind([getattr(v, figure) for v in mine])
                    cells.append(f"{mean:.1f} ({worst:.0f})")
                    report.rows.append({
                        "leaf": leaf, "ranking": ranking, "among": among, "figure": figure,
                        "percent": mean, "worst_percent": worst, "layers": len(mine),
                    })  # fmt: skip
                    if (ranking, figure) == (RANKINGS[-1], "best_of_8"):
                        what = f"{leaf}, best of the first {TOP} among {among}, percent behind"
                        report.goals.append(Goal(what, round(mean, 2), WANTED, at_least=False))
            table.append([f"{leaf}, {ranking}", *cells])
    header = ("", "first", "best of 8", "first offered", "best of 8 offered", "first of own",
              "best of 8 of own")  # fmt: skip
    report.add_table("Percent behind the best, layers left out: mean (worst)", header, table)


def add_networks(report: Report, found: Sequence[Judged]) -> None:
    table = []
    for leaf, network in dict.fromkeys((j.leaf, j.network) for j in found):
        cells = []
        for ranking in RANKINGS:
            mine = [j.verdict for j in found
                    if (j.leaf, j.network, j.ranking) == (leaf, network, ranking)]  # fmt: skip
            for figure in ("first", "best_of_8"):
                mean, worst = behind([getattr(v, figure) for v in mine])
                known = figure == "first" or network in TAUGHT
                cells.append(f"{mean:.1f} ({worst:.0f})" if known else ABSENT)
        table.append([f"{leaf}, {network}", *cells])
    header = ("", "law, first", "law, best of 8", "with trees, first", "with trees, best of 8")
    report.add_table("Networks left out: BERT by ResNet-50, MobileNet-V2 by both", header, table)


def add_choices(report: Report, rows: Sequence[dict[str, Any]]) -> None:
    for leaf in LAUNCHES:
        table = []
        for row in (row for row in rows if row["leaf"] == leaf):
            took = row["chosen_us"]
            table.append([
                f"{row['layer']} {'x'.join(map(str, row['shape']))}", tile(row["chosen"]),
                ABSENT if took is None else f"{took:.2f}", tile(row["best"]),
                f"{row['best_us']:.2f}",
            ])  # fmt: skip
        title = f"{leaf}: tile/tile of a thread or warp, depth, stages, splits"
        header = ("layer", "first of whet's space", "us", "best measured", "us")
        report.add_table(title, header, table)


def tile(sizes: Sequence[int]) -> str:
    bm, bn, tm, tn, bk, stages, splits = sizes
    return f"{bm}x{bn}/{tm}x{tn} k{bk} s{stages} /{splits}"


def ship(model: Model) -> None:
    """Writes the trees where whet reads them."""
    c = model.correction
    lines = [
        "least " + " ".join(map(str, c.least)),
        "most " + " ".join(map(str, c.most)),
        f"limit {c.limit:g}",
        "columns " + " ".join(c.trees.columns),
        *(f"tree {line}" for line in model.lines),
    ]
    folder = Path(shipped.__file__).parent / "corrections"
    folder.mkdir(exist_ok=True)
    (folder / f"{model.leaf.name}.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    made = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("kernels", type=Path, nargs="+",
                      help="measured kernels, a JSON object in every line")  # fmt: skip
    made.add_argument("--json", type=Path, metavar="OUT")
    made.add_argument("--ship", action="store_true", help="write the trees into the package")
    given = made.parse_args()
    every = read_kernels(*given.kernels)
    laws: dict[str, dict[str, float]] = {}
    settings = {"kernels": [path.name for path in given.kernels], "laws": laws}
    report = Report("The law of contractions on GPUs", settings)
    report.notes.append("the kernels were measured on an NVIDIA H200, each behind itself")
    layers: list[Judged] = []
    networks: list[Judged] = []
    for leaf in LEAVES.values():
        mine = [x for x in every[leaf.name] if (x.is_own or x.network in TAUGHT) and is_tile(x)]
        whole = fit(leaf, mine)
        laws[leaf.name] = dataclasses.asdict(whole.law)
        say(f"{leaf.name}: {whole.law}")
        report.notes.append(f"{leaf.name}: {sum(map(len, mine))} kernels of {len(mine)} layers")
        if whole.law != LAWS[leaf.name]:
            report.notes.append(f"law.py has other constants for {leaf.name}: {whole.law}")
        if given.ship:
            ship(whole)
        layers += layers_left_out(leaf, mine)
        networks += networks_left_out(leaf, every[leaf.name], whole)
    add_layers(report, layers)
    add_networks(report, networks)
    chosen = [
        row
        for leaf in LEAVES.values()
        for row in choices(leaf, [x for x in every[leaf.name] if x.network in TAUGHT])
    ]
    add_choices(report, chosen)
    report.rows += [j.row() for j in (*layers, *networks)] + chosen
    report.finish(given.json)


if __name__ == "__main__":
    main()
