"""A segment of a GPU: the kernels of one plan behind one call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from whet.build.cuda.arrays import DeviceView, overlapping
from whet.build.cuda.context import Context
from whet.build.cuda.foreign_arrays import adopted
from whet.build.cuda.image import CudaImage
from whet.build.cuda.loaded import Loaded
from whet.build.outside import refuse_outside
from whet.codegen.cuda.driver import Driver, Stream
from whet.core.errors import UsageError, check
from whet.core.foreign import refuse_foreign
from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.graph.graph import Graph, Value
from whet.runtime.executable import OutliersError
from whet.runtime.results import Results

WIDEST_ACCESS = 16
"""Bytes that kernels read and write at once: arrays that start elsewhere are copied first."""
MAX_STREAMS = 16
"""Streams of callers for which contexts wait; beyond it the longest known one's are dropped."""

AnyArray = Array | DeviceView


class CudaSegment:
    """Runs an image on arrays of this process or of the GPU.

    Concurrent calls have contexts of their own, and so have calls on different streams.  With
    arrays on the GPU, a call returns before its work is done, which is on the stream of the first
    of them, and gives arrays on the GPU; unless something must be looked at or kept alive.
    """

    def __init__(self, image: CudaImage, graph: Graph, driver: Driver, *, early: bool) -> None:
        driver.activate()
        self.image, self.driver = image, driver
        self.inputs = [_type(v) for v in graph.inputs]
        self.outputs = [_type(v) for v in graph.outputs]
        arrays = len(self.inputs) + len(self.outputs)
        self.loaded = Loaded(image, driver, arrays, early=early)
        self.watches = bool(image.status_bytes)
        self.idle: dict[Stream | None, list[Context]] = {}
        """Contexts by the stream that they are on; those for arrays of this process have streams
        of their own."""
        self._lock = threading.Lock()
        self._results = [Results(*kind) for kind in self.outputs]

    def adopt(self, value: Any, name: str) -> DeviceView | None:
        """An array of any library as one that a call takes where it lies; None if it does not lie
        on the GPU."""
        return adopted(value, name, self.driver)

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        self.driver.activate()
        given = cast(Sequence[AnyArray], inputs)
        views = [a for a in (*given, *(out or ())) if isinstance(a, DeviceView)]
        stream = views[0].stream if views else None
        context = self._take(stream)
        waits = self._order(views, stream) or self.watches
        results: Sequence[AnyArray]
        if out is not None:
            _check_apart(out, given)
            results = out
        elif views:
            results = context.new_results()
        else:
            results = [r.new() for r in self._results]
        self._run(context, given, results, waits)
        refused, alarmed = context.told_status() if self.watches else ([], False)
        self._give_back(stream, context)
        if alarmed:  # what was spread may have been an index
            raise OutliersError
        if refused:
            refuse_outside(refused)
        return cast(tuple[Array, ...], tuple(results))

    def _run(
        self,
        context: Context,
        inputs: Sequence[AnyArray],
        results: Sequence[AnyArray],
        waits: bool,
    ) -> None:
        """Everything between the arrays of the caller."""
        count = len(inputs)
        addresses: list[int] = []
        moved: list[tuple[int, AnyArray]] = []
        for number, array in enumerate((*inputs, *results)):
            if isinstance(array, DeviceView) and not array.address % WIDEST_ACCESS:
                addresses.append(array.address)
                continue
            staging = context.staged()
            addresses.append(staging.addresses[number])
            waits = waits or not isinstance(array, DeviceView)
            if number < count:
                staging.bring(number, array)
            else:
                moved.append((number, array))
        context.play(addresses)
        for number, array in moved:
            context.staged().fetch(number, array)
        if self.watches:
            context.ask_status()
        self.driver.record(context.ready, context.stream)
        if waits:
            self.driver.synchronize(context.stream)
        for number, array in moved:
            context.staged().deliver(number, array)

    def _order(self, views: Sequence[DeviceView], stream: Stream | None) -> bool:
        """Makes the stream wait for what the arrays wait for; whether the call must wait for its
        end, because their memory may get another use that does not wait for it."""
        waits = False
        for view in views:
            waits = waits or not view.follows
            if view.stream != stream and stream is not None:
                waits = True
                event = self.driver.new_event()
                self.driver.record(event, view.stream)
                self.driver.wait(stream, event)
                self.driver.close_event(event)
        return waits

    def _take(self, stream: Stream | None) -> Context:
        with self._lock:
            waiting = self.idle.get(stream)
            if waiting:
                return waiting.pop()
        return Context(self.loaded, self.inputs, self.outputs, stream)

    def _give_back(self, stream: Stream | None, context: Context) -> None:
        dropped: list[Context] = []
        with self._lock:
            self.idle.setdefault(stream, []).append(context)
            if len(self.idle) > MAX_STREAMS:
                dropped = self.idle.pop(next(iter(self.idle)))
        del dropped  # outside the lock: it waits for their work


class ForeignSegment:
    """An image that was built for another GPU: it can be looked at, and not run."""

    def __init__(self, image: CudaImage, target: GpuTarget, missing: Sequence[str]) -> None:
        self.image, self.target, self.missing = image, target, missing

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        refuse_foreign(self.target, self.missing)


def _type(value: Value) -> tuple[tuple[int, ...], np.dtype[Any]]:
    kind = value.tensor_type
    return kind.shape, kind.dtype.numpy


def _check_apart(out: Sequence[AnyArray], inputs: Sequence[AnyArray]) -> None:
    """WH3003 if results on the GPU would overwrite what kernels still read."""
    targets = [a for a in out if isinstance(a, DeviceView)]
    sources = [a for a in inputs if isinstance(a, DeviceView)]
    check(not overlapping(targets, sources), "WH3003",
          "arrays in 'out' on the GPU share memory with each other or with an input",
          kind=UsageError)  # fmt: skip
