"""Models for a GPU where there is none, or no compiler for it: one error, and a hint."""

from __future__ import annotations

import pytest

import whet
from tests.api.test_precision import product
from whet.build.backend import named_target
from whet.codegen.cuda import bindings, nvrtc
from whet.core.errors import UsageError, fail


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        fail("WH1008", "no NVRTC", hint=nvrtc.HINT, kind=UsageError)

    monkeypatch.setattr(nvrtc, "nvrtc_version", missing)
    for name in ("cuda", "cuda-sm_90a"):
        with pytest.raises(UsageError, match="no NVRTC") as error:
            whet.compile(product(), target=name)
        assert error.value.code == "WH1008"
        assert error.value.hint == "pip install 'whet[cuda]'"


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "13.0")

    def missing() -> object:
        fail("WH1010", "there is no NVIDIA driver here", hint="use cpu", kind=UsageError)

    monkeypatch.setattr(bindings, "cuda_driver", missing)
    with pytest.raises(UsageError, match="no NVIDIA driver") as error:
        named_target("cuda")
    assert error.value.code == "WH1010"
    assert error.value.hint
