"""ONNX models: read as plain data, and translated to torch."""
