"""ONNX models to Graph."""

from whet.frontend.onnx import elementwise as elementwise
from whet.frontend.onnx.importer import import_model as import_model
