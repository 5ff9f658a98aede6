"""Channels last: weights and images as ``.to(memory_format=torch.channels_last)`` lays them out.

Source: torch/nn/modules/module.py, ``Module.to``: parameters and buffers of four dimensions are
converted, one of five is an error (torch 2.13). Inputs of four dimensions and floating point
are taken for images and converted too, as PyTorch's tutorial on channels last does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphmem.errors import UsageError
from graphmem.trace.hollow import hollow_storage, is_hollow, on_storage


def check_channels_last(model: nn.Module) -> None:
    """Refuse a model that ``Module.to`` refuses.

    Raises:
        UsageError: naming the weight of five dimensions.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.dim() == 5:
            raise UsageError(f"channels last: {name} has 5 dimensions; torch.channels_last is of 4")


def channels_last(tensor: Tensor) -> Tensor:
    """A tensor of four dimensions with its channels last, any other as it is."""
    if tensor.dim() != 4 or tensor.layout is not torch.strided:
        return tensor
    if not is_hollow(tensor):
        return tensor.to(memory_format=torch.channels_last)
    _, channels, height, width = tensor.shape
    strides = (channels * height * width, 1, channels * width, channels)
    storage = hollow_storage(tensor.numel() * tensor.element_size())
    return on_storage(storage, tensor.shape, strides, tensor.dtype)


def image(tensor: Tensor) -> Tensor:
    """An input, with its channels last if it is an image."""
    if not tensor.is_floating_point():
        return tensor
    return channels_last(tensor.detach()).requires_grad_(tensor.requires_grad)
