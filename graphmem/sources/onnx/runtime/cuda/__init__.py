"""ONNX Runtime's CUDA provider: which nodes it takes, and where their values lie."""
