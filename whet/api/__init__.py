"""The Python interface: compile a model, call it, store it, load it."""

from whet.api.compiled import CompiledModel as CompiledModel
from whet.api.compiler import compile as compile
from whet.api.storage import load as load
