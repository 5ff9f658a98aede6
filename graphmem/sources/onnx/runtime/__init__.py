"""An ONNX model as ONNX Runtime runs it: its optimized graph, kernels, and packed weights."""
