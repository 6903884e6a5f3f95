"""The experiments of the TASO paper (SOSP'19) with whet: predicted, measured, drawn.

    python bench/paper.py --json bench/results/paper.json --pictures bench/results/pictures
    python bench/paper.py --part groups qkv --measure 2

    groups    3x3 convolutions of ResNeXt-50 with their 32 groups merged
    nasnet    a cell of NASNet-A as written, and rewrite by rewrite
    nasrnn    the products of a recurrent network merged over steps and over one input
    qkv       the three projections of BERT's attention as one
    resnet    a residual module, its 1x1 convolution enlarged and merged
    alpha     the best price over graphs and seconds, by alpha
    sizes     the best price with rules of up to 1, 2, 3, 4 operators
    heat      rules by network
    layouts   substitutions and layouts: alone, one after the other, joint
    axes      every value along each of its axes: what layouts chosen by price would save

Variants of one graph have default kernels and are called in turns, in an order that rotates;
medians and ratios have intervals of 95 %, by resampling rounds. `alpha`, `sizes`, `heat` and `axes`
measure nothing: they compare prices. Pictures say what pays on this machine and what does not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from experiments.axes import axes
from experiments.case_studies import groups, nasnet, qkv, recurrent, resnet
from experiments.heat import heat
from experiments.layouts import layouts
from experiments.searching import alpha, sizes
from experiments.setting import Setting, settings_from
from harness.report import Report, parser, settings_of
from whet.joint.superoptimize import STATES
from zoo.networks import BUILDERS

PARTS: Mapping[str, Callable[[Report, Setting], None]] = {
    "groups": groups,
    "nasnet": nasnet,
    "nasrnn": recurrent,
    "qkv": qkv,
    "resnet": resnet,
    "alpha": alpha,
    "sizes": sizes,
    "heat": heat,
    "layouts": layouts,
    "axes": axes,
}


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(2,))
    made.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    made.add_argument("--only", nargs="+", metavar="NETWORK", choices=list(BUILDERS),
                      help="of alpha, sizes, heat, layouts and axes")  # fmt: skip
    made.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw into this folder")
    made.add_argument("--seconds", type=float, default=10.0, help="of each search")
    made.add_argument(
        "--states", type=int, default=STATES, help="graphs per block, alpha and sizes"
    )
    made.add_argument("--measure", type=float, default=10.0, help="seconds of calls per comparison")
    made.add_argument("--reduced", action="store_true", help="networks in small, for tests")
    return made


def main() -> None:
    given = arguments().parse_args()
    report = Report("Experiments of the TASO paper", settings_of(given))
    for threads in given.threads:
        setting = settings_from(given, threads)
        for part in given.part:
            PARTS[part](report, setting)
    report.finish(given.json)


if __name__ == "__main__":
    main()
