"""Whether LLVM can be used here."""

from __future__ import annotations

import importlib


def why_unavailable() -> str | None:
    """Why no code can be generated; None where LLVM is installed and can be loaded."""
    try:
        importlib.import_module("llvmlite.binding")
    except ImportError:
        return "llvmlite, which generates native code, is not installed"
    except OSError as error:  # its library: not enough memory, or a damaged installation
        why = str(error.__cause__ or error.__context__ or error).partition("\n")[0]
        return f"llvmlite, which generates native code, cannot be loaded ({why})"
    return None
