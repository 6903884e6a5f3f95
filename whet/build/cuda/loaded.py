"""The part of a segment that all its calls share: kernels and constants on the GPU."""

from __future__ import annotations

import sys

from whet.build.cuda.image import CudaImage
from whet.codegen.cuda.driver import Driver, Handle
from whet.codegen.cuda.memory import shared_memory, uploaded

Use = tuple[int, int]
"""A parameter: the number of a launch, and the position in it."""


class Loaded:
    """An image on the GPU."""

    def __init__(self, image: CudaImage, driver: Driver, arrays: int, *, early: bool) -> None:
        self.image, self.driver = image, driver
        self.constants = uploaded(driver, image.constants)
        self.shared = [shared_memory(driver, key, data) for key, data in image.shared.items()]
        self.modules: list[Handle] = []
        for cubin in image.cubins:
            self.modules.append(driver.load(cubin))
        self.functions = [driver.function(self.modules[c.cubin], c.launch) for c in image.calls]
        self.early = [early and c.launch.awaits for c in image.calls]
        self.uses: list[list[Use]] = [[] for _ in range(arrays)]
        """The parameters that are the caller's arrays, by array."""
        for number, call in enumerate(image.calls):
            for position, slot in enumerate(call.slots):
                if slot.kind == "array":
                    self.uses[slot.at].append((number, position))

    def __del__(self) -> None:
        if not sys.is_finalizing():
            for module in getattr(self, "modules", ()):
                self.driver.unload(module)
