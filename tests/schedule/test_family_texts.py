"""What families of sketches and the code generator make of small tasks, as golden texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.schedule.family_kernels import EXAMPLES, SKETCHES, TARGET, example_kernel
from tests.schedule.windows import module_text
from whet.ir.tensor import describe


@pytest.mark.parametrize("family", EXAMPLES)
def test_program(family: str, golden: Callable[[str], None]) -> None:
    holes, kernel = example_kernel(family)
    parts = {
        "task": describe(*EXAMPLES[family].task.outputs),
        "holes": "\n".join(f"{name} {value}" for name, value in holes.items()),
        "program": str(kernel.program),
    }
    golden("\n".join(f"--- {title}\n{text.rstrip()}\n" for title, text in parts.items()))


@pytest.mark.parametrize("family", EXAMPLES)
def test_module(family: str, golden: Callable[[str], None]) -> None:
    _, kernel = example_kernel(family)
    golden(module_text(kernel, TARGET))


def test_every_family_has_an_example() -> None:
    assert set(EXAMPLES) == {n for n, s in SKETCHES.items() if s.machine == "cpu"}
