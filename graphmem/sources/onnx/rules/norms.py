"""Normalizations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.registry import Call, rule

_STATISTICS = (3, 4)
"""The running mean and variance among a batch norm's inputs."""


@rule("BatchNormalization", constants=_STATISTICS)
def batch_norm_1(call: Call, x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    """Opsets 1 to 6: of the batch unless ``is_test``."""
    tested = call.integer("is_test", 0) == 1
    return _batch_norm(call, (x, w, b, mean, var), of_batch=not tested)


@rule("BatchNormalization", since=7, constants=_STATISTICS)
def batch_norm_7(call: Call, x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    """Opsets 7 to 13: of the batch where the running statistics are asked for."""
    return _batch_norm(call, (x, w, b, mean, var), of_batch=call.outputs > 1)


@rule("BatchNormalization", since=14, constants=_STATISTICS)
def batch_norm_14(call: Call, x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    """From opset 14: of the batch where ``training_mode`` says so."""
    trains = call.integer("training_mode", 0) == 1
    return _batch_norm(call, (x, w, b, mean, var), of_batch=trains)


def _batch_norm(call: Call, inputs: tuple[Tensor, ...], *, of_batch: bool) -> Any:
    """By the statistics of the batch, or by running ones.

    A module in training mode takes those of the batch and updates the running ones, as
    nn.BatchNorm does, whatever the file was exported for.
    """
    x, w, b, mean, var = inputs
    shape, statistics = x.shape, mean.shape
    if call.integer("spatial", 1) == 0:  # of each element by itself, up to opset 8
        x, w, b, mean, var = x.flatten(1), *(t.flatten() for t in (w, b, mean, var))
    epsilon, momentum = call.number("epsilon", 1e-5), call.number("momentum", 0.9)
    if not of_batch:
        y = F.batch_norm(x, mean, var, w, b, call.training, 1 - momentum, epsilon).reshape(shape)
        return (y, *(None,) * (call.outputs - 1)) if call.outputs > 1 else y
    y = F.batch_norm(x, None, None, w, b, True, 0.0, epsilon).reshape(shape)
    if call.outputs == 1:
        return y
    axes = [axis for axis in range(x.dim()) if axis != 1]
    now, spread = x.detach().mean(axes), x.detach().var(axes, correction=0)
    running = (mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum))
    results = (s.to(mean.dtype).reshape(statistics) for s in (*running, now, spread))
    return (y, *results)[: call.outputs]


@rule("InstanceNormalization")
def instance_norm(call: Call, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Each plane by its own mean and variance."""
    epsilon = call.number("epsilon", 1e-5)
    cudnn = torch.backends.cudnn.enabled
    y: Tensor = torch.instance_norm(x, w, b, None, None, True, 0.0, epsilon, cudnn)
    return y


@rule("GroupNormalization", since=18)
def group_norm_18(call: Call, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Opsets 18 to 20: weights are one a group."""
    each = x.shape[1] // call.integer("num_groups")
    return _group_norm(call, x, w.repeat_interleave(each), b.repeat_interleave(each))


@rule("GroupNormalization", since=21)
def group_norm(call: Call, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """From opset 21: weights are one a channel."""
    return _group_norm(call, x, w, b)


def _group_norm(call: Call, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(x, call.integer("num_groups"), w, b, call.number("epsilon", 1e-5))


@rule("LayerNormalization")
def layer_norm(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Any:
    """By the mean and variance of the axes from ``axis`` on; those too, if they are asked for."""
    axis = call.integer("axis", -1) % x.dim()
    shape, epsilon = x.shape[axis:], call.number("epsilon", 1e-5)
    fits = w.shape == shape and (b is None or b.shape == shape)
    scale, shift = (w, b) if fits else (None, None)
    if call.outputs > 1:
        y, mean, inverse = torch.native_layer_norm(x, shape, scale, shift, epsilon)
    else:
        y = F.layer_norm(x, shape, scale, shift, epsilon)
    if not fits:
        y = y * w if b is None else y * w + b
    if call.outputs == 1:
        return y
    stash = ElementType(call.integer("stash_type", ElementType.FLOAT)).dtype
    return (y, mean.to(stash), inverse.to(stash))[: call.outputs]


@rule("RMSNormalization", since=23)
def rms_norm(call: Call, x: Tensor, w: Tensor) -> Tensor:
    """By the root of the mean square of the axes from ``axis`` on."""
    axis = call.integer("axis", -1) % x.dim()
    shape, epsilon = x.shape[axis:], call.number("epsilon", 1e-5)
    if w.shape == shape:
        return F.rms_norm(x, shape, w, epsilon)
    return F.rms_norm(x, shape, None, epsilon) * w


@rule("LpNormalization")
def lp_norm(call: Call, x: Tensor) -> Tensor:
    """Over the p-norm of an axis; zeros stay zeros."""
    p, axis = call.integer("p", 2), call.integer("axis", -1)
    return F.normalize(x, float(p), axis, eps=torch.finfo(x.dtype).tiny)


@rule("MeanVarianceNormalization", since=9)
def mean_variance_norm(call: Call, x: Tensor) -> Tensor:
    """By the mean and standard deviation of some axes.

    Source of 1e-9: the operator's function body, onnx/defs/nn/defs.cc.
    """
    axes = call.integers("axes", (0, 2, 3))
    centered = x - x.mean(axes, keepdim=True)
    deviation = centered.pow(2).mean(axes, keepdim=True).sqrt()
    return centered / (deviation + 1e-9)


@rule("LRN")
def local_response_norm(call: Call, x: Tensor) -> Tensor:
    """By the squares of neighbouring channels.

    Torch's window has its odd channel before, ONNX's after: one of an even size is made so.
    """
    size, alpha, beta = call.integer("size"), call.number("alpha", 1e-4), call.number("beta", 0.75)
    k = call.number("bias", 1.0)
    if size % 2:
        return F.local_response_norm(x, size, alpha, beta, k)
    planes = x.pow(2).reshape(x.shape[0], 1, x.shape[1], -1)
    planes = F.pad(planes, (0, 0, (size - 1) // 2, size // 2))
    means = F.avg_pool2d(planes, (size, 1), stride=1).reshape(x.shape)
    return x / means.mul(alpha).add(k).pow(beta)


@rule("Dropout")
def dropout_1(call: Call, x: Tensor) -> Any:
    """Opsets 1 to 11: a module in training mode drops, unless ``is_test``."""
    drops = call.training and not call.integer("is_test", 0)
    return _dropout(call, x, call.number("ratio", 0.5), drops=drops)


@rule("Dropout", since=12, constants=(1,))
def dropout_12(
    call: Call, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> Any:
    """From opset 12: ``training_mode`` decides; without it whether the module trains."""
    drops = call.training if training is None else bool(training.item())
    probability = 0.5 if ratio is None else float(ratio.item())
    return _dropout(call, x, probability, drops=drops)


def _dropout(call: Call, x: Tensor, ratio: float, *, drops: bool) -> Any:
    """The output, and which elements were kept: as booleans since opset 10, before as numbers."""
    if call.outputs == 1:
        return F.dropout(x, ratio) if drops else x
    if 1 in call.unread:  # exporters name it nevertheless
        nothing = torch.ones((), dtype=torch.bool, device=x.device).expand(x.shape)
        y, mask = F.dropout(x, ratio) if drops else x, nothing
    elif drops:
        y, mask = torch.native_dropout(x, ratio, True)
    else:
        y, mask = x, torch.ones_like(x, dtype=torch.bool)
    return y, mask if call.version >= 10 else mask.to(x.dtype)
