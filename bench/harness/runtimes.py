"""Runtimes that only benchmarks need, beside those of `whet bench`.

`whet` and `whet_into` refuse to run in the interpreter.  For `fma`, `bandwidth` and
`memcpy_shared` the result is the work of a call; those that end in `_shared` use arrays that all
of them share; `torch`, `torch_*` and `jax` translate the ONNX model operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from whet.cli.peers.runtimes import Job, Run
from whet.core.errors import fail
from whet.core.types import Array


def load_whet(job: Job) -> Run:
    """As users call it: every call makes its results."""
    f = _native(job)

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        found = f(*arrays)
        return found if isinstance(found, tuple) else (found,)

    return run


def load_whet_into(job: Job) -> Run:
    """Into arrays that exist already."""
    f = _native(job)
    results = [np.empty(s.shape, s.dtype.numpy) for s in f.outputs]

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        f(*arrays, out=results)
        return results

    return run


def load_whet_shared(job: Job) -> Run:
    """From and into arrays that all processes share."""
    f = _native(job)
    given, result = _shared(job)

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        f(*given, out=[result])
        return [result]

    return run


def _native(job: Job) -> Any:
    import whet

    f = whet.compile(job.model, dict(job.inputs), job.threads, job.budget,
                     numerics=job.numerics, note=lambda message: None)  # fmt: skip
    if f.engine == "interpreter":
        fail("WH3005", "whet would run in its interpreter, which is not what is measured here")
    return f


def load_fma(job: Job) -> Run:
    from harness.probes import fma_probe

    return _probing(fma_probe(job.threads))


def load_memcpy_shared(job: Job) -> Run:
    """The C library's copy of the first of the shared arrays to their result."""
    from harness.probes import memcpy_probe

    given, result = _shared(job)
    return _probing(memcpy_probe(given[0], result, job.threads))


def load_bandwidth(job: Job) -> Run:
    """The model is the kind of traffic, the input the bytes of an array."""
    from harness.probes import bandwidth_probe

    return _probing(bandwidth_probe(job.model, int(job.inputs["size"]), job.threads))


def _shared(job: Job) -> tuple[list[Array], Array]:
    """The arrays beside the model that all contestants read and write."""
    from harness.shared import map_shared

    return map_shared(Path(job.model).parent, job.inputs)


def _probing(probe: Any) -> Run:
    work = [np.asarray(probe.work)]

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        probe.call()
        return work

    return run


def load_torch(job: Job) -> Run:
    """Eager, in the model's own layout (channels first)."""
    return _torch_call(job, _torch_module(job), channels_last=False)


def load_torch_channels_last(job: Job) -> Run:
    """Eager, weights and inputs channels last."""
    from harness.onnx_torch import channels_last

    return _torch_call(job, channels_last(_torch_module(job)), channels_last=True)


def load_torch_prepacked(job: Job) -> Run:
    """Convolution with its relu through oneDNN with weights in oneDNN's own order."""
    from harness.onnx_torch import prepacked

    module = _torch_module(job)
    return _torch_call(job, prepacked(module, job.inputs), channels_last=True)


def load_torch_compile(job: Job) -> Run:
    """torch.compile with constant weights."""
    import torch
    import torch._inductor.config as settings

    settings.freezing = True
    settings.cpp.threads = job.threads
    torch._dynamo.reset()
    return _torch_call(job, torch.compile(_torch_module(job)), channels_last=False)


def load_torch_function(job: Job) -> Run:
    """One function of torch, named by the model, into an array that exists already."""
    first = next(iter(job.inputs.values()))
    return _torch_function(job, job.model, list(job.inputs.values()), np.empty_like(first))


def load_torch_shared(job: Job) -> Run:
    """The same from and into the shared arrays; the model's file is named after the function."""
    given, result = _shared(job)
    return _torch_function(job, Path(job.model).stem, given, result)


def _torch_function(job: Job, name: str, arrays: Sequence[Array], into: Array) -> Run:
    torch = _torch(job)
    given, result = [torch.from_numpy(a) for a in arrays], torch.from_numpy(into)
    width = given[0].shape[-1:]
    mean = torch.empty(*given[0].shape[:-1], 1)
    deviation = torch.empty_like(mean)
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: torch.add(*given, out=result),
        "relu": lambda: torch.clamp_min(given[0], 0, out=result),
        "copy": lambda: result.copy_(given[0]),
        "exp": lambda: torch.exp(given[0], out=result),
        "tanh": lambda: torch.tanh(given[0], out=result),
        "softmax": lambda: torch.softmax(given[0], -1, out=result),
        "layer_norm": lambda: torch.ops.aten.native_layer_norm.out(
            given[0], list(width), given[1], given[2], 1e-5,
            out0=result, out1=mean, out2=deviation),
    }  # fmt: skip
    call, results = calls[name], [into]

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        with torch.inference_mode():
            call()
        return results

    return run


def load_jax(job: Job) -> Run:
    """jax.jit of the model, weights as arguments."""
    _require("jax")
    from harness.onnx_jax import jitted

    return jitted(job.model, job.inputs)


TVM_FAILED = 1e9
"""Seconds that TVM notes for trials that failed are above."""


def load_tvm(job: Job) -> Run:
    """TVM's MetaSchedule through its graph front end; the budget is a number of trials.

    Weights stay parameters, so that what is tuned holds no constants.
    """
    import tempfile

    import onnx

    tvm = _require("tvm")
    relax = _require("tvm.relax")
    from_onnx = _require("tvm.relax.frontend.onnx").from_onnx
    schedule = _require("tvm.s_tir.meta_schedule")
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": job.threads})
    module = from_onnx(onnx.load(job.model), keep_params_in_input=True)
    module, weights = relax.frontend.detach_params(module)
    module = relax.get_pipeline("zero")(module)
    trials = int(job.budget)
    with target, tempfile.TemporaryDirectory() as folder:
        found = schedule.relax_integration.tune_relax(
            module, {}, target, work_dir=folder, max_trials_global=trials,
            num_trials_per_iter=min(32, trials), seed=0, builder=_tvm_builder(job.threads),
        )  # fmt: skip
        tried = [min(map(float, record.run_secs)) for record in found.get_all_tuning_records()]
        if min(tried, default=TVM_FAILED) >= TVM_FAILED:
            fail("WH3005", f"none of TVM's {trials} trials ended well")
        built = schedule.relax_integration.compile_relax(found, module, target, {})
    machine = relax.VirtualMachine(built, tvm.cpu())
    given = [tvm.runtime.tensor(a) for a in job.inputs.values()] + list(weights.get("main", []))

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        result = machine["main"](*given)
        return [r.numpy() for r in ([result] if hasattr(result, "numpy") else result)]

    return run


def _tvm_builder(processes: int) -> Any:
    """TVM's builder, but for what it loads first.

    Its processes, new in every round, spend a quarter of a minute on intrinsics of other targets
    before they compile anything, and TVM's own limit of 30 s takes that for the candidate's time.
    """

    def build(module: Any, target: Any, parameters: Any) -> Any:  # pickled by value
        from tvm.driver import build as compiled
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        return compiled(
            RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target
        )

    builder = _require("tvm.s_tir.meta_schedule.builder")
    return builder.LocalBuilder(max_workers=processes, timeout_sec=120.0, f_build=build)


def _require(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        fail("WH3005", f"{name} is not installed", str(error), hint=f"pip install {name}")


def _torch(job: Job) -> Any:
    torch = _require("torch")
    torch.set_num_threads(job.threads)
    return torch


def _torch_module(job: Job) -> Any:
    _torch(job)
    from harness.onnx_torch import translated

    return translated(job.model)


def _torch_call(job: Job, module: Any, channels_last: bool) -> Run:
    import torch

    given = [torch.from_numpy(a) for a in job.inputs.values()]
    if channels_last:
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        given = [g.to(memory_format=formats.get(g.ndim, torch.contiguous_format)) for g in given]

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        with torch.no_grad():
            return [r.numpy() for r in module(*given)]

    return run


BENCH_RUNTIMES: dict[str, Callable[[Job], Run]] = {
    "whet": load_whet,
    "whet_into": load_whet_into,
    "whet_shared": load_whet_shared,
    "memcpy_shared": load_memcpy_shared,
    "fma": load_fma,
    "bandwidth": load_bandwidth,
    "torch": load_torch,
    "torch_channels_last": load_torch_channels_last,
    "torch_prepacked": load_torch_prepacked,
    "torch_compile": load_torch_compile,
    "torch_function": load_torch_function,
    "torch_shared": load_torch_shared,
    "jax": load_jax,
    "tvm": load_tvm,
}
