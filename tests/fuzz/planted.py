"""Bugs to be found: each changes whet while its context lasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from whet.build.cpu import segment as segment_module, segments as segments_module
from whet.codegen.llvm import mathlib
from whet.codegen.llvm.masks import MaskWriter
from whet.graph import text as text_module
from whet.graph.graph import Result
from whet.ir.expr import call
from whet.ir.program import Buffer
from whet.ops import base as ops_module
from whet.ops.arithmetic import Round
from whet.runtime.results import Results
from whet.schedule.program import access
from whet.tasks.layout import strides_of
from whet.tasks.placement import _Placer
from whet.tasks.places import Place, Storage
from whet.tasks.structure import structure_of, transposition_of


@dataclass(frozen=True)
class Bug:
    """A planted bug, the operators among which it shows, and how it must show."""

    plant: Callable[[], Any]
    operators: tuple[str, ...]
    kinds: tuple[str, ...]
    way: str | None = None
    """How models are compiled, where that matters."""
    style: str | None = None
    first: int = 0
    """The number of the graph to begin with: not far from one that shows the bug."""


BUGS: dict[str, Bug] = {}


def bug(*operators: str, kinds: tuple[str, ...] = ("wrong",), **more: Any) -> Callable[..., Any]:
    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        BUGS[plant.__name__] = Bug(contextmanager(plant), operators, kinds, **more)
        return plant

    return register


# ------------------------------------------------------------------------------------- memory
@bug("Relu", "Add", "Slice", kinds=("outside", "crash"), first=33)
def a_value_is_placed_in_a_smaller_output() -> Iterator[None]:
    def in_output(self: _Placer, v: Any) -> Place | None:
        if v in self.border or v in self.graph.outputs:
            return None
        t = v.tensor_type
        strides, offset, size = strides_of(t.shape, self.layouts.inner.get(v), None)
        for output in self.graph.outputs:
            node = output.node if isinstance(output, Result) else None
            if node is None or node.inputs != (v,) or output in self.border:
                continue
            s = structure_of(node)
            order = transposition_of(s) if s is not None else None
            row_major = strides_of(output.tensor_type.shape, None, None)[0]
            if order is not None and tuple(strides[axis] for axis in order) == row_major:
                storage = Storage("output", size, t.dtype, output)
                self.result.places[v] = Place(storage, strides, offset)
                return self.result.places[v]
        return None

    unchecked = patch.object(Storage, "__post_init__", lambda _: None)
    with patch.object(_Placer, "in_output", in_output), unchecked:
        yield


@bug("Slice", "LeakyRelu", "Elu", "Where", first=33)
def memory_read_backwards_seems_too_short() -> Iterator[None]:
    def flat_buffer(buffer: Buffer, border: Any = None) -> Buffer:
        steps = zip(buffer.shape, buffer.element_strides)
        reach = buffer.offset + 1 + sum((d - 1) * s for d, s in steps)
        return Buffer(buffer.name, (max(reach, 1),), buffer.dtype)

    with patch.object(access, "flat_buffer", flat_buffer):
        yield


@bug("MatMul", "Add", "Relu", kinds=("outside", "crash"))
def the_working_memory_is_too_small() -> Iterator[None]:
    class Smaller(segment_module.Context):
        def __init__(self, segment: Any) -> None:
            less = max(segment.image.arena_bytes - 64, 0)
            segment.image = replace(segment.image, arena_bytes=less)
            super().__init__(segment)

    with patch.object(segment_module, "Context", Smaller):
        yield


# -------------------------------------------------------------------------------------- values
@bug("MatMul", "Softmax", "ReduceSum", "MaxPool", "Conv", kinds=("wrong", "outside", "crash"))
def the_last_lane_is_left_out() -> Iterator[None]:
    original = MaskWriter.mask
    with patch.object(MaskWriter, "mask", lambda self, run: original(self, run[:-1])):
        yield


@bug("Relu", "Max", "Clip", "MaxPool", style="special")
def nan_is_lost_by_a_maximum() -> Iterator[None]:
    def maximum(f: Any, name: str, a: Any, b: Any) -> Any:
        a, b = f.match_lanes(a, b)
        keep = f.compare("olt" if name == "min" else "ogt", a, b)
        return f.emit(f"select {keep}, {a}, {b}", a.dtype, a.lanes)

    with patch.object(mathlib, "minimum_or_maximum", maximum):
        yield


@bug("Round", "Add", "Mul", style="grid")
def halves_are_rounded_up() -> Iterator[None]:
    with patch.object(Round, "formula", lambda self, x: call("floor", x + 0.5)):
        yield


# --------------------------------------------------------------------------------------- calls
@bug("Add", "Relu", "Transpose")
def strides_of_inputs_are_ignored() -> Iterator[None]:
    with patch.object(segment_module, "is_ready", lambda array: True):
        yield


@bug("Split", "Relu", "Add", "Abs", kinds=("shared", "wrong"))
def results_of_one_type_share_memory() -> Iterator[None]:
    rooms: dict[Any, Any] = {}

    def new(self: Results) -> Any:
        key = (self._shape, str(self._dtype))
        return rooms.setdefault(key, np.empty(self._shape, self._dtype))

    with patch.object(Results, "new", new):
        yield


@bug("MatMul", "Relu", "Add", kinds=("wrong",))
def calls_at_once_share_their_pointers() -> Iterator[None]:
    class Shared(list[Any]):
        """Contexts that are never taken out."""

        def pop(self, index: Any = -1) -> Any:
            return self[index]

    make = segment_module.NativeSegment.__init__

    def sharing(self: Any, *args: Any) -> None:
        make(self, *args)
        entry, self.contexts = self.entry, Shared()

        def late(*addresses: int) -> None:
            time.sleep(0.002)  # another call sets its pointers meanwhile
            entry(*addresses)

        self.entry = late

    with patch.object(segment_module.NativeSegment, "__init__", sharing):
        yield


@bug("MatMul", "Add", "Mul", way="cached")
def constants_from_the_cache_are_lost() -> Iterator[None]:
    load: Any = vars(segments_module)["load_image"]

    def forgetful(cache: Any, key: str) -> Any:
        image = load(cache, key)
        return image and replace(image, constants=np.zeros_like(image.constants))

    with patch.object(segments_module, "load_image", forgetful):
        yield


@bug("Elu", "LeakyRelu", "Selu", way="artifact")
def numbers_of_an_artifact_are_rounded() -> Iterator[None]:
    def rounded(value: Any) -> str:
        return f"{value:.1f}" if isinstance(value, float) else show(value)

    show = ops_module.show_attribute
    with patch.object(text_module, "show_attribute", rounded):
        yield
