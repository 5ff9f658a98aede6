"""Saved activations in the host's memory: what ``torch.autograd.graph.save_on_cpu`` does.

Its hooks are around the model's call. On a GPU they

1. copy every tensor that autograd saves to the host, parameters as well as activations, and
   each view by itself, so that three views of one result are three copies. The copy of a dense
   tensor is laid out like it; pinned ones are contiguous. Where that is not the tensor's own
   layout, the GPU makes a contiguous copy first;
2. copy it back when backward asks for it, into new memory, as often as it is asked for.

Source: torch/autograd/graph.py, ``save_on_cpu``; aten/src/ATen/native/cuda/Copy.cu,
``copy_requires_temporaries`` (torch 2.13). On the CPU nothing is copied but for
``pin_memory``, as there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import graph

from graphmem.options import Target
from graphmem.schedule import TOP_LEVEL, Unknown
from graphmem.trace.recorder import Recorder

_copy = torch.ops.aten._to_copy.default
_STAYS = Unknown(
    "what save_on_cpu makes of tensors that are not dense", "saved for backward", "they stay"
)


class SavedOnHost(graph.saved_tensors_hooks):
    """The hooks of ``save_on_cpu`` in a trace.

    Args:
        target: the hooks of a run on which.
        pinned: the copies are pinned.
    """

    def __init__(self, recorder: Recorder, target: Target, *, pinned: bool) -> None:
        self._recorder = recorder
        self._leaves_gpu = target is Target.CUDA
        self._pinned = pinned
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> Tensor:
        stack = self._recorder.places.stack
        with torch.no_grad():
            packed = self._packed(tensor)
        self._recorder.books.saved(packed, stack[-1] if stack else TOP_LEVEL)
        return packed

    def _packed(self, tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided:
            self._recorder.ledger.note(_STAYS)
            return tensor
        if not self._leaves_gpu:
            return _pinned_copy(tensor) if self._pinned else tensor
        source = self._as_it_will_lie(tensor)
        copy = _pinned_copy(source) if self._pinned else _copy(source)
        self._lies(copy, on_host=True)
        return copy

    def _as_it_will_lie(self, tensor: Tensor) -> Tensor:
        """The tensor, or a copy on the GPU that can be copied to the host at once."""
        if self._pinned:
            return tensor.contiguous()
        is_dense = torch._prims_common.is_non_overlapping_and_dense_or_false(tensor)
        return tensor if is_dense else tensor.contiguous()

    def _unpack(self, packed: Tensor) -> Tensor:
        if packed.layout is not torch.strided or not self._leaves_gpu:
            return packed
        with torch.no_grad():
            made: Tensor = _copy(packed)
        self._lies(made, on_host=False)
        return made

    def _lies(self, tensor: Tensor, *, on_host: bool) -> None:
        lies_on_host(self._recorder, tensor, on_host)


def lies_on_host(recorder: Recorder, tensor: Tensor, on_host: bool = True) -> None:
    """Tell where a tensor's memory is."""
    for entry in recorder.ledger.entries_of(tensor):
        entry.host = on_host


def _pinned_copy(tensor: Tensor) -> Tensor:
    packed = torch.empty(tensor.size(), dtype=tensor.dtype)
    packed.copy_(tensor)
    return packed


def real_hooks(pinned: bool) -> Any:
    """The hooks in a real run: torch's own."""
    return graph.save_on_cpu(pin_memory=pinned)
