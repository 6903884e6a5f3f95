"""The operators, one file per family.  Importing this package registers all of them."""

from whet.ops import (
    activation as activation,
    arithmetic as arithmetic,
    casting as casting,
    logic as logic,
    matmul as matmul,
    movement as movement,
)
from whet.ops.base import REGISTRY as REGISTRY, Op as Op, operator as operator
