"""The process that tries models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from whet.api.reduce.judging import judged
from whet.core.module_executor import OutsideModule
from whet.core.types import Array
from whet.measure.serving import Answer, physical_memory, restrict, serve


def handle(message: dict[str, Any], arrays: Sequence[Array], answer: Answer) -> None:
    match message["do"]:
        case "load":
            for source in message["modules"]:
                OutsideModule(source).load()
        case "judge":
            found = judged(message, list(arrays), lambda: answer({"beat": True}))
            answer({"finding": asdict(found)})


def main() -> None:
    restrict(memory_bytes=physical_memory())
    serve(handle)
