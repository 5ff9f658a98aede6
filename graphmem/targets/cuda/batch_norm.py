"""batch_norm: cuDNN's or CUDA's own kernels, what they return and their scratch.

Inputs are [N, C, *]. Sources, as of torch 2.13 and 2.14: aten/src/ATen/native/
Normalization.cpp, cudnn/BatchNorm.cpp, cuda/Normalization.cu and Normalization.cuh.
Not covered: ``nn.SyncBatchNorm`` with several processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from graphmem.options import Target
from graphmem.schedule import Unknown
from graphmem.targets import context
from graphmem.targets.cuda.cudnn import formats
from graphmem.targets.cuda.cudnn.formats import Format
from graphmem.targets.cuda.norms import accumulated
from graphmem.targets.layout import Layout, on_meta
from graphmem.targets.overrides import override
from graphmem.targets.results import fresh, results
from graphmem.targets.scratch import Bytes, Call, scratch

aten = torch.ops.aten

_impl_index = aten._batch_norm_impl_index.default


@override(_impl_index, Target.CUDA)
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Run cuDNN's batch norm where nothing stands against it, or else CUDA's own.

    Source: ``_batch_norm_impl_index``, ``_select_batch_norm_backend``.
    """
    arguments = (input, weight, bias, running_mean, running_var, training, momentum, eps)
    if input.numel() == 0:
        return _impl_index.decompose(*arguments, cudnn_enabled)
    told = context.current()
    reason = told.decided(_why_not_cudnn, *arguments)
    if reason is not None:
        told.chose("batch_norm", "native", f"not cudnn: {reason}")
        reserve = torch.empty(0, dtype=torch.uint8, device=input.device)
        return (*aten.native_batch_norm.default(*arguments), reserve, 0)
    told.chose("batch_norm", "cudnn", "the first choice, and nothing stands against it")
    form = torch._prims_common.suggest_memory_format(input)
    source = input.contiguous(memory_format=form)
    return (*aten.cudnn_batch_norm.default(source, *arguments[1:]), 1)


def _why_not_cudnn(*arguments: Any) -> str | None:
    return next(_against_cudnn(*arguments), None)


def _against_cudnn(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Iterator[str]:
    """What speaks against cuDNN, the most telling first (``_select_batch_norm_backend``)."""
    if not torch.backends.cudnn.enabled:
        yield "it is switched off"
    if weight is None or bias is None:
        yield "there is no weight and bias"
        return
    if torch.bfloat16 in (input.dtype, weight.dtype):
        yield "it takes no bfloat16"
    if input.dtype is torch.float16 and weight.dtype is not torch.float32:
        yield "with a float16 input it takes float32 weights"
    if (running_mean is None) != (running_var is None) or (running_mean is None and not training):
        yield "running statistics are missing"
    if input.dim() < 3:
        yield "the input has fewer than three dimensions"
    if input.shape[0] > (_MOST_IN_TRAINING if training else _MOST_IN_EVALUATION):
        yield "the batch is too large"
    if input.numel() >= 2**31 - 1:
        yield "the input has more elements than 32 bits count"
    if eps < 0:
        yield "eps is negative"  # CUDNN_BN_MIN_EPSILON is 0


_MOST_IN_TRAINING, _MOST_IN_EVALUATION = 880_801, 65_535


# -- cuDNN


@results(aten.cudnn_batch_norm.default, target=Target.CUDA)
def cudnn_batch_norm(call: Call) -> tuple[Layout, Layout, Layout, Layout]:
    """The result in the input's format, statistics as the weight, and an empty reserve.

    Inputs: input [N, C, *], weight, bias, running_mean, running_var, training, momentum,
    eps. The statistics, [C], are empty in evaluation. cuDNN's reserve is for a fused
    activation: ``cudnnGetBatchNormalizationTrainingExReserveSpaceSize`` of libcudnn 9.24
    answers 0 for CUDNN_BATCHNORM_OPS_BN, whatever the layout and dtype.
    Source: ``cudnn_batch_norm``.
    """
    source, weight, training = call.args[0], call.args[1], call.args[5]
    statistics = fresh((source.size[1] if training else 0,), weight.dtype)
    made = formats.new(source.size, source.dtype, _format(source))
    return made, statistics, statistics, fresh((0,), torch.uint8)


@results(aten.cudnn_batch_norm_backward.default, target=Target.CUDA)
def cudnn_batch_norm_backward(call: Call) -> tuple[Layout, Layout, Layout]:
    """Gradients of input, in its format, of weight and of bias; all three always.

    Inputs: input [N, C, *], grad_output, weight, ... Source: ``cudnn_batch_norm_backward``.
    """
    source, weight = call.args[0], call.args[2]
    made = formats.new(source.size, source.dtype, _format(source))
    gradient = fresh(weight.size, weight.dtype)
    return made, gradient, gradient


@scratch("aten::cudnn_batch_norm", target=Target.CUDA)
def cudnn_forward(call: Call) -> Bytes:
    """The workspace of cuDNN in training: partial sums, channels last only.

    Inputs: input [N, C, *], ..., training at position 5. For every tile of 64 rows (160 of
    a half type; a row is a pixel) two fp32 for each channel and an integer for each group of
    channels; 1,072 bytes and an integer a group more.
    Source: what ``cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize`` of libcudnn
    9.24 answered without a GPU (see ``rnn_sizes``) for 6,000 random shapes: with four
    channels and more this to the byte, the same for SM 7.5 to 10.0; and 0 where the input is
    not channels last. No measurement confirms it.
    """
    source: Layout = call.args[0]
    tiles = _tiles(source, 160 if source.dtype.itemsize == 2 else 64)
    if not call.args[5] or not tiles:
        return 0
    groups, channels = _channel_groups(source.size[1])
    return tiles * (8 * channels + 4 * groups) + 1072 + 4 * groups


@scratch("aten::cudnn_batch_norm_backward", target=Target.CUDA)
def cudnn_backward(call: Call) -> Bytes:
    """A copy of grad_output in the input's format, and cuDNN's workspace as in forward.

    Inputs: input [N, C, *], grad_output, ... For every tile of 96 rows two fp32 for each
    channel; 1,056 bytes and an integer for each group of channels more.
    Source: ``cudnn_batch_norm_backward``; for the workspace, as in forward,
    ``cudnnGetBatchNormalizationBackwardExWorkspaceSize``.
    """
    source: Layout = call.args[0]
    copy = formats.contiguous(call.args[1], _format(source))[1]
    tiles = _tiles(source, 96)
    if not tiles:
        return copy
    groups, channels = _channel_groups(source.size[1])
    return copy, tiles * 8 * channels + 1056 + 4 * groups


def _format(source: Layout) -> Format:
    """``suggest_memory_format``: three dimensions are never channels last."""
    return formats.suggested(source) if len(source.size) > 3 else Format.CONTIGUOUS


def _tiles(source: Layout, rows: int) -> int:
    """The tiles of rows of an input that is channels last, as one channel is; 0 if it is not."""
    if _format(source) is not Format.CHANNELS_LAST and source.size[1] != 1:
        return 0
    if source.size[1] < 4:
        context.current().note(_FEW_CHANNELS)
    return -(-source.numel // source.size[1] // rows)


def _channel_groups(channels: int) -> tuple[int, int]:
    """Groups of 64 channels, of 16 where their number is no multiple of 4; and what they hold."""
    size = 16 if channels % 4 else 64
    groups = -(-channels // size)
    return groups, groups * size


_FEW_CHANNELS = Unknown(
    "the workspace of cuDNN's batch norm of one channel, or of two or three, channels last",
    "aten::cudnn_batch_norm, aten::cudnn_batch_norm_backward",
    "that of a group of 16 channels, which is more",
)


# -- CUDA's own


@results(aten.native_batch_norm.default, target=Target.CUDA)
def native_batch_norm(call: Call) -> tuple[Layout, Layout, Layout]:
    """The result laid out as the input; statistics [C], fp32 for half types, always.

    Inputs: input [N, C, *], weight, bias, running_mean, running_var, training, momentum,
    eps. The CPU's are empty in evaluation. Source: ``batch_norm_cuda``.
    """
    source: Layout = call.args[0]
    like = torch.empty_like(on_meta(source))
    made = Layout(source.size, like.stride(), source.dtype, 0, formats.nbytes(source), 0)
    statistics = fresh((source.size[1],), accumulated(source.dtype))
    return made, statistics, statistics


@scratch("aten::native_batch_norm", target=Target.CUDA)
def native_forward(call: Call) -> Bytes:
    """In training, channels last: sums of each row of blocks, where there are several.

    Inputs: input [N, C, *], ..., training at position 5. Four fp32 for each channel and row
    of blocks, and an integer for each column.
    Source: ``batch_norm_stats_channels_last_cuda_template``.
    """
    source: Layout = call.args[0]
    return _staging(source, 4) if call.args[5] and _is_channels_last(source) else 0


@scratch("aten::native_batch_norm_backward", target=Target.CUDA)
def native_backward(call: Call) -> Bytes:
    """Channels last: two sums for each channel, and two for each row of blocks beside them.

    Inputs: grad_out, input [N, C, *], ... Without channels last one kernel does it all.
    Source: ``batch_norm_backward_cuda``, which calls, channels last,
    ``batch_norm_backward_reduce_cuda_channels_last_template``.
    """
    grad, source = call.args[0], call.args[1]
    if not _is_channels_last(source):
        return 0
    sums = (source.size[1] * accumulated(source.dtype).itemsize,) * 2
    return (*sums, *_staging(source, 2)) if _is_channels_last(grad) else sums


def _is_channels_last(source: Layout) -> bool:
    """Whether channels lie side by side, as they do in [N, C] too.

    Source: ``batch_norm_use_channels_last_kernels``.
    """
    if len(source.size) >= 4 and formats.is_contiguous(source, Format.CHANNELS_LAST):
        return True
    return formats.is_contiguous(source, Format.CONTIGUOUS) and source.stride[1] == 1


def _staging(source: Layout, numbers: int) -> tuple[int, ...]:
    """Sums of several rows of blocks, and counters; nothing if there are fewer than 8 rows.

    Source: ``flexible_launch_configs``.
    """
    channels = source.size[1]
    rows = source.numel // channels
    wide = min(_power_of_2(channels), 32)
    high = min(_power_of_2(-(-rows // 16)), 512 // wide)
    if wide * high != 512:
        wide = min(_power_of_2(channels), 512 // high)
    down = min(-(-rows // (high * 16)), 128)
    if down < 8:
        return ()
    item = accumulated(source.dtype).itemsize
    return numbers * channels * down * item, -(-channels // wide) * 4


def _power_of_2(number: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << (number.bit_length() - 1)
