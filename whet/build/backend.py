"""Kinds of machines: what whet must be told about one to compile models for it.

    add_backend(Mine())                        a kind of machine beside whet's own
    target = find_target("mine", cache)        a machine by its name, of whatever kind
    backend_of(target).price(target, ...)

Everything that is not about one kind of machine asks its backend; `whet.build.cpu.backend` has
that of CPUs, and docs/targets.md says how another is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache as cached
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from whet.core.caching import FileCache
from whet.core.dtypes import DType
from whet.core.errors import UsageError, check, fail
from whet.core.foreign import refuse_foreign
from whet.core.precision import STRICT
from whet.core.target import READERS, Target
from whet.core.types import Array
from whet.graph.graph import Graph
from whet.ops.base import Numeric
from whet.runtime.executable import Adopted
from whet.tasks.price import Evidence, Price
from whet.tasks.task import Task

if TYPE_CHECKING:
    from whet.build.kernels import KernelMaker
    from whet.codegen.generator import Generator
    from whet.measure.networks import TimedNetwork
    from whet.measure.runner import Runner
    from whet.schedule.program.kernel import Kernel
    from whet.tasks.steps import Plan

T = TypeVar("T", bound=Target)


class KernelPrice(Price, Protocol):
    """Prices, and the kernels that they are those of."""

    def kernel(self, task: Task, name: str) -> Kernel:
        """The default kernel of a task; `NoCodeError` if no sketch fits."""


class Image(Protocol):
    """What a segment consists of, as far as reports speak of it."""

    @property
    def symbols(self) -> Sequence[str]:
        """The kernels that it calls, in order."""

    @property
    def arena_bytes(self) -> int:
        """The size of its working memory."""

    @property
    def constant_bytes(self) -> int: ...


class Segment(Protocol):
    """The kernels of one plan behind one call."""

    @property
    def image(self) -> Image: ...

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        """The outputs for inputs of the right types, in any memory layout.

        Arrays in `out` must be contiguous, aligned and apart from the inputs.  `OutliersError` if
        guarded kernels met values that they would spread; then results mean nothing.
        """


class Assembler(Protocol):
    """Makes the segments of models, for one target and number of threads."""

    def assemble(self, plan: Plan, maker: KernelMaker, cache: FileCache, key: str) -> Segment:
        """The segment of a plan; what can be kept of it is kept in the cache under the key."""

    def load(self, graph: Graph, cache: FileCache, key: str) -> Segment | None:
        """The segment of a graph that is kept in the cache under the key, if there is one."""


class Backend(Protocol[T]):
    """What is special about a kind of machine; T are its targets.

    What has a body here is what most kinds have: a class that says `Backend` inherits it.
    """

    kind: ClassVar[str]
    """Its targets' `kind`, and its sketches' `machine`."""
    can_tune: ClassVar[bool] = False
    """Whether there is a `runner`, so that kernels can be searched for."""
    times_networks: ClassVar[bool] = False
    """Whether there is a `timed_network`, because kernels that are timed alone say too little."""

    constants: ClassVar[tuple[str, ...]] = ()
    """The names of what its targets are measured for."""

    # ---------------------------------------------------------------------------------- targets
    @property
    def names(self) -> tuple[str, ...]:
        """The names of its targets."""

    def named_target(self, name: str) -> T:
        """The target of one of these names, without what is measured on it."""

    def read_target(self, fields: Mapping[str, Any]) -> T:
        """The target that `to_json` described; `WH1003` if the fields are something else."""

    def known_target(self, target: T, cache: FileCache) -> T:
        """The target with what was measured on it earlier."""
        return target

    def in_precision(self, target: T, precision: str) -> T:
        """The target as code for it may compute with numbers of single precision; `UsageError` if
        it computes with them in another way, as all but the strict one are."""
        check(precision == STRICT, "WH1002",
              f"code for '{target.name}' has no precision '{precision}'",
              hint=f"{STRICT}, or a target that has it, such as cuda", kind=UsageError)  # fmt: skip
        return target

    def calibrated(
        self,
        target: T,
        cache: FileCache,
        note: Callable[[str], None] | None = None,
        *,
        again: bool = False,
    ) -> T:
        """The target with what is measured on it now, unless it is known, and then `again` if
        asked to; `UsageError` if it cannot be measured again."""
        check(not again, "WH1002", f"there is nothing to measure on '{target.name}'",
              kind=UsageError)  # fmt: skip
        return target

    def describe(self, target: T) -> list[str]:
        """The target in lines of text."""
        return [target.name]

    def unavailable(self) -> str | None:
        """Why no code can be made at all, where something for it is not installed."""
        return None

    def missing_here(self, target: T) -> tuple[str, ...]:
        """What code for the target needs and this machine does not have."""
        return ()

    def used_threads(self, threads: int) -> int:
        """The number of threads that matters, of so many that a model may use."""
        return threads

    # ----------------------------------------------------------------------------------- models
    def holds(self, dtype: DType) -> bool:
        """Whether code can hold elements of a type; nodes with others run on their own."""

    def price(
        self,
        target: T,
        threads: int,
        numerics: Numeric,
        evidence: Evidence,
        weight_bytes: int | None = None,
    ) -> KernelPrice:
        """What planning decides by, and the default kernels; `weight_bytes` of the whole network
        say whether its weights stay in a cache between calls."""

    def generator(self, target: T) -> Generator:
        """What makes code of kernels."""

    def adopt(self, values: Sequence[Any], names: Sequence[str]) -> Sequence[Adopted | None]:
        """Values that lie in memory of such a machine's own as arrays that can be copied from
        there; None for the others.  See `whet.runtime.executable.Adopt`."""
        return [None] * len(values)

    def assembler(self, target: T, threads: int, cache: FileCache) -> Assembler:
        """What makes segments of kernels; the cache is for what all of them share."""

    # ---------------------------------------------------------------------------------- kernels
    def runner(self) -> Runner[T]:
        """What measures kernels."""
        fail("WH3007", f"kernels for '{self.kind}' cannot be measured", kind=UsageError)

    def timed_network(
        self, plan: Plan, target: T, numerics: Numeric, runner: Runner[T], cache: FileCache
    ) -> TimedNetwork:
        """What times the kernels of a plan together, by means of the runner."""
        fail("WH3007", f"networks for '{self.kind}' are not timed", kind=UsageError)


class Backends(Mapping[str, Backend[Any]]):
    """Backends by kind, whet's own first."""

    def __init__(self) -> None:
        self.added: dict[str, Backend[Any]] = {}

    def __getitem__(self, kind: str) -> Backend[Any]:
        return self.added.get(kind) or _own_backends()[kind]

    def __iter__(self) -> Iterator[str]:
        yield from _own_backends()
        yield from self.added

    def __len__(self) -> int:
        return len(_own_backends()) + len(self.added)


BACKENDS = Backends()


@cached
def _own_backends() -> dict[str, Backend[Any]]:
    # They import what is beside this module, so they are loaded when they are asked for.
    from whet.build.cpu.backend import CpuBackend
    from whet.build.cuda.backend import CudaBackend

    return {made.kind: made for made in (CpuBackend(), CudaBackend())}


def add_backend(made: Backend[T]) -> Backend[T]:
    """Add a kind of machine, whose targets can then be asked for by name."""
    check(made.kind not in BACKENDS, "WH1009", f"there is already a backend for '{made.kind}'")
    for name in made.names:
        check(name not in target_names(), "WH1009", f"there is already a target '{name}'")
    BACKENDS.added[made.kind] = made
    READERS[made.kind] = made.read_target
    return made


def backend_of(target: Target) -> Backend[Any]:
    """The backend for a target's kind of machine."""
    check(target.kind in BACKENDS, "WH1009", f"there is no backend for '{target.kind}'")
    return BACKENDS[target.kind]


def target_names() -> tuple[str, ...]:
    """The names of all targets."""
    return tuple(name for made in BACKENDS.values() for name in made.names)


def named_target(name: str) -> Target:
    """The target called `name`, without measured constants."""
    for made in BACKENDS.values():
        if name in made.names:
            found: Target = made.named_target(name)
            return found
    fail("WH1002", f"no target is named '{name}'",
         hint=f"targets are {', '.join(target_names())}", kind=UsageError)  # fmt: skip


def find_target(name: str, cache: FileCache) -> Target:
    """The target called `name`, with the constants that were measured on it earlier, if any."""
    target = named_target(name)
    known: Target = backend_of(target).known_target(target, cache)
    return known


def require_here(target: Target) -> None:
    """`WH1305` unless code for the target runs on this machine."""
    missing = backend_of(target).missing_here(target)
    if missing:
        refuse_foreign(target, missing)
