"""Constants of kinds of processors: which machine gets which, and whether they make sense."""

from __future__ import annotations

import dataclasses

import pytest

from whet.core.constants import CONSTANTS
from whet.core.cpu import PRESETS
from whet.core.kinds import KINDS, SHARED, Kind, nearest_kind


@pytest.mark.parametrize(
    ("processor", "bits", "kind"),
    [
        ("AMD EPYC 9R14", 512, "Zen 4"),
        ("AMD Ryzen 7 5800X 8-Core Processor", 256, "Zen 4 without AVX-512"),
        ("Intel(R) Xeon(R) Platinum 8488C", 512, "Sapphire Rapids or later"),
        ("Intel(R) Xeon(R) Processor as x86-64-v3", 256,
         "Sapphire Rapids or later, without AVX-512"),
    ],
)  # fmt: skip
def test_processors_get_the_nearest_kind(processor: str, bits: int, kind: str) -> None:
    found = nearest_kind(processor, bits)
    assert found is not None
    assert found.name == kind


@pytest.mark.parametrize(("processor", "bits"), [("x86-64-v3", 256), ("AMD EPYC 9R14", 128)])
def test_others_get_none(processor: str, bits: int) -> None:
    assert nearest_kind(processor, bits) is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_figures_are_within_limits(kind: Kind) -> None:
    for name, value in kind.measured.items():
        assert CONSTANTS[name].low <= value <= CONSTANTS[name].high
    two = kind.constants(2)
    assert all(two[together] <= 2 * two[alone] for together, alone in SHARED.items())


def test_what_was_measured_comes_first_then_the_kind_then_the_default() -> None:
    preset = PRESETS["x86-64-v4"]
    known = dataclasses.replace(preset, name="AMD EPYC 9R14").calibrated(far_felt=0.7)
    assert known.constant("far_felt") == 0.7
    assert known.constant("memory_felt") == KINDS[0].measured["memory_felt"]
    assert known.constant("fork_join_ns") == CONSTANTS["fork_join_ns"].default
    assert preset.constant("memory_felt") == CONSTANTS["memory_felt"].default
    origins = {name: known.origin(name) for name in ("far_felt", "memory_felt", "fork_join_ns")}
    assert list(origins.values()) == ["measured", "similar", "default"]
    assert not known.is_calibrated
