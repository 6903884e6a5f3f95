"""A segment of a GPU: the kernels of one plan behind one call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from whet.build.cuda.arrays import DeviceView
from whet.build.cuda.context import Context, bytes_of
from whet.build.cuda.foreign_arrays import adopted
from whet.build.cuda.image import CudaImage
from whet.build.cuda.loaded import Loaded
from whet.build.outside import refuse_outside
from whet.codegen.cuda.driver import Driver, Stream
from whet.core.errors import UsageError, fail
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
        of their own.  Calls take from lists and add to them, which is safe between threads."""
        self._lock = threading.Lock()
        self._results = [Results(*kind) for kind in self.outputs]
        self._numbers = range(len(self.outputs))
        self._sizes = [bytes_of(kind) for kind in (*self.inputs, *self.outputs)]

    def adopt(self, values: Sequence[Any], names: Sequence[str]) -> list[DeviceView | None]:
        """The arrays of a call, of any libraries, as ones that it takes where they lie; None for
        those that do not lie on the GPU."""
        return adopted(values, names, self.driver)

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        self.driver.activate()
        if out is None:
            stream = _first_stream(inputs)
            context = self._take(stream)
            results: Sequence[AnyArray]
            if stream is None:
                results = [r.new() for r in self._results]
            else:
                results = [*map(context.new_result, self._numbers)]
        else:
            stream = _first_stream((*inputs, *out))
            self._check_apart(inputs, out)
            context, results = self._take(stream), out
        self._run(context, stream, inputs, results)
        return cast(tuple[Array, ...], tuple(results))

    def leaving(self, inputs: Sequence[AnyArray], stays: Sequence[bool]) -> tuple[AnyArray, ...]:
        """The outputs, those that stay as arrays on the GPU, the others in this process."""
        self.driver.activate()
        stream = _first_stream(inputs)
        context = self._take(stream)
        results = tuple(
            context.new_result(n) if stay else self._results[n].new()
            for n, stay in zip(self._numbers, stays, strict=True)
        )
        self._run(context, stream, inputs, results)
        return results

    def _run(
        self,
        context: Context,
        key: Stream | None,
        inputs: Sequence[AnyArray],
        results: Sequence[AnyArray],
    ) -> None:
        """Everything between the arrays of the caller, after which the context is idle again."""
        count, stream, waits = len(inputs), context.stream, context.waits
        addresses: list[int] = []
        moved: list[tuple[int, AnyArray]] = []
        for number, array in enumerate((*inputs, *results)):
            if isinstance(array, DeviceView):
                if array.stream != stream:
                    self._wait_for(array.stream, stream)
                    waits = True
                elif not array.follows:
                    waits = True
                address = array.address
                if not address % WIDEST_ACCESS:
                    addresses.append(address)
                    continue
            else:
                waits = True
            staging = context.staged()
            addresses.append(staging.addresses[number])
            if number < count:
                staging.bring(number, array)
            else:
                moved.append((number, array))
        context.play(addresses)
        for number, array in moved:
            context.staged().fetch(number, array)
        if self.watches:
            context.ask_status()
        context.note_end()
        if waits:
            self.driver.synchronize(stream)
        for number, array in moved:
            context.staged().deliver(number, array)
        told = context.told_status() if self.watches else None
        self._give_back(key, context)
        if told is not None:
            _refuse(*told)

    def _wait_for(self, other: Stream, stream: Stream) -> None:
        """Makes the stream wait for all that the other has now.

        Then the call waits for its own end, too: what comes next on the other stream, such as
        another use of an array's memory, does not wait for it.
        """
        event = self.driver.new_event()
        self.driver.record(event, other)
        self.driver.wait(stream, event)
        self.driver.close_event(event)

    def _take(self, stream: Stream | None) -> Context:
        try:
            return self.idle[stream].pop()
        except (KeyError, IndexError):
            return Context(self.loaded, self.inputs, self.outputs, stream)

    def _give_back(self, stream: Stream | None, context: Context) -> None:
        waiting = self.idle.get(stream)
        if waiting is None:
            waiting = self._new_list(stream)
        waiting.append(context)

    def _new_list(self, stream: Stream | None) -> list[Context]:
        dropped: list[Context] = []
        with self._lock:
            found = self.idle.setdefault(stream, [])
            if len(self.idle) > MAX_STREAMS:
                dropped = self.idle.pop(next(iter(self.idle)))
        del dropped  # outside the lock: it waits for their work
        return found

    def _check_apart(self, inputs: Sequence[AnyArray], out: Sequence[AnyArray]) -> None:
        """WH3003 if results on the GPU would overwrite what kernels still read."""
        taken: list[tuple[int, int]] = []
        for number, array in enumerate((*inputs, *out)):
            if isinstance(array, DeviceView):
                start = array.address
                end = start + self._sizes[number]
                if number >= len(inputs):
                    for first, last in taken:
                        if start < last and first < end:
                            fail("WH3003", "arrays in 'out' on the GPU share memory with each other"
                                 " or with an input", kind=UsageError)  # fmt: skip
                taken.append((start, end))


class ForeignSegment:
    """An image that was built for another GPU: it can be looked at, and not run."""

    def __init__(self, image: CudaImage, target: GpuTarget, missing: Sequence[str]) -> None:
        self.image, self.target, self.missing = image, target, missing

    def adopt(self, values: Sequence[Any], names: Sequence[str]) -> list[DeviceView | None]:
        return [None] * len(values)

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        refuse_foreign(self.target, self.missing)

    def leaving(self, inputs: Sequence[AnyArray], stays: Sequence[bool]) -> tuple[AnyArray, ...]:
        refuse_foreign(self.target, self.missing)


def _type(value: Value) -> tuple[tuple[int, ...], np.dtype[Any]]:
    kind = value.tensor_type
    return kind.shape, kind.dtype.numpy


def _refuse(refused: Sequence[str], alarmed: bool) -> None:
    """An error if a call met something impossible, or an alarm."""
    if alarmed:  # what was spread may have been an index
        raise OutliersError
    if refused:
        refuse_outside(refused)


def _first_stream(arrays: Sequence[AnyArray]) -> Stream | None:
    """The stream of the first array on the GPU; None if there is none."""
    for array in arrays:
        if isinstance(array, DeviceView):
            return array.stream
    return None
