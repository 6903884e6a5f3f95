"""ONNX element-wise operators."""

from __future__ import annotations

from whet.frontend.onnx.mapping import direct
from whet.ops.elementwise import Add, Equal, Relu

direct("Add", Add, since=7)
direct("Relu", Relu)
direct("Equal", Equal, since=7)
