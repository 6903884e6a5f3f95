"""Signals between the converters of nodes and the walk over a model."""

from __future__ import annotations


class Deferred(Exception):  # noqa: N818 - a signal to the importer, no error of its own
    """The node reads a value whose shape is known only when the model runs."""


class DeferredInside(Deferred):
    """A node inside the node, in a subgraph or function, reads such a value."""


class Reported(Exception):  # noqa: N818 - a signal to the importer, no error of its own
    """The node cannot be converted because of parts that are reported already."""
