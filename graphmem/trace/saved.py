"""Saved-for-backward tensors, named by the autograd engine itself.

``torch.autograd.graph.saved_tensors_hooks`` hands over each tensor that a node saves. The
user's own hooks (``save_on_cpu``, checkpointing) are innermost and take precedence, as
they do in a real run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import graph

from graphmem.schedule import TOP_LEVEL
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced


@contextmanager
def saved_tensors(recorder: Recorder) -> Iterator[None]:
    """Tell the recorder of every tensor that autograd saves."""
    stack = recorder.places.stack

    def pack(tensor: Tensor) -> tuple[Tensor, int]:
        recorder.books.saved(tensor, stack[-1] if stack else TOP_LEVEL)
        with recorder.paused():
            return (_without_cycle(tensor), tensor._version)

    def unpack(packed: tuple[Tensor, int]) -> Tensor:
        tensor, version = packed
        if tensor._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a {tuple(tensor.shape)} tensor is at version "
                f"{tensor._version}; expected version {version} instead"
            )
        return tensor

    hooks = graph.saved_tensors_hooks(pack, unpack)
    with _yields_to_disabling(hooks), hooks:
        yield


def _without_cycle(tensor: Tensor) -> Tensor:
    """A node that saves its own output must not hold the tensor that holds the node.

    Without hooks autograd saves such an output detached (saved_variable.cpp); with hooks
    that is left to them.
    """
    node = tensor.grad_fn
    if node is None or node._sequence_nr() < torch._C._autograd._get_sequence_nr() - 1:
        return tensor
    return tensor.detach()


@contextmanager
def _yields_to_disabling(hooks: Any) -> Iterator[None]:
    """torch.func's transforms refuse to run under saved-tensor hooks: step aside for them."""
    original = graph.disable_saved_tensors_hooks

    @contextmanager
    def disable(message: str) -> Iterator[None]:
        hooks.__exit__(None, None, None)
        try:
            with original(message):
                yield
        finally:
            hooks.__enter__()

    with replaced(graph, "disable_saved_tensors_hooks", disable):
        yield
