"""Substitutions and layouts, alone, one after the other, and together (TASO, SOSP'19, section 7).

Layouts follow from the graph (`choose_layouts`), so the search sees them in its prices; here it
also runs with prices of graphs whose values all lie in rows.
"""

from __future__ import annotations

from experiments.compare import Variant, not_slower, show
from experiments.rewriting import searched
from experiments.setting import Setting
from harness.report import Report, say
from whet.tasks.layout import choose_layouts, keep_rows

NETWORKS = ("bert_base", "nasrnn", "resnext50", "squeezenet")


def layouts(report: Report, setting: Setting) -> None:
    """Four ways to optimize a network, against neither, in one run."""
    for name, graph in setting.networks(NETWORKS).items():
        say(f"searching {name}")
        for either in (keep_rows, choose_layouts):  # so that both find the same things priced
            searched(graph, setting.threads, setting.seconds, either)
        in_rows = searched(graph, setting.threads, setting.seconds, keep_rows)
        together = searched(graph, setting.threads, setting.seconds)
        variants = [
            Variant("neither", graph, keep_rows),
            Variant("substitutions only", in_rows.graph, keep_rows),
            Variant("layouts only", graph),
            Variant("one after the other", in_rows.graph),
            Variant("joint", together.graph),
        ]
        title = f"{name}: substitutions and layouts"
        notes = (f"Search in rows: {in_rows}. Joint search: {together}.",)
        if in_rows.cut_off or together.cut_off:
            report.notes.append(f"layouts, {name}: a search was cut off, so that the graphs that "
                                "it would have found later are not compared")  # fmt: skip
        found = show(
            report, setting, f"layouts_{name}", title, "what is optimized", variants, notes
        )
        joint = len(variants) - 1
        report.goals += [not_slower(name, found, joint, than=n) for n in range(joint)]
