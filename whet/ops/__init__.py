"""The operators, one file per family.  Importing this package registers all of them."""

from whet.ops import (
    activation as activation,
    arithmetic as arithmetic,
    attention as attention,
    casting as casting,
    cumulative as cumulative,
    gather as gather,
    host as host,
    linalg as linalg,
    logic as logic,
    matmul as matmul,
    movement as movement,
    normalize as normalize,
    quantize as quantize,
    random as random,
    recurrent as recurrent,
    reduce as reduce,
    resize as resize,
    scan as scan,
    scatter as scatter,
    select as select,
    signal as signal,
    softmax as softmax,
)
from whet.ops.base import REGISTRY as REGISTRY, Op as Op, operator as operator
