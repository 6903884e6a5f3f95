"""ONNX models to Graph."""

from whet.frontend.onnx import casting as casting, elementwise as elementwise
from whet.frontend.onnx.importer import import_model as import_model
