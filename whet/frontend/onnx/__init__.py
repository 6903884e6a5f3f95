"""ONNX models to Graph."""

from whet.frontend.onnx import nodes as nodes
from whet.frontend.onnx.imported import ImportedModel as ImportedModel
from whet.frontend.onnx.importer import import_model as import_model
