"""The models that are replayed: networks, the operator suite, contractions of the user's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from zoo.einsums import CONTRACTIONS
from zoo.networks import BUILDERS, build_networks
from zoo.operators import cases


def model_names(pattern: str = "") -> list[str]:
    """The names that contain the pattern, large models first: they take the longest."""
    names = [*BUILDERS, *map(str, cases()), *map(str, CONTRACTIONS)]
    return [name for name in names if re.search(pattern, name)]


def write_model(name: str, folder: Path) -> Path:
    """The model as a file."""
    if name in BUILDERS:
        return build_networks(folder, [name])[0].path
    found = {str(case): case for case in (*cases(), *CONTRACTIONS)}
    return found[name].written(folder).path
