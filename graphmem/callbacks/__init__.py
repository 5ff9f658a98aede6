"""Callbacks that say what a training will take before its first step, and what it took.

``graphmem.callbacks.transformers.MemoryCallback`` is for the Trainer of transformers,
``graphmem.callbacks.lightning.MemoryCallback`` for Lightning's.
"""
