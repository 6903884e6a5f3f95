"""Substitutions and layouts, alone, one after the other, and together (TASO, SOSP'19, section 7).

Layouts follow from the graph (`choose_layouts`), so the search sees them in its prices; here it
also runs with prices of graphs whose values all lie in rows.
"""

from __future__ import annotations

from experiments.compare import Variant, not_slower, show
from experiments.rewriting import searched
from experiments.setting import Setting
from harness.report import Report, say
from whet.tasks.layout import keep_rows

NETWORKS = ("bert_base", "nasrnn", "resnext50", "squeezenet")


def layouts(report: Report, setting: Setting) -> None:
    """Four ways to optimize a network, against neither, in one run."""
    for name, graph in setting.networks(NETWORKS).items():
        say(f"searching {name}")
        in_rows = searched(graph, setting.threads, setting.seconds, keep_rows)
        together = searched(graph, setting.threads, setting.seconds)
        variants = [
            Variant("neither", graph, keep_rows),
            Variant("substitutions only", in_rows, keep_rows),
            Variant("layouts only", graph),
            Variant("one after the other", in_rows),
            Variant("joint", together),
        ]
        title = f"{name}: substitutions and layouts"
        found = show(report, setting, f"layouts_{name}", title, "what is optimized", variants)
        joint = len(variants) - 1
        report.goals += [not_slower(name, found, joint, than=n) for n in range(joint)]
