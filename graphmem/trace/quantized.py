"""Quantized tensors and modules (torch.ao.quantization): they run on the CPU alone.

A quantized tensor under trace is a real one over a hollow storage, with its scale and zero
point. Weights are packed in objects of C++ that are no tensors: what they say that they hold
is counted, without the padding of the library that packs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.targets import Layout, layouts
from graphmem.trace.hollow import hollow_results, hollow_storage
from graphmem.trace.operator import Dispatched
from graphmem.trace.shapes import NoShapeRuleError, map_tensors

_aten = torch.ops.aten
_PLAIN = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}
_QUANTIZES = (_aten.quantize_per_tensor.default, _aten.quantize_per_tensor.tensor_qparams)
_CONVOLUTIONS = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


def concerns(call: Dispatched) -> bool:
    """Whether an operator makes or takes quantized tensors, or packed weights."""
    if call.func.namespace == "quantized" or call.func in _QUANTIZES:
        return True
    return any(isinstance(a, Tensor) and a.is_quantized for a in call.args)


def result(call: Dispatched) -> Any:
    """The result of an operator on quantized tensors whose values are not known.

    Raises:
        NoShapeRuleError: if there is no rule for it.
    """
    if call.func in _QUANTIZES:
        source, scale, zero_point, dtype = call.args
        return _quantized(source.shape, float(scale), int(zero_point), dtype)
    if call.func.namespace == "quantized":
        return _of_library(call)
    if call.func is _aten.dequantize.self:
        return hollow_results(_layout(call.args[0].shape, torch.float32))
    return _as_integers(call)


def packed_weights(module: nn.Module) -> Iterator[tuple[str, int]]:
    """The names and bytes of the packed weights that a module itself holds.

    Raises:
        NoShapeRuleError: if one does not say what it holds.
    """
    for name, value in vars(module).items():
        if isinstance(value, torch.ScriptObject):
            yield name, sum(part.numel() * part.element_size() for part in _unpacked(value))


def _unpacked(packed: Any) -> list[Tensor]:
    """The weight, and the bias if there is one."""
    if "unpack" not in packed._method_names():
        raise NoShapeRuleError(f"packed weights {packed._type()}")
    with torch._C._DisableTorchDispatch():
        weight, bias = packed.unpack()
    return [weight] if bias is None else [weight, bias]


def _of_library(call: Dispatched) -> Any:
    """``torch.ops.quantized``: linear layers, convolutions, and operations element by element."""
    name = call.func._schema.name.removeprefix("quantized::")
    packed = next((a for a in call.args if isinstance(a, torch.ScriptObject)), None)
    if packed is not None and name.startswith("linear"):
        shape = (*call.args[0].shape[:-1], _unpacked(packed)[0].shape[0])
    elif packed is not None and name.startswith("conv") and "transpose" not in name:
        shape = _convolved(call.args[0], packed)
    elif packed is None and name in _SHAPES:
        shape = _SHAPES[name](*call.args)
    else:
        raise NoShapeRuleError(call.func)
    return _with_parameters(call, name, shape)


def _with_parameters(call: Dispatched, name: str, shape: tuple[int, ...]) -> Tensor:
    """A result with the scale and zero point that it is asked for, or of the first argument."""
    if "dynamic" in name:
        made: Tensor = hollow_results(_layout(shape, torch.float32))
        return made
    first = next(a for a in _tensors(call.args) if a.is_quantized)
    scale = next((a for a in call.args if isinstance(a, float)), first.q_scale())
    points = [a for a in call.args if type(a) is int]
    return _quantized(shape, scale, points[-1] if points else first.q_zero_point(), first.dtype)


def _convolved(source: Tensor, packed: Any) -> tuple[int, ...]:
    weight = _unpacked(packed)[0]
    made = _CONVOLUTIONS[weight.dim() - 2](
        torch.empty(source.shape, device="meta"),
        torch.empty(weight.shape, device="meta"),
        None,
        list(packed.stride()),
        list(packed.padding()),
        list(packed.dilation()),
        packed.groups(),
    )
    return tuple(made.shape)


def _broadcast(first: Tensor, second: Any, *_: Any) -> tuple[int, ...]:
    shapes = [t.shape for t in (first, second) if isinstance(t, Tensor)]
    return tuple(torch.broadcast_shapes(*shapes))


def _joined(parts: list[Tensor], dim: int, *_: Any) -> tuple[int, ...]:
    size = list(parts[0].shape)
    size[dim] = sum(part.shape[dim] for part in parts)
    return tuple(size)


def _same(source: Tensor, *_: Any) -> tuple[int, ...]:
    return tuple(source.shape)


_SHAPES: dict[str, Callable[..., tuple[int, ...]]] = {
    **dict.fromkeys(("add", "add_relu", "add_scalar", "mul", "mul_relu", "mul_scalar"), _broadcast),
    **dict.fromkeys(("cat", "cat_relu"), _joined),
    **dict.fromkeys(("hardswish", "sigmoid", "leaky_relu", "elu", "celu", "relu6"), _same),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm", "batch_norm2d"), _same),
}


def _as_integers(call: Dispatched) -> Any:
    """As the operator does with plain integers: pooling, relu, copies."""
    first = next(a for a in _tensors(call.args) if a.is_quantized)

    def plain(tensor: Tensor) -> Tensor:
        dtype = _PLAIN.get(tensor.dtype, tensor.dtype)
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=dtype, device="meta")

    try:
        made = layouts(call.func(*[map_tensors(a, plain) for a in call.args], **call.kwargs))
    except (NotImplementedError, RuntimeError) as error:
        raise NoShapeRuleError(call.func) from error
    if not isinstance(made, Layout) or made.dtype is not _PLAIN[first.dtype]:
        raise NoShapeRuleError(call.func)
    return _quantized(made.size, first.q_scale(), first.q_zero_point(), first.dtype)


def _tensors(args: Any) -> Iterator[Tensor]:
    for a in args:
        if isinstance(a, Tensor):
            yield a
        elif isinstance(a, list | tuple):
            yield from _tensors(a)


def _layout(size: Any, dtype: torch.dtype) -> Layout:
    return layouts(torch.empty(tuple(size), dtype=dtype, device="meta"))  # type: ignore[no-any-return]


def _quantized(size: Any, scale: float, zero_point: int, dtype: torch.dtype) -> Tensor:
    """A hollow quantized tensor, contiguous."""
    plain = _layout(size, _PLAIN[dtype])
    made = torch._empty_affine_quantized([0], scale=scale, zero_point=zero_point, dtype=dtype)
    return made.set_(hollow_storage(plain.nbytes), 0, plain.size, plain.stride)
