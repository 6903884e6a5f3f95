"""Rules by network: which the search takes, and which match (TASO, SOSP'19, section 7)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from experiments.setting import Setting
from harness.pictures import Frame, heat_map
from harness.report import Report, count, say
from harness.tuning import native_engine
from whet.graph.graph import Graph
from whet.joint.kept import search, shared_matcher
from whet.superopt.apply.axis_rules import merge_rewrites, part_rewrites, slice_rewrites
from whet.superopt.apply.rewrite import Part
from zoo.networks import BUILDERS

MOST_ROWS = 40
"""Rules of a picture: those of the most networks and places."""


def heat(report: Report, setting: Setting) -> None:
    """Heat maps of the rules that were taken and of those that match a network as written."""
    taken: dict[str, Counter[str]] = {}
    matching: dict[str, Counter[str]] = {}
    target = native_engine().target
    for name, graph in setting.networks(list(BUILDERS)).items():
        say(f"searching {name}")
        matching[name] = matches(graph)
        found = search(graph, target, setting.threads, "real", setting.seconds)
        taken[name] = Counter()
        for step in found.taken:
            taken[name].update({rule: n * step.places for rule, n in step.rules.items()})
        report.rows.append({"part": "heat", "network": name, "threads": setting.threads,
                            "taken": taken[name], "matching": matching[name],
                            "before_s": found.before, "after_s": found.after})  # fmt: skip
    rows = [
        [name, str(len(matching[name])), str(sum(matching[name].values())), str(len(taken[name])),
         str(sum(taken[name].values())), ", ".join(r for r, _ in taken[name].most_common(3)) or "-"]
        for name in taken
    ]  # fmt: skip
    header = ["network", "rules that match", "places", "rules taken", "times", "most often"]
    report.add_table(f"Rules by network, {count(setting.threads)}", header, rows)
    _draw(setting, "heat_taken", "Rules that the search takes", taken)
    _draw(setting, "heat_matching", "Rules that match networks as written", matching)


def matches(graph: Graph) -> Counter[str]:
    """The places at which each rule, and each law of axes, fits a graph."""
    part = Part(graph.inputs, graph.outputs)
    every = (
        shared_matcher("real").rewrites(part), slice_rewrites(part), merge_rewrites(part),
        part_rewrites(part),
    )  # fmt: skip
    return Counter(r.rule for found in every for r in found)


def _draw(setting: Setting, name: str, title: str, counts: Mapping[str, Counter[str]]) -> None:
    columns = list(counts)
    networks = Counter(rule for found in counts.values() for rule in found)
    places = sum(counts.values(), Counter[str]())
    rules = sorted(networks, key=lambda r: (-networks[r], -places[r], r))
    shown = rules[:MOST_ROWS]
    largest = math.log1p(max(places.values(), default=1))
    notes = [setting.where, "Numbers are places; nothing here is measured. Names with a number are "
             "generated and proved, the others are laws of axes that operators carry."]  # fmt: skip
    if len(rules) > len(shown):
        notes.append(f"{len(rules) - len(shown)} rules with fewer networks are left out.")
    if not rules:
        notes.append("There are none.")
    cells = [[str(counts[c][r] or "") for c in columns] for r in shown]
    shades = [[math.log1p(counts[c][r]) / largest for c in columns] for r in shown]
    frame = Frame(title, "network", "rule", tuple(notes))
    setting.draw(name, heat_map(frame, shown, columns, cells, shades))
