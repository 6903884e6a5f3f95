"""The paper's case studies (TASO, SOSP'19, section 7), rewrite by rewrite.

groups   3x3 convolutions of ResNeXt-50, groups merged
nasnet   a cell of NASNet-A: pools as convolutions, sums of convolutions as one
nasrnn   the products of a recurrent cell, over steps and over one input
qkv      the three projections of BERT's attention
resnet   a residual module: 1x1 convolutions enlarged and merged, sums as one
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from experiments.compare import Outcome, Variant, not_slower, show
from experiments.rewriting import (
    Rewrites,
    everywhere,
    finished,
    merges,
    once,
    rule_rewrites,
    searched,
    whole,
)
from experiments.setting import Setting, imported
from harness.report import Report, number
from whet.graph.graph import Constant, Graph, Result
from whet.joint.moves import lift_epilogues
from whet.ops.conv import Conv
from whet.superopt.apply.rewrite import Part, Rewrite, applied
from zoo.convolutional import nasnet_cell, residual_module
from zoo.layers import ConvLayer, conv_model, resnext50_grouped_layers
from zoo.sequential import bert_attention, nasrnn

REGROUP = "conv-conv-8a922824"
ENLARGE = "conv-conv-9fa8c5a2"
SUM_OF_CONVOLUTIONS = "conv-add-4a572270, backward"
POOL_AS_CONVOLUTION = "avg_pool-conv-438d26a1"
SUM_OF_PRODUCTS = "matmul-add-6b657933, backward"

WRITTEN = "as written"
FOUND = "found by the search"
UNCHANGED = "left unchanged by the search"


def merge_same_input(part: Part) -> Part | None:
    """Products and convolutions of one input as one."""
    return everywhere(part, lambda p: merges(p, of_weight=False))


def merge_same_weight(part: Part) -> Part | None:
    """Products with one weight, such as the steps of a recurrence, as one."""
    return everywhere(part, lambda p: merges(p, of_weight=True))


def lifted(part: Part) -> Part:
    """Biases and activations of all parts of a value as those of the value."""
    found = lift_epilogues(part)
    return part if found is None else found[1]


def study(
    report: Report, setting: Setting, part: str, title: str, graph: Graph,
    made: Sequence[tuple[str, Part | None]], notes: Sequence[str] = (),
) -> Outcome:  # fmt: skip
    """The graph as written, each rewrite of it, and what the search finds."""
    variants = [Variant(WRITTEN, graph)]
    for name, rewritten in made:
        if rewritten is None:
            report.notes.append(f"{part}: '{name}' fits nowhere")
        else:
            variants.append(Variant(name, finished(graph, rewritten)))
    best = searched(graph, setting.threads, setting.seconds)
    variants.append(Variant(FOUND if best.graph is not graph else UNCHANGED, best.graph))
    told = (*notes, f"Search: {best}.")
    found = show(report, setting, part, title, "rewrite", variants, told)
    report.goals.append(not_slower(part, found, len(variants) - 1, than=0))
    return found


# ---------------------------------------------------------------------------------------- groups
def groups(report: Report, setting: Setting) -> None:
    """Every grouped layer of ResNeXt-50 with fewer, larger groups (rule `REGROUP`)."""
    layers = [ConvLayer(8, 32, 32, 3, 1, 8)] if setting.reduced else resnext50_grouped_layers()
    rows = []
    for layer in layers:
        graph = imported(partial(conv_model, layer, channels_last=True))
        variants = [Variant(f"{layer.groups}", graph)]
        for rewrite in rule_rewrites(REGROUP)(whole(graph)):
            made = finished(graph, applied(whole(graph), [rewrite]))
            variants.append(Variant(f"{_groups_after(rewrite)}", made))
        variants.sort(key=lambda v: -int(v.name))
        name = f"groups_{layer.cin}_{layer.size}" + ("_strided" if layer.stride > 1 else "")
        title = f"ResNeXt-50, {layer}: {layer.groups} groups merged"
        found = show(report, setting, name, title, "groups", variants)
        rows.append([str(layer), *_best_groups(found)])
    header = ["layer", "cheapest predicted at", "fastest measured at", "its gain (95 %)", ""]
    report.add_table("ResNeXt-50: numbers of groups", header, rows)


def _groups_after(rewrite: Rewrite) -> int:
    (new,) = rewrite.new
    assert isinstance(new, Result)
    assert isinstance(new.node.op, Conv)
    return new.node.op.groups


def _best_groups(found: Outcome) -> list[str]:
    every = range(len(found.names))
    expected = min(every, key=lambda n: found.predicted[n] or float("inf"))
    fastest = min(every, key=lambda n: found.median(n).middle)
    gain = found.gain(fastest)
    shown = f"{number(gain.middle)} ({number(gain.low)} to {number(gain.high)})"
    return [found.names[expected], found.names[fastest], shown, found.verdict(fastest)]


# ---------------------------------------------------------------------------------------- others
def nasnet(report: Report, setting: Setting) -> None:
    """A cell, with each rewrite of the paper alone, and with all of them."""
    small = {"image": 14, "filters": 8} if setting.reduced else {}
    graph = imported(partial(nasnet_cell, **small))
    start = whole(graph)
    pools = once(start, rule_rewrites(POOL_AS_CONVOLUTION))
    sums = everywhere(start, rule_rewrites(SUM_OF_CONVOLUTIONS))
    every = everywhere(pools or start, rule_rewrites(SUM_OF_CONVOLUTIONS))
    made = [
        ("pools as convolutions", pools),
        ("sums of convolutions as one", sums),
        ("pools, then sums", every),
    ]
    notes = ("Convolutions without biases, pools that count the border: the cell of the paper.",)
    study(report, setting, "nasnet", "A cell of NASNet-A", graph, made, notes)


def recurrent(report: Report, setting: Setting) -> None:
    """NasRNN, with products put together over steps, over one input, and over sums."""
    small = {"hidden": 72, "length": 3} if setting.reduced else {}
    graph = imported(partial(nasrnn, **small))
    start = whole(graph)
    steps, inputs = merge_same_weight(start), merge_same_input(start)
    both = None if steps is None else merge_same_input(steps)
    made = [
        ("sums of two products as one", everywhere(start, rule_rewrites(SUM_OF_PRODUCTS))),
        ("products of one input merged", inputs),
        ("products of all steps merged", steps),
        ("both", both),
        ("both, operators behind them too", both and lifted(both)),
    ]
    study(report, setting, "nasrnn", "NasRNN", graph, made)


def qkv(report: Report, setting: Setting) -> None:
    """The projections of one attention, separate, merged, and merged with what follows them."""
    small = {"tokens": 24, "width": 96, "heads": 4} if setting.reduced else {}
    graph = imported(partial(bert_attention, **small))
    merged = merge_same_input(whole(graph))
    made = [
        ("one product, three biases", merged),
        ("one product, one bias", merged and lifted(merged)),
    ]
    study(report, setting, "qkv", "Q, K and V of BERT's attention", graph, made)


def resnet(report: Report, setting: Setting) -> None:
    """A residual module, its 1x1 convolution enlarged, merged, or summed within one product."""
    small = {"image": 14, "cin": 16, "cout": 16} if setting.reduced else {}
    graph = imported(partial(residual_module, **small))
    enlarged = once(whole(graph), _of_1x1(rule_rewrites(ENLARGE)))
    made = [
        ("1x1 enlarged to 3x3", enlarged),
        ("enlarged, merged with the first 3x3", enlarged and merge_same_input(enlarged)),
        ("enlarged, summed with the second 3x3",
         enlarged and everywhere(enlarged, rule_rewrites(SUM_OF_CONVOLUTIONS))),
    ]  # fmt: skip
    study(report, setting, "resnet", "A residual module", graph, made)


def _of_1x1(rewrites: Rewrites) -> Rewrites:
    def chosen(rewrite: Rewrite) -> bool:
        (old,) = rewrite.old
        assert isinstance(old, Result)
        filters = old.node.inputs[1]
        return isinstance(filters, Constant) and filters.tensor_type.shape[2:] == (1, 1)

    return lambda part: filter(chosen, rewrites(part))
