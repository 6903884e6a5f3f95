"""The sketch of chains of stages along contiguous rows."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.rows.lower import lower_rows
from whet.schedule.families.rows.match import RowTiling, find_rows
from whet.schedule.families.rows.nests import row_nests
from whet.schedule.families.rows.price import row_costs, row_holes

ROWS = Family("rows", find_rows, RowTiling, row_holes, row_costs, lower_rows, row_nests)
