"""The operators, one file per family.  Importing this package registers all of them."""

from whet.ops import (
    activation as activation,
    arithmetic as arithmetic,
    attention as attention,
    casting as casting,
    cumulative as cumulative,
    logic as logic,
    matmul as matmul,
    movement as movement,
    normalize as normalize,
    recurrent as recurrent,
    reduce as reduce,
    scan as scan,
    softmax as softmax,
)
from whet.ops.base import REGISTRY as REGISTRY, Op as Op, operator as operator
