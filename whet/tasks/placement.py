"""Places of all values: memory, strides, views.

Views are free: what only moves data is another set of strides on the same memory, found by
following addresses through the operator, and parts of a joined value are computed right
where they belong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from whet.graph.graph import Constant, Node, Result, Value
from whet.ir.expr import Read
from whet.ir.tensor import Placeholder
from whet.tasks.borders import Geometry
from whet.tasks.dag import Dag
from whet.tasks.divisions import Division
from whet.tasks.layout import Layouts, strides_of
from whet.tasks.places import Place, Placement, Storage
from whet.tasks.stride_views import joined_parts, view
from whet.tasks.structure import ranges_of, structure_of, transposition_of
from whet.tasks.task import Border, wider_border


def place_values(
    graph: Dag,
    layouts: Layouts,
    pinned: Mapping[Value, Place] | None = None,
    divisions: tuple[Division, ...] = (),
) -> Placement:
    """A place for every value of the graph; pinned values stay where they are, and parts of
    divisions are no views."""
    return _Placer(graph, layouts, pinned or {}, divisions).place_all()


class _Placer:
    def __init__(
        self,
        graph: Dag,
        layouts: Layouts,
        pinned: Mapping[Value, Place],
        divisions: tuple[Division, ...],
    ) -> None:
        self.graph, self.layouts, self.pinned = graph, layouts, pinned
        self.divided = {division.split for division in divisions}
        self.result = Placement(dict(pinned), divisions=divisions)
        self.border: dict[Value, Border] = dict(layouts.border)
        self.parent: dict[Value, tuple[Value, int, int]] = {}
        """A part of a joined value: the whole, the axis, and where the part starts."""

    def place_all(self) -> Placement:
        self.lend_borders()
        self.find_joins()
        for given in self.graph.inputs:
            if given in self.pinned:
                continue
            place = self.own(given, "input")
            if given in self.border or given in self.layouts.inner:
                self.result.arriving[given] = place
                self.own(given, "arena")
        for node in self.graph.nodes:
            for v in node.inputs:
                if isinstance(v, Constant) and v not in self.result.places:
                    self.own(v, "constant")
            if not self.try_view(node):
                for v in node.results:
                    self.place(v)
        for number, v in enumerate(self.graph.outputs):
            if v in self.pinned:
                continue
            if isinstance(v, Constant) and v not in self.result.places:
                self.own(v, "constant")
            storage = self.result.places[v].storage
            direct = storage.kind == "output" and storage.value is v
            if not direct or self.graph.outputs.index(v) != number:
                self.result.leaving[number] = _row_major(v)
        return self.result

    # --------------------------------------------------------------------------- own memory
    def own(self, v: Value, kind: str) -> Place:
        """Fresh memory for a value."""
        t = v.tensor_type
        fixed = kind != "arena"
        border = None if fixed else self.border.get(v)
        inner = None if fixed else self.layouts.inner.get(v)
        strides, offset, size = strides_of(t.shape, inner, border)
        geometry = Geometry(t.shape, inner, border, t.dtype) if border else None
        storage = Storage(kind, size, t.dtype, v, geometry)
        place = Place(storage, strides, offset, border)
        self.result.places[v] = place
        return place

    def place(self, v: Value) -> Place:
        if v in self.result.places:
            return self.result.places[v]
        if v in self.parent:
            whole, axis, start = self.parent[v]
            outer = self.place(whole)
            shifted = outer.offset + start * outer.strides[axis]
            made = Place(outer.storage, outer.strides, shifted, outer.border)
            self.result.places[v] = made
            return made
        plain = v not in self.border and v not in self.layouts.inner
        is_output = v in self.graph.outputs and plain
        return self.in_output(v) or self.own(v, "output" if is_output else "arena")

    def in_output(self, v: Value) -> Place | None:
        """Memory of the caller's for a value that an output is a mere transposition of."""
        if v in self.border or v in self.graph.outputs:
            return None
        t = v.tensor_type
        strides, offset, size = strides_of(t.shape, self.layouts.inner.get(v), None)
        for output in self.graph.outputs:
            node = output.node if isinstance(output, Result) else None
            if node is None or node.inputs != (v,) or output in self.border | self.pinned.keys():
                continue
            s = structure_of(node)
            order = transposition_of(s) if s is not None else None
            # A slice of the leading part has the same strides, but less memory.
            if order is None or output.tensor_type.size != t.size:
                continue
            row_major = strides_of(output.tensor_type.shape, None, None)[0]
            if tuple(strides[axis] for axis in order) == row_major:
                storage = Storage("output", size, t.dtype, output)
                self.result.places[v] = Place(storage, strides, offset)
                return self.result.places[v]
        return None

    # --------------------------------------------------------------------------------- views
    def try_view(self, node: Node) -> bool:
        """Make the node's results views of its input's memory, if strides can express them."""
        s = structure_of(node)
        if s is None or not s.is_movement or node in self.divided:
            return False
        if any(v in self.pinned for v in node.results):
            return self.pinned_view(node)
        read = {e.tensor for stage in s.computes if isinstance(e := stage.body, Read)}
        if len(read) != 1 or not all(isinstance(t, Placeholder) for t in read):
            return False
        position = next(n for n, p in enumerate(s.inputs) if p in read)
        source = node.inputs[position]
        place = self.result.places.get(source) or self.place(source)
        found = [self.seen_at(node, position, place, v) for v in node.results]
        views = [f for f in found if f is not None]
        if len(views) < len(found):
            return False
        if any(v in self.parent for v in node.results):
            return False
        self.result.places.update(zip(node.results, views))
        self.result.views[node] = True
        return True

    def seen_at(self, node: Node, position: int, place: Place, v: Result) -> Place | None:
        """The result as a view of a place; zeros around it must be there."""
        found, border = view(node, position, place, v), self.border.get(v)
        if found is None or border is None:
            return found
        if wider_border(place.border, border) != place.border or not self.may_borrow(v):
            return None
        # Zeros lie a step of the whole away, also where the value itself has a single position.
        return replace(found, strides=place.strides, border=border)

    def lend_borders(self) -> None:
        """Give values the zeros that parts of them want around them: a part needs no copy then.

        conv(y[:, 0:64], pads=[1, 1, 1, 1])   ->   y with a border of 1 around its pixels
        """
        for node in reversed(self.graph.nodes):
            source = node.inputs[0] if len(node.inputs) == 1 else None
            if node in self.divided or not isinstance(source, Result) or not self.may_lend(source):
                continue
            for v in node.results:
                if v in self.border and self.may_borrow(v):
                    self.border[source] = wider_border(self.border.get(source), self.border[v])

    def may_borrow(self, v: Result) -> bool:
        """Whether zeros that a value wants could lie around what it is a range of: not along axes
        of which it is a part, for there lies the rest."""
        s = structure_of(v.node)
        cut = ranges_of(s)[v.index] if s is not None else None
        return cut is not None and not any(any(self.border[v][axis]) for axis in cut)

    def may_lend(self, v: Result) -> bool:
        """Whether a value is computed into memory of the model's own."""
        s = structure_of(v.node)
        taken = v in self.pinned or v in self.graph.inputs or v in self.graph.outputs
        return s is not None and not s.is_movement and not taken

    def pinned_view(self, node: Node) -> bool:
        """True when the results are where an input is."""
        places = self.result.places
        there = {places[v].storage for v in node.inputs if v in places}
        is_view = all(v in places and places[v].storage in there for v in node.results)
        if is_view:
            self.result.views[node] = True
        return is_view

    # --------------------------------------------------------------------------------- joins
    def find_joins(self) -> None:
        """Decide which values are computed inside the memory of a joined value."""
        for node in reversed(self.graph.nodes):
            s = structure_of(node)
            parts = joined_parts(s) if s is not None else None
            if parts is None or s is None or len(node.results) != 1:
                continue
            whole = node.results[0]
            if whole in self.pinned and all(v in self.pinned for v in node.inputs):
                self.pinned_view(node)
                continue
            place = self.pinned.get(whole)
            if place.storage.kind != "arena" if place else whole in self.graph.outputs:
                continue
            axis, starts = parts
            inside = all(
                self.is_part(v, whole, axis, start) or self.can_be_part(v, whole, axis)
                for v, start in zip(node.inputs, starts)
            )
            if not inside or len(set(node.inputs)) != len(node.inputs):
                continue
            for v, start in zip(node.inputs, starts):
                self.parent[v] = (whole, axis, start)
                if v in self.border:
                    self.border[whole] = wider_border(self.border.get(whole), self.border[v])
            self.result.views[node] = True

    def is_part(self, v: Value, whole: Value, axis: int, start: int) -> bool:
        """Whether both are pinned, the one where it belongs in the other."""
        if v not in self.pinned or whole not in self.pinned:
            return False
        part, outer = self.pinned[v], self.pinned[whole]
        offset = outer.offset + start * outer.strides[axis]
        same = part.storage is outer.storage and part.strides == outer.strides
        return same and part.offset == offset

    def can_be_part(self, v: Value, whole: Value, axis: int) -> bool:
        if not isinstance(v, Result) or v in self.parent or v in self.graph.outputs:
            return False
        if v in self.pinned:
            return False
        s = structure_of(v.node)
        if s is None or self.layouts.inner.get(v) != self.layouts.inner.get(whole):
            return False
        needs = self.border.get(v)
        if needs and whole in self.pinned:
            around = self.pinned[whole].border
            if wider_border(around, needs) != around:
                return False
        is_computed = not s.is_movement or v.node in self.divided
        return not (needs and any(needs[axis])) and is_computed


def _row_major(v: Value) -> Place:
    """The caller's array for an output."""
    t = v.tensor_type
    strides, offset, size = strides_of(t.shape, None, None)
    return Place(Storage("output", size, t.dtype, v), strides, offset)
