"""Fourier transforms. Complex numbers are pairs in a last axis of two; real ones of one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphmem.sources.onnx import values
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.registry import Call, rule


@rule("DFT", since=17)
def dft_17(call: Call, x: Tensor, length: Tensor | None = None) -> Tensor:
    """Opsets 17 to 19: the axis is an attribute."""
    return _dft(call, x, length, call.integer("axis", 1))


@rule("DFT", since=20)
def dft_20(
    call: Call, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None
) -> Tensor:
    """From opset 20: the axis is an input."""
    return _dft(call, x, length, -2 if axis is None else values.integer(axis))


def _dft(call: Call, x: Tensor, length: Tensor | None, axis: int) -> Tensor:
    """Half of the result, or of the input of an inverse, where it is ``onesided``."""
    axis, half = axis % x.dim(), call.integer("onesided", 0) == 1
    inverse = call.integer("inverse", 0) == 1
    signal = _signal(x)
    count = None if length is None else values.integer(length)
    if inverse and half:
        y: Tensor = torch.fft.irfft(signal, count, axis).unsqueeze(-1)
    elif inverse:
        y = torch.view_as_real(torch.fft.ifft(signal, count, axis))
    else:
        y = torch.view_as_real(_forward(signal, count, axis, half=half))
    return y.to(x.dtype)


def _signal(x: Tensor) -> Tensor:
    """A tensor of pairs or single numbers as torch's complex or real one, float32 at least."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if x.shape[-1] == 1:
        return wide.squeeze(-1)
    made: Tensor = torch.view_as_complex(wide.contiguous())
    return made


def _forward(signal: Tensor, count: int | None, axis: int, *, half: bool) -> Tensor:
    if half and not signal.is_complex():
        spectrum: Tensor = torch.fft.rfft(signal, count, axis)
        return spectrum
    whole: Tensor = torch.fft.fft(signal, count, axis)
    return whole.narrow(axis, 0, whole.shape[axis] // 2 + 1) if half else whole


@rule("STFT", since=17, constants=(2,))
def stft(
    call: Call,
    x: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
) -> Tensor:
    """Spectra of overlapping frames: [B, frames, bins, 2] of a signal [B, length, 1 or 2]."""
    signal = _signal(x)
    if length is not None:
        count = values.integer(length)
    else:
        count = signal.shape[1] if window is None else window.shape[0]
    frames = signal.unfold(1, count, values.integer(step))
    if window is not None:
        frames = frames * window
    half = call.integer("onesided", 1) == 1
    return torch.view_as_real(_forward(frames, None, -1, half=half)).to(x.dtype)


@rule("MelWeightMatrix", since=17, constants=(3, 4))
def mel_weights(
    call: Call, bins: Tensor, length: Tensor, rate: Tensor, lowest: Tensor, highest: Tensor
) -> Tensor:
    """Triangles over a spectrum's bins, evenly spaced in mels: [length / 2 + 1, bins].

    Source of the scale 2595 * log10(1 + hertz / 700) and of the rounding of edges:
    onnx/reference/ops/op_mel_weight_matrix.py.
    """
    count, size = values.integer(bins), values.integer(length)
    low, high = (2595 * math.log10(1 + float(edge.item()) / 700) for edge in (lowest, highest))
    step = (high - low) / (count + 2)
    hertz = [700 * (10 ** ((low + i * step) / 2595) - 1) for i in range(count + 2)]
    edges = [int((size + 1) * one // values.integer(rate)) for one in hertz]
    matrix = [[0.0] * count for _ in range(size // 2 + 1)]
    for column in range(count):
        for row, weight in _triangle(*edges[column : column + 3]).items():
            matrix[row][column] = weight
    dtype = ElementType(call.integer("output_datatype", ElementType.FLOAT)).dtype
    return torch.tensor(matrix, dtype=dtype, device=bins.device)


def _triangle(left: int, center: int, right: int) -> dict[int, float]:
    """Its weights by bin."""
    up = {i: (i - left) / (center - left) for i in range(left, center + 1) if center > left}
    down = {i: (right - i) / (right - center) for i in range(center, right) if right > center}
    return {center: 1.0, **up, **down}
