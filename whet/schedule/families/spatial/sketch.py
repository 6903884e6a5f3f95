"""The sketches of lanes along a spatial axis, whole groups, or across what is reduced."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.spatial.lower import lower_spatial
from whet.schedule.families.spatial.match import (
    SpatialTiling,
    find_across,
    find_spatial,
    find_whole_groups,
)
from whet.schedule.families.spatial.nests import spatial_nests
from whet.schedule.families.spatial.price import spatial_costs, spatial_holes

SPATIAL = Family(
    "spatial",
    find_spatial,
    SpatialTiling,
    spatial_holes,
    spatial_costs,
    lower_spatial,
    spatial_nests,
)
GROUPS = Family(
    "groups",
    find_whole_groups,
    SpatialTiling,
    spatial_holes,
    spatial_costs,
    lower_spatial,
    spatial_nests,
)
ACROSS = Family(
    "across", find_across, SpatialTiling, spatial_holes, spatial_costs, lower_spatial, spatial_nests
)
