"""The networks in small for GPUs, their text run on this CPU (`tools.cuda_on_cpu`)."""

from __future__ import annotations

import numpy as np
import pytest

import whet
from tests.joint.walks import inputs_for
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.backend import gpu_in_this_process
from whet.frontend.onnx import import_model
from whet.graph.interpret import interpret
from zoo.reduced import REDUCED, TOKENS

pytestmark = needs_text_runner

ALLOWED = {"fp32": 2e-6, "fp32x3": 2e-5, "tf32": 2e-3, "fp16": 5e-3}
"""Errors against double precision, relative to the norm."""
NETWORKS = {
    "resnet50": ("fp32", "fp16"), "mobilenet_v2": ("fp32",), "resnet18_3d": ("fp32x3", "tf32"),
    "dcgan": ("tf32",), "bert_base": ("fp32", "fp16"), "resnext50": ("tf32",),
    "vit_tiny": ("fp32x3",), "llama_prefill": ("fp16",),
}  # fmt: skip


@pytest.mark.parametrize(("name", "precision"), [(n, p) for n in NETWORKS for p in NETWORKS[n]])
def test_networks(name: str, precision: str) -> None:
    model = REDUCED[name]()
    graph = import_model(model).graph
    arrays = inputs_for(graph, np.random.default_rng(0), TOKENS)
    with gpu_in_this_process(checked=False):
        compiled = whet.compile(model, target="cuda-sm_90a", precision=precision)
        found = compiled(*arrays)
    results = found if isinstance(found, tuple) else (found,)
    for got, want in zip(results, interpret(graph, arrays, precise=True), strict=True):
        off = np.linalg.norm(np.asarray(got, np.float64) - want)
        assert off <= ALLOWED[precision] * np.linalg.norm(want)
