"""Trees of LightGBM as the lines that `whet.schedule.cost.trees` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lightgbm import Booster


def lines_of(booster: Booster, columns: Sequence[str]) -> list[str]:
    """A line for every tree: questions and leaves from the root on."""
    trees = booster.dump_model()["tree_info"]
    return [" ".join(_words(tree["tree_structure"], columns)) for tree in trees]


def _words(node: Mapping[str, Any], columns: Sequence[str]) -> Iterator[str]:
    if "leaf_value" in node:
        yield f"{node['leaf_value']:.4g}"
        return
    yield f"{columns[node['split_feature']]}<={node['threshold']:.6g}"
    yield from _words(node["left_child"], columns)
    yield from _words(node["right_child"], columns)
