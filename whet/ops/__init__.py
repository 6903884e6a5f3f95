"""The operators, one file per family.  Importing this package registers all of them."""

from whet.ops import (
    elementwise as elementwise,
    matmul as matmul,
    movement as movement,
)
from whet.ops.base import REGISTRY as REGISTRY, Op as Op, operator as operator
