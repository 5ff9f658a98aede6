"""Losses: temporaries as large as their inputs, and copies of inputs with gaps.

Source: aten/src/ATen/native/Loss.cpp (``mse_loss_out``, ``smooth_l1_loss_out``,
``huber_loss``, ``binary_cross_entropy_with_logits``), aten/src/ATen/native/cuda/Loss.cu
(``nll_loss_forward_out_cuda_template``, ``binary_cross_entropy_out_cuda``), NLLLoss2d.cu,
LossCTC.cu (``ctc_loss_backward_gpu_template``) and SoftMax.cu (``host_softmax``).
"""

from __future__ import annotations

import math

import torch

from graphmem.devices import Gpu
from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda.calls import argument, copy_bytes, row_strides
from graphmem.targets.cuda.reductions import sum_buffers
from graphmem.targets.layout import Layout
from graphmem.targets.results import fresh, results
from graphmem.targets.scratch import Call, scratch

aten = torch.ops.aten

_MEAN = 1
_LENGTH = 8  # an int64


@scratch(
    "aten::_softmax",
    "aten::_log_softmax",
    "aten::_log_softmax_backward_data",
    "aten::nll_loss_forward",
    "aten::nll_loss_backward",
    "aten::nll_loss2d_forward",
    "aten::nll_loss2d_backward",
    target=Target.CUDA,
)
def contiguous_inputs(call: Call) -> Scratch:
    """Every input is read row by row; one that is not laid out so is copied."""
    return (tuple(copy_bytes(arg) for arg in call.args if isinstance(arg, Layout)),)


@scratch("aten::_softmax_backward_data", target=Target.CUDA)
def softmax_backward(call: Call) -> Scratch:
    """The product of gradient and result, and a copy of a result that is not row by row.

    Inputs: grad, output, of one size and dtype. Source: SoftMax.cu,
    ``softmax_backward_cuda_out`` (``Tensor tmp = grad * output``); GAOYUEtianc's rows of
    truth/measured.csv have four tensors of the scores' size there.
    """
    grad, output = call.args[:2]
    return ((grad.numel * grad.dtype.itemsize, copy_bytes(output)),)


@scratch("aten::_safe_softmax", target=Target.CUDA)
def safe_softmax(call: Call) -> Scratch:
    """A softmax, where its input is hidden, and which rows are hidden altogether.

    Inputs: self, dim. Source: aten/src/ATen/native/transformers/attention.cpp,
    ``_safe_softmax``.
    """
    source: Layout = call.args[0]
    rows = source.numel // max(source.size[call.args[1]], 1)
    return ((copy_bytes(source), call.result.nbytes, source.numel, rows),)


@scratch(
    "aten::mse_loss",
    "aten::smooth_l1_loss",
    "aten::huber_loss",
    "aten::soft_margin_loss",
    target=Target.CUDA,
)
def elementwise_loss(call: Call) -> Scratch:
    """The loss of each element, which is then summed. Inputs: self, target, reduction."""
    reduction = argument(call, 2, "reduction", _MEAN)
    return _summed(_each(call), call.gpu) if reduction else ()


@scratch("aten::binary_cross_entropy", target=Target.CUDA)
def binary_cross_entropy(call: Call) -> Scratch:
    """The sum of the elements' losses, which stand in the result's own memory.

    Inputs: self, target, weight, reduction.
    """
    if not argument(call, 3, "reduction", _MEAN):
        return ()
    each = _each(call)
    total = each.dtype.itemsize
    found = sum_buffers(each, range(len(each.size)), each.dtype, call.gpu)
    return tuple((total, *stage) for stage in found or ((),))


@results(aten.binary_cross_entropy.default, Target.CUDA)
def binary_cross_entropy_result(call: Call) -> Layout:
    """The loss of every element first; a total is written over them, and keeps their memory.

    Source: aten/src/ATen/native/cuda/Loss.cu, ``binary_cross_entropy_cuda``.
    """
    each: Layout = call.args[0]
    if not argument(call, 3, "reduction", _MEAN):
        return fresh(each.size, each.dtype)
    return fresh((), each.dtype)._replace(nbytes=each.numel * each.dtype.itemsize)


@results(aten.log_sigmoid_forward.default, Target.CUDA)
def log_sigmoid_result(call: Call) -> tuple[Layout, Layout]:
    """CUDA leaves the buffer empty that the CPU fills for backward.

    Source: aten/src/ATen/native/cuda/ActivationLogSigmoidKernel.cu and
    aten/src/ATen/native/cuda/Activation.cpp, ``log_sigmoid_forward_cuda``.
    """
    source: Layout = call.args[0]
    return fresh(source.size, source.dtype), fresh((0,), source.dtype)._replace(alias=1)


@scratch("aten::binary_cross_entropy_with_logits", target=Target.CUDA)
def binary_cross_entropy_with_logits(call: Call) -> Scratch:
    """The log-sigmoid of each element, kept to the end, and its loss.

    Inputs: self, target, weight, pos_weight, reduction.
    """
    each = _each(call)
    reduction = argument(call, 4, "reduction", _MEAN)
    if not reduction:
        return ((each.nbytes,),)
    return tuple((each.nbytes, *stage) for stage in _summed(each, call.gpu))


@scratch("aten::_ctc_loss", target=Target.CUDA)
def ctc_loss(call: Call) -> Scratch:
    """Lengths and offsets of each sequence. Inputs: log_probs [T, B, C], targets, ..."""
    return ((call.args[0].size[1] * _LENGTH,) * 3,)


@scratch("aten::_ctc_loss_backward", target=Target.CUDA)
def ctc_loss_backward(call: Call) -> Scratch:
    """The backward variables, as large as the forward ones, and the lengths again.

    Inputs: grad, log_probs [T, B, C], targets, input_lengths, target_lengths,
    neg_log_likelihood, log_alpha [B, T, 2 * longest target + 1], ...
    """
    lengths = (call.args[1].size[1] * _LENGTH,) * 3
    return ((call.args[6].nbytes, *lengths),)


def _each(call: Call) -> Layout:
    """The loss before it is reduced."""
    source, target = call.args[0], call.args[1]
    size = tuple(torch.broadcast_shapes(source.size, target.size))
    dtype = torch.promote_types(source.dtype, target.dtype)
    return Layout(size, row_strides(size), dtype, 0, math.prod(size) * dtype.itemsize, -1)


def _summed(each: Layout, gpu: Gpu) -> Scratch:
    found = sum_buffers(each, range(len(each.size)), each.dtype, gpu)
    return tuple((each.nbytes, *stage) for stage in found or ((),))
