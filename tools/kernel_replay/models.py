"""The models that are replayed: networks, the operator suite, contractions of the user's own."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from harness.tuning import graph_of
from whet.graph.graph import Graph
from zoo.einsums import CONTRACTIONS
from zoo.networks import BUILDERS, build_networks
from zoo.operators import cases


def model_names(pattern: str = "") -> list[str]:
    """The names that contain the pattern, large models first: they take the longest."""
    names = [*BUILDERS, *map(str, cases()), *map(str, CONTRACTIONS)]
    return [name for name in names if re.search(pattern, name)]


def model_graph(name: str) -> Graph:
    """The model as it is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        if name in BUILDERS:
            (network,) = build_networks(Path(folder), [name])
        else:
            found = {str(case): case for case in (*cases(), *CONTRACTIONS)}
            network = found[name].written(Path(folder))
        return graph_of(network.path)
