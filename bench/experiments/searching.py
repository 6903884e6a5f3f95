"""The gains of the search by looking further and by larger rules (TASO, SOSP'19, sections 5, 7).

alpha   the best price over graphs and seconds, for several values of alpha
sizes   the best price with rules of up to 1, 2, 3, 4 operators alone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.block_search import Blocks, Point, blocks_of, rule_steps, search_blocks
from experiments.setting import Setting
from harness.pictures import Frame, Line, line_chart
from harness.report import Goal, Report, count, number, say
from whet.graph.terms import Apply, Term, subterms
from whet.joint.kept import shared_matcher
from whet.joint.moves import Moves
from whet.joint.search import Budget
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.patterns import Patterns
from whet.superopt.rules.files import shipped
from whet.superopt.rules.rule import Rule

ALPHAS = (1.0, 1.01, 1.05, 1.1)
SIZES = (1, 2, 3, 4)
NETWORKS = ("squeezenet", "inception_v3", "resnext50", "nasnet_a", "bert_base", "nasrnn")
PREDICTED = "Predicted: prices of whet's default kernels; blocks by themselves, nothing measured."
PRICE = "predicted time, % of the network as written"


# ----------------------------------------------------------------------------------------- alpha
def alpha(report: Report, setting: Setting) -> None:
    """The course of searches with several values of alpha."""
    budget = Budget(setting.states, setting.seconds)
    moves = lambda: Moves(shared_matcher("real"))
    rows = []
    for name, graph in setting.networks(NETWORKS).items():
        say(f"searching {name}")
        blocks = blocks_of(graph, setting.threads)
        search_blocks(blocks, moves, budget, ALPHAS[-1])  # so that all find the same things priced
        courses = {a: search_blocks(blocks, moves, budget, a) for a in ALPHAS}
        ends = {a: course.last.price / blocks.seconds for a, course in courses.items()}
        _say_what_was_cut_off(report, f"alpha, {name}", (c.cut_off for c in courses.values()))
        for a, course in courses.items():
            report.rows.append({
                "part": "alpha", "network": name, "alpha": a, "threads": setting.threads,
                "points": [(p.states, p.elapsed, p.price) for p in thinned(course.points)],
            })  # fmt: skip
        last = {a: course.last for a, course in courses.items()}
        rows.append([
            name, number(1e3 * blocks.seconds),
            *(f"{100 * ends[a]:.1f} %, {last[a].states}, {last[a].elapsed:.1f} s" for a in ALPHAS),
        ])  # fmt: skip
        title = f"{name}: best price found, by alpha"
        for axis, key in (("graphs priced per block", "states"), ("seconds", "seconds")):
            lines = [
                Line(f"alpha = {a:g}",
                     [(p.states if key == "states" else p.elapsed, 100 * p.price / blocks.seconds)
                      for p in thinned(course.points)], steps=True)
                for a, course in courses.items()
            ]  # fmt: skip
            frame = Frame(title, axis, PRICE, (setting.where, PREDICTED))
            setting.draw(f"alpha_{name}_{key}", line_chart(frame, lines))
        greedy = ends[1.0] / ends[1.05]
        what = f"{name}: predicted gain of alpha = 1.05 over 1"
        report.goals.append(Goal(what, greedy, 1.0 - 1e-9))
    header = ["network", "as written, ms", *(f"alpha = {a:g}" for a in ALPHAS)]
    title = "Best price found: % of the price as written, graphs per block, seconds"
    report.add_table(f"{title}; {count(setting.threads)}", header, rows)


def thinned(points: Sequence[Point], most: int = 200) -> list[Point]:
    """So many of the points at most, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(n * (len(points) - 1) / (most - 1))] for n in range(most)]


# ----------------------------------------------------------------------------------------- sizes
def sizes(report: Report, setting: Setting) -> None:
    """The best price that rules of up to n operators lead to, alone and beside laws of axes."""
    rules = shipped()
    counts = {n: sum(size_of(rule) <= n for rule in rules) for n in SIZES}
    alone: list[Line] = []
    beside: list[Line] = []
    rows = []
    for name, graph in setting.networks(NETWORKS).items():
        say(f"searching {name}")
        blocks = blocks_of(graph, setting.threads)
        _best(blocks, rules, SIZES[-1], setting, axes=True)  # so that all find things priced
        ends = [_best(blocks, rules, n, setting, axes=False) for n in SIZES]
        joined = [_best(blocks, rules, n, setting, axes=True) for n in (0, *SIZES)]
        _say_what_was_cut_off(report, f"sizes, {name}", (cut for _, cut in (*ends, *joined)))
        by_rules, with_axes = [1.0, *(p for p, _ in ends)], [p for p, _ in joined]
        alone.append(Line(name, [(n, 100 * p) for n, p in enumerate(by_rules)]))
        beside.append(Line(name, [(n, 100 * p) for n, p in enumerate(with_axes)]))
        shown = (f"{100 * a:.1f} / {100 * b:.1f} %" for a, b in zip(by_rules, with_axes))
        rows.append([name, *shown])
        report.rows.append({"part": "sizes", "network": name, "threads": setting.threads,
                            "rules_alone": by_rules, "with_laws_of_axes": with_axes})  # fmt: skip
    header = ["network", "no rules", *(f"{n}: {counts[n]} rules" for n in SIZES)]
    title = "Best price with rules of up to n operators, % of as written: alone / with laws of axes"
    report.add_table(f"{title}; {count(setting.threads)}", header, rows)
    told = ", ".join(f"{counts[n]} rules of up to {n}" for n in SIZES)
    for kind, text, lines in (
        ("alone", "Rules by size, without laws of axes", alone),
        ("with_axes", "Rules by size, beside laws of axes", beside),
    ):
        frame = Frame(text, "operators of the larger side of a rule, at most", PRICE,
                      (setting.where, PREDICTED, told))  # fmt: skip
        setting.draw(f"sizes_{kind}", line_chart(frame, lines))


def _best(
    blocks: Blocks, rules: Sequence[Rule], n: int, setting: Setting, axes: bool
) -> tuple[float, int]:
    """The best price, relative to the network as written, and the blocks that were cut off."""
    patterns = Patterns([rule for rule in rules if size_of(rule) <= n])
    steps = (lambda: Moves(Matcher(patterns))) if axes else (lambda: rule_steps(Matcher(patterns)))
    budget = Budget(setting.states, setting.seconds)
    course = search_blocks(blocks, steps, budget)
    return course.last.price / blocks.seconds, course.cut_off


def _say_what_was_cut_off(report: Report, what: str, blocks: Iterable[int]) -> None:
    """A note where time, not the number of graphs, ended a search: a quicker machine finds more."""
    count = sum(blocks)
    if count:
        report.notes.append(f"{what}: {count} searches of blocks were cut off by time")


def size_of(rule: Rule) -> int:
    """The operators of the larger side; what two outputs share counts once."""
    return max(_operators(rule.left), _operators(rule.right))


def _operators(side: Sequence[Term]) -> int:
    found = (t for term in side for t in subterms(term) if isinstance(t, Apply))
    return len({Apply(t.op, t.inputs, t.attributes) for t in found})
