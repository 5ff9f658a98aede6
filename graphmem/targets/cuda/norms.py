"""layer_norm, rms_norm and group_norm: statistics, the fused rms_norm, and scratch.

A row is what is normalised together; M rows of N elements. Sources, as of torch 2.13 and
2.14: aten/src/ATen/native/cuda/layer_norm_kernel.cu, cuda/group_norm_kernel.cu,
layer_norm.cpp and group_norm.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem.devices import Gpu
from graphmem.options import Target
from graphmem.targets.cuda.versions import TORCH_VERSION
from graphmem.targets.layout import Layout
from graphmem.targets.overrides import override
from graphmem.targets.results import fresh, results
from graphmem.targets.scratch import Bytes, Call, scratch

aten = torch.ops.aten


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which CUDA sums: fp32 for half types (``acc_type``, AccumulateType.h)."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def copy_bytes(tensor: Layout) -> int:
    """The bytes of the copy that ``tensor.contiguous()`` is; 0 if it is the tensor itself."""
    expected = fresh(tensor.size, tensor.dtype)
    same = all(
        size == 1 or stride == wanted
        for size, stride, wanted in zip(tensor.size, tensor.stride, expected.stride, strict=True)
    )
    return 0 if same or not tensor.numel else expected.nbytes


# -- layer_norm


@results(aten.native_layer_norm.default, target=Target.CUDA)
def layer_norm(call: Call) -> tuple[Layout, Layout, Layout]:
    """A contiguous result; mean and reciprocal deviation of each row, fp32 for half types.

    Inputs: input [..., *normalized_shape], normalized_shape, weight, bias, eps. The CPU
    keeps the statistics in the input's dtype. Source: ``layer_norm_cuda``.
    """
    return fresh(call.args[0].size, call.args[0].dtype), _rows(call), _rows(call)


def _rows(call: Call) -> Layout:
    """One number a row: the input's size with ones for the normalised dimensions."""
    source: Layout = call.args[0]
    kept = len(source.size) - len(call.args[1])
    size = source.size[:kept] + (1,) * len(call.args[1])
    return fresh(size, accumulated(source.dtype))


@scratch("aten::native_layer_norm", "aten::_fused_rms_norm", target=Target.CUDA)
def forward(call: Call) -> Bytes:
    """Contiguous copies of input, weight and bias, where they are not.

    Inputs: input, normalized_shape, weight, and for layer_norm bias, eps.
    Source: ``layer_norm_cuda``, ``_fused_rms_norm_cuda`` (``expect_contiguous``).
    """
    return tuple(copy_bytes(t) for t in call.args if isinstance(t, Layout))


@scratch("aten::native_layer_norm_backward", target=Target.CUDA)
def layer_norm_backward(call: Call) -> Bytes:
    """Copies, and partial sums for the gradients of weight and bias.

    Inputs: grad_out, input [M, N], normalized_shape, mean, rstd, weight, bias, output_mask.
    Source: ``layer_norm_backward_cuda``.
    """
    grad, source, shape, *_, mask = call.args
    wanted = sum(mask[1:])
    return _backward(call.gpu, grad, source, shape, wanted)


@scratch("aten::_fused_rms_norm_backward", target=Target.CUDA)
def rms_norm_backward(call: Call) -> Bytes:
    """As for layer_norm, with a gradient of the weight only.

    Inputs: grad_out, input [M, N], normalized_shape, rstd, weight, output_mask.
    Source: ``_fused_rms_norm_backward_cuda``.
    """
    grad, source, shape, *_, mask = call.args
    return _backward(call.gpu, grad, source, shape, int(mask[1]))


def _backward(
    gpu: Gpu, grad: Layout, source: Layout, shape: Sequence[int], wanted: int
) -> tuple[int, ...]:
    """Copies of input and grad_out, then for each wanted gradient its partial sums.

    With more than 65,536 rows that are short, they are summed in blocks first: for each
    gradient [blocks, N], and its final sum beside the first one.
    Source: ``LaunchGammaBetaBackwardCUDAKernel``.
    """
    width = math.prod(shape)
    rows = source.numel // width if width else 0
    copies = (copy_bytes(source), copy_bytes(grad))
    if rows <= 64 * 1024 or width // 32 >= gpu.multiprocessors // 2:
        return copies
    across = -(-width // 32)
    down = min(64 * 1024 // 2 // across, -(-rows // 32))
    row = shape[-1] * source.dtype.itemsize
    return (*copies, *(down * row,) * wanted, *(row,) * wanted)


# -- rms_norm


@override(aten.rms_norm.default, Target.CUDA)
def rms_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """One kernel, where input and weight have one real dtype and are not channels last.

    Source: ``rms_norm_symint``; what is left out runs ``rms_norm_composite``.
    """
    if _runs_fused(input, weight):
        fused: Tensor = aten._fused_rms_norm.default(input, normalized_shape, weight, eps)[0]
        return fused
    composed: Tensor = aten.rms_norm.default.decompose(input, normalized_shape, weight, eps)
    return composed


def _runs_fused(input: Tensor, weight: Tensor | None) -> bool:
    channels_last = (torch.channels_last, torch.channels_last_3d)
    return (
        torch._prims_common.suggest_memory_format(input) not in channels_last
        and not input.is_complex()
        and (weight is None or weight.dtype is input.dtype)
    )


@results(aten._fused_rms_norm.default, target=Target.CUDA)
def fused_rms_norm(call: Call) -> tuple[Layout, Layout]:
    """A contiguous result, and the reciprocal root of each row, fp32 for half types.

    Inputs: input [..., *normalized_shape], normalized_shape, weight, eps.
    Source: ``_fused_rms_norm_cuda``.
    """
    return fresh(call.args[0].size, call.args[0].dtype), _rows(call)


@results(aten._fused_rms_norm_backward.default, target=Target.CUDA)
def fused_rms_norm_backward(call: Call) -> tuple[Layout | None, Layout | None]:
    """Contiguous gradients of input and weight.

    Inputs: grad_out, input, normalized_shape, rstd, weight, output_mask.
    Source: ``_fused_rms_norm_backward_cuda``.
    """
    source, weight, mask = call.args[1], call.args[4], call.args[5]
    return (
        fresh(source.size, source.dtype) if mask[0] else None,
        fresh(weight.size, weight.dtype) if mask[1] and weight is not None else None,
    )


# -- group_norm


@override(aten.group_norm.default, Target.CUDA)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Up to torch 2.13 a contiguous copy of the input is made here, and saved.

    From 2.14 on the kernel makes it for itself. Source: ``group_norm``.
    """
    source = input.contiguous() if TORCH_VERSION < (2, 14) else input
    batch, channels, *rest = input.shape
    result: Tensor = aten.native_group_norm.default(
        source, weight, bias, batch, channels, math.prod(rest), num_groups, eps
    )[0]
    return result


@results(aten.native_group_norm.default, target=Target.CUDA)
def native_group_norm(call: Call) -> tuple[Layout, Layout, Layout]:
    """A contiguous result; mean and reciprocal deviation [N, G] in the input's dtype.

    Inputs: input [N, C, *], weight, bias, N, C, HxW, G, eps. Source: ``native_group_norm``.
    """
    source: Layout = call.args[0]
    statistics = fresh((call.args[3], call.args[6]), source.dtype)
    return fresh(source.size, source.dtype), statistics, statistics


@results(aten.native_group_norm_backward.default, target=Target.CUDA)
def native_group_norm_backward(call: Call) -> tuple[Layout | None, ...]:
    """Contiguous gradients of input, weight and bias.

    Inputs: grad_out, input [N, C, *], mean, rstd, weight, N, C, HxW, G, output_mask.
    Source: ``native_group_norm_backward``.
    """
    source, weight, mask = call.args[1], call.args[4], call.args[9]
    gradient = fresh((call.args[6],), (source if weight is None else weight).dtype)
    made = (fresh(source.size, source.dtype), gradient, gradient)
    return tuple(layout if asked else None for layout, asked in zip(made, mask, strict=True))


@scratch("aten::native_group_norm", target=Target.CUDA)
def group_norm_forward(call: Call) -> Bytes:
    """fp32 statistics for half types, and a scale and a shift for each channel.

    Inputs: input [N, C, *], weight, bias, N, C, HxW, G, eps. Two fp32 [N, G] beside
    statistics of a half type; two [N, C] if there are weights and more than one element a
    channel. Source: ``GroupNormKernelImplInternal``, ``native_group_norm``.
    """
    source, weight, bias, batch, channels, area, groups, _ = call.args
    copy = copy_bytes(source)
    wide = accumulated(source.dtype)
    statistics = 0 if wide is source.dtype else batch * groups * wide.itemsize
    fused = area > 1 and not (weight is None and bias is None)
    parameters = batch * channels * wide.itemsize if fused else 0
    return (copy, statistics, statistics, parameters, parameters)


@scratch("aten::native_group_norm_backward", target=Target.CUDA)
def group_norm_backward(call: Call) -> Bytes:
    """Sums for each channel and each group, in fp32 for half types.

    Inputs: grad_out, input [N, C, *], mean, rstd, weight, N, C, HxW, G, output_mask. Two
    [N, C] (``ds``, ``db``); for the input's gradient two [N, G] (``c2``, ``c3``) and, if
    there is a weight, one [N, C] (``c1``). With one element a channel c2 and c3 only.
    Source: ``GroupNormBackwardKernelImplInternal``, ``GroupNorm1dBackward``.
    """
    grad, source, _, _, weight, batch, channels, area, groups, mask = call.args
    item = accumulated(source.dtype).itemsize
    channel, group = batch * channels * item, batch * groups * item
    blocks = [copy_bytes(grad), copy_bytes(source)]
    if area > 1:
        blocks += [channel, channel]
    if mask[0]:
        blocks += [group, group]
    if mask[0] and weight is not None and area > 1:
        blocks.append(channel)
    return tuple(blocks)
