"""Rules by family; importing this package registers them all."""

from graphmem.sources.onnx.rules import elementwise

__all__ = ["elementwise"]
