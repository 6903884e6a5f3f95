"""ONNX models to Graph."""

from whet.frontend.onnx import (
    casting as casting,
    contraction as contraction,
    control as control,
    elementwise as elementwise,
    gather as gather,
    glue as glue,
    host as host,
    integer_products as integer_products,
    movement as movement,
    normalize as normalize,
    pool as pool,
    quantize as quantize,
    recurrent as recurrent,
    reduce as reduce,
    resize as resize,
    sequence as sequence,
)
from whet.frontend.onnx.imported import ImportedModel as ImportedModel
from whet.frontend.onnx.importer import import_model as import_model
