"""Serving a model by ONNX Runtime: what it holds, from the file and the sizes of its inputs."""
