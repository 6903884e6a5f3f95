"""whet: trained models made as fast as the machine allows.

    import whet
    f = whet.compile("model.onnx")
    y = f(x)

Importing this package is cheap; the compiler is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whet.core.version import VERSION

if TYPE_CHECKING:
    from whet.api import CompiledModel as CompiledModel, compile as compile, load as load
    from whet.api.tuning import tune_model as tune_model
    from whet.core.errors import WhetError as WhetError, WhetWarning as WhetWarning
    from whet.graph.graph import Graph as Graph

__version__ = VERSION

_HOMES = {
    "CompiledModel": "whet.api",
    "Graph": "whet.graph.graph",
    "WhetError": "whet.core.errors",
    "WhetWarning": "whet.core.errors",
    "compile": "whet.api",
    "load": "whet.api",
    "tune_model": "whet.api.tuning",
}
__all__ = [
    "CompiledModel",
    "Graph",
    "WhetError",
    "WhetWarning",
    "__version__",
    "compile",
    "load",
    "tune_model",
]


def __getattr__(name: str) -> Any:
    """The public names, each imported from its home at first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'whet' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
