"""Running one function over many items on a Ray cluster, or on a local Ray (extra `ray`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, TypeVar

from whet.core.errors import fail
from whet.core.executor import Progress, hand_out

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RayCluster:
    """Workers of a Ray cluster.

    Without an address a local Ray is started by the first `map`; it ends with this process.
    """

    address: str | None = None
    workers: int = 0
    """How many items run at once; 0 means as many as the cluster has processors."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        *,
        progress: Progress | None = None,
        cancel: Event | None = None,
    ) -> list[R]:
        if not items:
            return []
        ray = _ray()
        if not ray.is_initialized():
            self._start(ray)
        task = ray.remote(function)
        limit = self.workers or int(ray.cluster_resources().get("CPU", 1))
        return hand_out(
            items,
            limit,
            begin=task.remote,
            ended=lambda running: ray.wait(running, num_returns=1)[0],
            result=lambda reference: _result(ray, reference),
            progress=progress,
            cancel=cancel,
        )

    def _start(self, ray: Any) -> None:
        own = {} if self.address else {"num_cpus": self.workers or None}
        try:
            ray.init(self.address, include_dashboard=False, log_to_driver=False, **own)
        except Exception as error:
            # A node that does not come up in time is a plain Exception in Ray.
            problem = str(error).partition("\n")[0]
            if self.address:
                fail("WH1006", f"no Ray cluster was reached at {self.address}: {problem}")
            hint = "try again when the machine is less busy, or use --executor processes"
            fail("WH1006", f"a local Ray did not start: {problem}", hint=hint)


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        fail("WH1004", f"a worker of the Ray cluster ended before its work was done: {error}")


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        fail("WH1002", "Ray is not installed", hint="pip install 'whet[ray]'")
    return ray
