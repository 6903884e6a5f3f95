"""A process that compiles: objects are the source texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.measure.cuda.fake_gpu import FIRST, NAMES
from whet.core.types import Array
from whet.measure.serving import Answer, serve

REFUSED = str(FIRST + NAMES.index("is not compiled"))


def build(message: dict[str, Any], arrays: Sequence[Array], answer: Answer) -> None:
    text = message["job"]["text"]
    if REFUSED in text:
        answer({"ok": False, "message": "an identifier is undefined"})
        return
    answer({"ok": True, "ms": 1.0}, [np.frombuffer(text.encode(), np.uint8)])


def main() -> None:
    serve(build)
