"""The benchmark networks as ONNX models with seeded random weights, written node by node."""
