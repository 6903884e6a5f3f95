"""A difference of two graphs as one SVG: before on the left, after on the right, data flows down.

Nodes lie in layers by their depth; within a layer they are ordered by where what they read lies.
Many nodes that are alike in one layer are drawn as a few of them and one box for the rest.  Boxes
with a coloured edge are the nodes that differ, pale ones the values around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

from whet.graph.graph import Constant, Node, Result, Value
from whet.joint.difference import Difference
from whet.ops.base import show_attribute

WIDTH, HEIGHT = 168, 46
"""Of a box."""
GAP_X, GAP_Y, MARGIN, HEAD = 14, 26, 16, 34
CHARACTERS = 25
"""That fit into a box."""
MOST_BOXES, MOST_ALIKE = 80, 4
"""Boxes that are drawn of a side, and of nodes that are alike in one layer."""
STYLE = (
    "text{font:11px sans-serif}.head{font:bold 14px sans-serif}.small{fill:#555}"
    "rect{fill:#fff;stroke:#0072b2;stroke-width:1.5}.after rect{stroke:#d55e00}"
    "rect.edge{fill:#eee;stroke:#bbb}path{fill:none;stroke:#888}"
)


@dataclass(frozen=True, slots=True)
class Box:
    """A box with two lines of text, below the boxes that it reads."""

    first: str
    second: str
    reads: tuple[int, ...]
    """Numbers of boxes before this one."""
    changed: bool
    kind: str = ""
    """The operator: boxes of the same kind and type are alike."""
    title: str = ""


def draw(part: Difference, before: Mapping[Node, str], after: Mapping[Node, str]) -> str:
    """The text of the SVG; the names are those of the nodes of both graphs."""
    sides = [
        side_boxes(part, part.before, [a for a, _ in part.ends], before),
        side_boxes(part, part.after, [b for _, b in part.ends], after),
    ]
    x, height, drawn = float(MARGIN), 0.0, []
    for name, boxes in zip(("before", "after"), sides):
        places = layout(boxes)
        drawn.append(_side(name, boxes, places, x))
        x += max((p[0] for p in places), default=0.0) + WIDTH + 3 * MARGIN
        height = max([height, *(p[1] for p in places)])
    size = (x - 2 * MARGIN, height + HEIGHT + HEAD + 2 * MARGIN)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]:.0f}" height="{size[1]:.0f}" '
        f'viewBox="0 0 {size[0]:.0f} {size[1]:.0f}">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *drawn, "</svg>", ""])


# ----------------------------------------------------------------------------------------- boxes
def side_boxes(
    part: Difference, nodes: Sequence[Node], ends: Sequence[Value], names: Mapping[Node, str]
) -> list[Box]:
    """The boxes of one side: what enters, the nodes, and what leaves."""
    boxes: list[Box] = []
    numbers: dict[Value, int] = {}

    def entering(v: Value) -> int | None:
        v = v if v in numbers else part.same(v)
        if v not in numbers and not isinstance(v, Constant):
            made_by = names.get(v.node, v.node.op.name) if isinstance(v, Result) else ""
            numbers[v] = len(boxes)
            boxes.append(Box(made_by or getattr(v, "name", ""), str(v.type), (), False))
        return numbers.get(v)

    for node in nodes:
        found = [entering(v) for v in node.inputs]
        reads = tuple(dict.fromkeys(n for n in found if n is not None))
        for v in node.results:
            numbers[v] = len(boxes)
        title = f"{names.get(node, 'new')}: {_call(node)}"
        shown = str(node.results[0].type)
        boxes.append(Box(_call(node), shown, reads, True, node.op.name, title))
    boxes += [
        Box("read by the rest", str(end.type), (numbers[end],), False, "end")
        for end in dict.fromkeys(ends)
        if end in numbers
    ]
    return shortened(collapsed(boxes))


def collapsed(boxes: Sequence[Box]) -> list[Box]:
    """The boxes with one in place of many that are alike: of the same kind, type and depth.

    matmul, matmul, matmul, matmul, matmul   ->   matmul, matmul, matmul, 2 more
    """
    depth = depths(boxes)
    alike: dict[object, list[int]] = {}
    for n, box in enumerate(boxes):
        alike.setdefault((box.kind, box.second, depth[n], box.changed), []).append(n)
    joined: dict[int, list[int]] = {}
    for members in alike.values():
        if len(members) > MOST_ALIKE:
            joined[members[MOST_ALIKE - 1]] = members[MOST_ALIKE - 1 :]
    head = {n: first for first, members in joined.items() for n in members}
    # In the order of depth, everything that a box reads has its number before it.
    order = sorted((n for n in range(len(boxes)) if head.get(n, n) == n), key=depth.__getitem__)
    number = {n: new for new, n in enumerate(order)}
    made = []
    for n in order:
        members = joined.get(n, [n])
        reads = dict.fromkeys(number[head.get(m, m)] for k in members for m in boxes[k].reads)
        box = replace(boxes[n], reads=tuple(reads))
        if n in joined:
            name = box.kind or "value"
            box = replace(box, first=f"{len(members)} more: {name}", title="")
        made.append(box)
    return made


def shortened(boxes: list[Box]) -> list[Box]:
    """The first boxes, and one that says that there are more."""
    if len(boxes) <= MOST_BOXES:
        return boxes
    more = Box("...", f"{len(boxes) - MOST_BOXES} more", (MOST_BOXES - 1,), False)
    return [*boxes[:MOST_BOXES], more]


def _call(node: Node) -> str:
    attributes = (f"{k}={show_attribute(v)}" for k, v in node.op.attributes().items())
    return f"{node.op.name} {', '.join(attributes)}".rstrip()


# ---------------------------------------------------------------------------------------- layout
def depths(boxes: Sequence[Box]) -> list[int]:
    """The layer of each box: below all that it reads.

    What enters lies right above what reads it first, and not all of it in the uppermost layer.
    """
    depth: list[int] = []
    first: dict[int, int] = {}
    for box in boxes:
        depth.append(1 + max((depth[n] for n in box.reads), default=-1))
        for n in box.reads:
            first[n] = min(first.get(n, depth[-1]), depth[-1])
    return [first[n] - 1 if not box.reads and n in first else depth[n]
            for n, box in enumerate(boxes)]  # fmt: skip


def layout(boxes: Sequence[Box]) -> list[tuple[float, float]]:
    """The upper left corners: in layers by depth, near to what is read."""
    depth = depths(boxes)
    step = WIDTH + GAP_X
    places = [(0.0, 0.0)] * len(boxes)
    for layer in range(max(depth, default=-1) + 1):
        members = [n for n, d in enumerate(depth) if d == layer]

        def wish(n: int) -> float:
            reads = [places[m][0] for m in boxes[n].reads]
            return sum(reads) / len(reads) if reads else 0.0

        x = 0.0
        for n in sorted(members, key=wish):
            x = max(x, wish(n))
            places[n] = (x, layer * float(HEIGHT + GAP_Y))
            x += step
    return places


def _side(name: str, boxes: Sequence[Box], places: Sequence[tuple[float, float]], x: float) -> str:
    lines = [f'<g class="{name}" transform="translate({x:.0f} {MARGIN})">']
    lines.append(f'<text class="head" x="0" y="14">{name}</text>')
    for box, (to_x, to_y) in zip(boxes, places):
        lines += [_edge(places[n], (to_x, to_y)) for n in box.reads]
    for box, (left, top) in zip(boxes, places):
        kind = "" if box.changed else ' class="edge"'
        title = f"<title>{escape(box.title)}</title>" if box.title else ""
        lines.append(
            f'<g transform="translate({left:.0f} {top + HEAD:.0f})">{title}'
            f'<rect{kind} width={quoteattr(str(WIDTH))} height={quoteattr(str(HEIGHT))} rx="4"/>'
            f'<text x="8" y="19">{escape(_short(box.first))}</text>'
            f'<text class="small" x="8" y="36">{escape(_short(box.second))}</text></g>'
        )
    return "\n".join([*lines, "</g>"])


def _edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    x1, y1 = above[0] + WIDTH / 2, above[1] + HEAD + HEIGHT
    x2, y2 = below[0] + WIDTH / 2, below[1] + HEAD
    bend = GAP_Y / 2
    return (
        f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} '
        f'{x2:.0f} {y2:.0f}"/>'
    )


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[: CHARACTERS - 1] + "…"
