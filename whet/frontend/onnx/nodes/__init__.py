"""The meaning of ONNX's nodes, one file per family; importing the package registers all."""

from whet.frontend.onnx.nodes import (
    attention as attention,
    casting as casting,
    contraction as contraction,
    control as control,
    elementwise as elementwise,
    gather as gather,
    glue as glue,
    host as host,
    integer_products as integer_products,
    movement as movement,
    native as native,
    normalize as normalize,
    optimizer as optimizer,
    pool as pool,
    quantize as quantize,
    recurrent as recurrent,
    reduce as reduce,
    resize as resize,
    sequence as sequence,
    signal as signal,
)
