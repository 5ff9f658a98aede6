"""The trace: a model's own steps, run on hollow tensors and recorded."""
