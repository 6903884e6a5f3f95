"""The runtimes that a worker can hold.

Each is a function that loads a model and returns a callable from arrays to arrays, in the
order of the model's inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.measure.onnxruntime_session import open_session, peer_module

Run = Callable[[Sequence[Array]], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Job:
    """The request to load something in a worker."""

    model: str
    threads: int
    inputs: Mapping[str, Array]
    """An example of every input, in the order of the model."""
    budget: float = 0.0
    numerics: str = "real"
    target: str | None = None
    """The processor to build for; other runtimes choose by themselves."""
    precision: str | None = None


def load_whet(job: Job) -> Run:
    import whet
    from whet.runtime.artifact import is_artifact

    if is_artifact(job.model):
        f = whet.load(job.model, threads=job.threads, target=job.target)
    else:
        f = whet.compile(job.model, dict(job.inputs), job.threads, job.budget,
                         job.target, job.numerics, job.precision,
                         note=lambda message: None)  # fmt: skip
    return lambda arrays: _as_tuple(f(*arrays))


def load_onnxruntime(job: Job) -> Run:
    session = open_session(job.model, job.threads)
    names = list(job.inputs)

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        results: Sequence[Array] = session.run(None, dict(zip(names, arrays, strict=True)))
        return results

    return run


def load_openvino(job: Job) -> Run:
    openvino = peer_module("openvino")
    settings = {
        "INFERENCE_NUM_THREADS": job.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # otherwise it may compute in half precision
    }
    model = openvino.Core().read_model(job.model)
    model.reshape({name: list(a.shape) for name, a in job.inputs.items()})
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    names = list(job.inputs)

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        given = dict(zip(names, arrays, strict=True))
        found = request.infer(given, share_inputs=True, share_outputs=True)
        return list(found.values())

    return run


RUNTIMES: dict[str, Callable[[Job], Run]] = {
    "whet": load_whet,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
}


def _as_tuple(result: Any) -> Sequence[Array]:
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r) for r in results]
