"""A segment of a GPU as data: everything that running it takes, and how it is kept in the cache.

    8 bytes: length of the head, head as JSON, small constants, cubins

An image holds machine code, so it is never part of an artifact; it lives in the cache of its
owner, where a damaged entry counts as absent.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.build.shared_constants import held_bytes
from whet.build.slots import Slot
from whet.codegen.cuda.launch import Launch
from whet.core.caching import FileCache
from whet.core.types import Array

STATUS_BYTES = 8
_KIND = "segment"
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A launch of a kernel: in which cubin it is, where its parameters are, what the model calls
    what it computes."""

    launch: Launch
    cubin: int
    slots: tuple[Slot, ...]
    name: str


@dataclass(frozen=True, eq=False)
class CudaImage:
    """Cubins, launches, and the sizes of working memory and constants."""

    cubins: tuple[bytes, ...]
    calls: tuple[KernelCall, ...]
    arena_bytes: int
    constants: Array
    """The small constants, as bytes."""
    shared: Mapping[str, Array] = field(default_factory=dict)
    """The bytes of large constants by their keys, in the order of their numbers."""
    watched: tuple[str, ...] = ()
    """The names of what has a status, by its number."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The kernels that it launches, in order."""
        return tuple(c.launch.symbol for c in self.calls)

    @property
    def constant_bytes(self) -> int:
        return self.constants.size + sum(a.size for a in self.shared.values())

    @property
    def is_guarded(self) -> bool:
        """Whether kernels raise an alarm when they meet values that they would spread."""
        return any(s.kind == "alarm" for c in self.calls for s in c.slots)

    @property
    def status_bytes(self) -> int:
        """The statuses, with the alarm behind them; nothing if there is neither."""
        return STATUS_BYTES * (len(self.watched) + 1) if self.watched or self.is_guarded else 0

    def addresses(
        self, arena: int, constants: int, shared: Sequence[int], status: int
    ) -> list[list[int]]:
        """The parameters of every launch; those that are the caller's arrays are 0."""
        places: dict[str, Callable[[int], int]] = {
            "arena": lambda at: arena + at,
            "constant": lambda at: constants + at,
            "shared": lambda at: shared[at],
            "status": lambda at: status + STATUS_BYTES * at,
            "alarm": lambda at: status + STATUS_BYTES * len(self.watched),
            "array": lambda at: 0,
        }
        return [[places[s.kind](s.at) for s in c.slots] for c in self.calls]


# ------------------------------------------------------------------------------------- storing
def store_image(image: CudaImage, cache: FileCache, key: str) -> None:
    head = {
        "calls": [dataclasses.asdict(c) for c in image.calls],
        "arena_bytes": image.arena_bytes,
        "constant_bytes": image.constants.size,
        "shared": list(image.shared),
        "watched": list(image.watched),
        "lengths": [len(c) for c in image.cubins],
    }
    text = json.dumps(head).encode()
    parts = (len(text).to_bytes(_LENGTH_BYTES, "little"), text, image.constants.tobytes())
    cache.put(_KIND, key, b"".join((*parts, *image.cubins)))


def load_image(cache: FileCache, key: str) -> CudaImage | None:
    """The image that was kept under the key, or None if there is none that is sound."""
    data = cache.get(_KIND, key)
    if data is None:
        return None
    try:
        return _read(data, cache)
    except (KeyError, TypeError, ValueError):  # an entry of another kind or version
        return None


def _read(data: bytes, cache: FileCache) -> CudaImage | None:
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    head = json.loads(data[_LENGTH_BYTES:end])
    sizes = [_count(head["constant_bytes"]), *map(_count, head["lengths"])]
    _demand(end + sum(sizes) == len(data))
    parts = []
    for size in sizes:
        parts.append(data[end : end + size])
        end += size
    constants, *cubins = parts
    shared: dict[str, Array] = {}
    for name in map(_text, head["shared"]):
        held = held_bytes(name, cache)
        if held is None:
            return None
        shared[name] = held
    image = CudaImage(
        tuple(cubins),
        tuple(_call(fields) for fields in head["calls"]),
        _count(head["arena_bytes"]),
        np.frombuffer(constants, np.uint8),
        shared,
        tuple(map(_text, head["watched"])),
    )
    _check_places(image)
    return image


def _call(fields: Mapping[str, Any]) -> KernelCall:
    given = fields["launch"]
    launch = Launch(
        symbol=_text(given["symbol"]),
        clusters=_count(given["clusters"]),
        cluster=_count(given["cluster"]),
        threads=_count(given["threads"]),
        shared_bytes=_count(given["shared_bytes"]),
        awaits=_flag(given["awaits"]),
    )
    slots = tuple(Slot(_text(s["kind"]), _count(s["at"])) for s in fields["slots"])
    return KernelCall(launch, _count(fields["cubin"]), slots, _text(fields["name"]))


def _check_places(image: CudaImage) -> None:
    """ValueError if a launch is of no cubin, or has a parameter that is nowhere."""
    ends = {
        "arena": max(image.arena_bytes, 1),
        "constant": image.constants.size,
        "shared": len(image.shared),
        "status": len(image.watched),
        "alarm": 1,
    }
    for call in image.calls:
        _demand(call.cubin < len(image.cubins))
        for slot in call.slots:
            _demand(slot.kind == "array" or slot.at < ends[slot.kind])


def _demand(condition: bool) -> None:
    if not condition:
        raise ValueError("an image that is not sound")


def _count(value: Any) -> int:
    _demand(type(value) is int and value >= 0)
    return int(value)


def _flag(value: Any) -> bool:
    _demand(type(value) is bool)
    return bool(value)


def _text(value: Any) -> str:
    _demand(type(value) is str)
    return str(value)
