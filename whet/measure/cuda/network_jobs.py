"""Jobs of whole networks for the process that owns the GPU: launches and memory as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from whet.codegen.cuda.launch import Launch


@dataclass(frozen=True)
class Piece:
    """Memory of a network: zeros, or any finite numbers where elements are floats.

    The time that kernels take does not depend on what they compute with; but zeros are indices
    that there are, and borders.
    """

    key: str
    """Networks have the pieces of one key in common; all others, whose key is empty, are theirs."""
    nbytes: int
    dtype: str


@dataclass(frozen=True)
class NetworkCall:
    """A launch, the name that its code is held under, and where its parameters lie: the number of
    a piece, and bytes from its start."""

    launch: Launch
    cubin: str
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NetworkJob:
    """The launches of a network, one behind the other."""

    pieces: tuple[Piece, ...]
    calls: tuple[NetworkCall, ...]
    early: bool
    """Whether kernels that await their inputs may be launched before others have ended."""

    nbytes: ClassVar[int] = 0
    cache_bytes: ClassVar[int] = 0
    """The GPU fills its memory itself, which takes no time worth mentioning."""

    def to_message(self) -> dict[str, Any]:
        return asdict(self)


def network_from_message(fields: Mapping[str, Any]) -> NetworkJob:
    """The job that `to_message` described."""
    calls = (
        NetworkCall(
            Launch(**call["launch"]),
            call["cubin"],
            tuple((piece, at) for piece, at in call["places"]),
        )
        for call in fields["calls"]
    )
    return NetworkJob(tuple(Piece(**p) for p in fields["pieces"]), tuple(calls), fields["early"])
