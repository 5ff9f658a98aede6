"""Which kernels PyTorch runs for a convolution: cuDNN's, or its own.

Source: aten/src/ATen/native/Convolution.cpp, ``_select_conv_backend``, ``use_cudnn``,
``use_cudnn_depthwise``, ``check_cudnn_depthwise_workload_with_filter`` (torch 2.13).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch

from graphmem.devices import Gpu
from graphmem.targets.cuda.cudnn.formats import Format, of_convolution
from graphmem.targets.layout import Layout

_INT_MAX = 2**31 - 1


class Backend(Enum):
    """Families of kernels."""

    EMPTY = "an elementwise product of nothing"
    CUDNN = "cuDNN"
    DEPTHWISE = "PyTorch's depthwise kernel"
    COLUMNS = "im2col and cuBLAS"


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a convolution does; one number a spatial dimension."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @property
    def is_dilated(self) -> bool:
        """Whether the kernel has gaps."""
        return any(d != 1 for d in self.dilation)


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, and the reason in words."""

    backend: Backend
    why: str


def choose(input: Layout, weight: Layout, geometry: Geometry, gpu: Gpu) -> Choice:
    """The kernels for an input [N, C, (D,) H, W] and a weight, both with a batch dimension."""
    if 0 in input.size[:2]:
        return Choice(Backend.EMPTY, "an empty input")
    if _is_depthwise(input, weight, geometry):
        if _cudnn_takes_depthwise(input, weight, geometry, gpu):
            return Choice(Backend.CUDNN, "depthwise, where cuDNN is the faster")
        return Choice(Backend.DEPTHWISE, "depthwise")
    why_not = _why_not_cudnn(input, weight, geometry, gpu)
    return Choice(Backend.COLUMNS, why_not) if why_not else Choice(Backend.CUDNN, "the default")


def _why_not_cudnn(input: Layout, weight: Layout, geometry: Geometry, gpu: Gpu) -> str:
    """Why ``use_cudnn`` says no; empty if it says yes."""
    if not torch.backends.cudnn.enabled:
        return "torch.backends.cudnn.enabled is off"
    if torch.bfloat16 in (input.dtype, weight.dtype) and gpu.sm < 80:
        return f"cuDNN has no bfloat16 convolutions before SM 8.0; {gpu.name} has {gpu.arch}"
    if any(p >= s for p, s in zip(geometry.output_padding, geometry.stride, strict=True)):
        return "an output padding as large as the stride"
    return ""


def _is_depthwise(input: Layout, weight: Layout, geometry: Geometry) -> bool:
    channels = input.size[1]
    return (
        not geometry.transposed
        and channels == geometry.groups > 1
        and weight.size[0] % channels == 0
    )


def _cudnn_takes_depthwise(input: Layout, weight: Layout, geometry: Geometry, gpu: Gpu) -> bool:
    if not torch.backends.cudnn.enabled:
        return False
    if not (_fits_32_bits(input) and _fits_32_bits(weight)):
        return True
    if of_convolution(input, weight) is Format.CHANNELS_LAST:
        return True
    half = input.dtype is torch.float16 and weight.dtype is torch.float16
    fits = (
        gpu.sm >= 70
        and not _why_not_cudnn(input, weight, geometry, gpu)
        and half
        and len(input.size) == 4
        and not geometry.is_dilated
        and (geometry.stride[0] == geometry.stride[1] or input.size[2] == 1)
        and input.size[1] >= 32
    )
    return fits and _cudnn_is_faster(input, weight, geometry.stride[1])


def _cudnn_is_faster(input: Layout, weight: Layout, stride: int) -> bool:
    """``check_cudnn_depthwise_workload_with_filter``, and the setting that overrules it."""
    kernel = torch._C._get_cudnn_depthwise_kernel()
    if kernel != "auto":
        return bool(kernel == "cudnn")
    batch, channels, height, width = input.size
    if height == 1 and stride == 1:
        return True
    side = weight.size[3]
    if weight.size[2] != side or side not in (1, 3, 5) or width < 7:
        return False
    if stride != 2:
        return stride == 1
    if batch == 1:
        return side != 1 or width <= 28
    if side == 1:
        return batch <= 16 and channels >= 128 and width <= 7
    return channels >= 512 or (channels >= 256 and width >= 28)


def _fits_32_bits(tensor: Layout) -> bool:
    """Source: aten/src/ATen/native/IndexingUtils.cpp, ``canUse32BitIndexMath``."""
    farthest = sum((n - 1) * s for n, s in zip(tensor.size, tensor.stride, strict=True))
    return tensor.numel < _INT_MAX and farthest < _INT_MAX
