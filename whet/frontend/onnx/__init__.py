"""ONNX models to Graph."""

from whet.frontend.onnx import (
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
from whet.frontend.onnx.imported import ImportedModel as ImportedModel
from whet.frontend.onnx.importer import import_model as import_model
