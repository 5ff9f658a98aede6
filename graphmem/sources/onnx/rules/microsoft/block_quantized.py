"""Weights in blocks of 2 to 8 bits: products, rows of tables, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT


def unpacked(packed: Tensor, bits: int) -> Tensor:
    """The numbers in bytes [..., n], lowest bits first: [..., n * 8 / bits] uint8."""
    if bits == 8:
        return packed
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    mask = 2**bits - 1
    split: Tensor = (packed[..., None] >> shifts) & mask
    return split.flatten(-2)


def _zero_points(zeros: Tensor | None, shape: Sequence[int], bits: int) -> Tensor | int:
    """The zero point of each block of ``shape``; half of the range if none are given.

    Args:
        zeros: as the weights packed, each row by itself; or a float for each.
    """
    if zeros is None:
        return 1 << (bits - 1)
    if zeros.dtype is torch.uint8:
        rows = unpacked(zeros.reshape(*shape[:-1], -1), bits)
        return rows[..., : shape[-1]]
    return zeros.reshape(tuple(shape))


def _dequantized(numbers: Tensor, scales: Tensor, zeros: Tensor | int) -> Tensor:
    """``(q - zero) * scale`` of blocks: [..., blocks, size] by scales [..., blocks]."""
    wide = numbers.to(scales.dtype)
    zero = zeros.to(scales.dtype)[..., None] if isinstance(zeros, Tensor) else zeros
    return (wide - zero) * scales[..., None]


@rule("MatMulNBits", domain=MICROSOFT, constants=(2, 3))
def matmul_nbits(
    call: Call,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """``a @ dequantized(b)ᵀ + bias``: [..., K] to [..., N].

    Args:
        b: uint8 [N, ceil(K / block), block * bits / 8].
        scales: [N, ceil(K / block)].

    ``accuracy_level`` lets a kernel round ``a`` to int8; here it stays as it is.
    """
    if g_idx is not None:
        raise refused(call, "no rule for g_idx, which ONNX Runtime no longer takes")
    bits, block = call.integer("bits", 4), call.integer("block_size")
    rows, columns = call.integer("N"), call.integer("K")
    blocks = -(-columns // block)
    numbers = unpacked(b.reshape(rows, blocks, -1), bits)
    zeros = _zero_points(zero_points, (rows, blocks), bits)
    weight = _dequantized(numbers, scales.reshape(rows, blocks), zeros).flatten(1)
    return F.linear(a, weight[:, :columns].to(a.dtype), bias)


_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_FP4_POSITIVE = (0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_FP4 = (*_FP4_POSITIVE, *(-v for v in _FP4_POSITIVE))


@rule("MatMulBnb4", domain=MICROSOFT, constants=(2,))
def matmul_bnb4(call: Call, a: Tensor, b: Tensor, absmax: Tensor) -> Tensor:
    """``a @ dequantized(b)ᵀ`` of bitsandbytes' 4-bit numbers; ``a @ b`` unless ``transB``.

    Args:
        b: uint8 [(N * K + 1) / 2], two numbers to a byte, the first in the high bits.
        absmax: [ceil(N * K / block)].

    Source: onnxruntime/contrib_ops/cpu/quantization/blockwise_quant_block_bnb4.h; the values
    are those that ONNX Runtime 1.31.1 multiplies an identity matrix by. Its CPU kernel forgets
    that b is not transposed if ``transB`` is 0; here it is as documented.
    """
    rows, columns, block = call.integer("N"), call.integer("K"), call.integer("block_size")
    table = torch.tensor(_NF4 if call.integer("quant_type") else _FP4, dtype=a.dtype)
    halves = torch.stack((b >> 4, b & 15), -1).flatten()[: rows * columns]
    numbers = table.to(a.device)[halves.long()]
    numbers = F.pad(numbers, (0, -numbers.numel() % block)).reshape(-1, block)
    weight = (numbers * absmax.to(a.dtype)[:, None]).flatten()[: rows * columns]
    weight = weight.reshape(rows, columns)
    return F.linear(a, weight) if call.integer("transB", 1) else torch.matmul(a, weight)


@rule("GatherBlockQuantized", domain=MICROSOFT, constants=(2,))
def gather_block_quantized(
    call: Call,
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
) -> Tensor:
    """Slices of a quantized table along ``gather_axis``, dequantized; zeros where out of range.

    Args:
        data: int4, uint4, or uint8 that packs ``bits`` along the last dimension.
        scales: as data, with a block in place of ``block_size`` elements of ``quantize_axis``.
    """
    packed = call.element(0) in (ElementType.UINT8, None) and data.dtype is torch.uint8
    bits = call.integer("bits", 4) if packed else 4
    axis = call.integer("gather_axis", 0) % data.dim()
    along = call.integer("quantize_axis", 1) % data.dim()
    size = data.shape[axis]
    at = indices.long()
    at = torch.where(at < 0, at + size, at)
    valid = (at >= 0) & (at < size)
    rows, steps = (_taken(x, axis, at.clamp(0, size - 1)) for x in (data, scales))
    numbers = unpacked(rows, bits) if packed else rows
    moved = along if along < axis else along + at.dim() - 1
    zeros: Tensor | int = 1 << (bits - 1) if packed else 0
    if zero_points is not None:
        zeros = _taken(zero_points, axis, at.clamp(0, size - 1))
        zeros = unpacked(zeros, bits)[..., : steps.shape[-1]] if packed else zeros
    block = call.integer("block_size", 128) or numbers.shape[moved]
    length = numbers.shape[moved]
    wide = _spread(steps, moved, block, length)
    zero = _spread(zeros, moved, block, length) if isinstance(zeros, Tensor) else zeros
    made = (numbers.to(steps.dtype) - zero) * wide
    shape = [1] * axis + list(at.shape) + [1] * (data.dim() - axis - 1)
    return made * valid.reshape(shape)


def _taken(x: Tensor, axis: int, at: Tensor) -> Tensor:
    flat = torch.index_select(x, axis, at.reshape(-1))
    return flat.reshape(*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])


def _spread(x: Tensor, dim: int, block: int, length: int) -> Tensor:
    return x.repeat_interleave(block, dim).narrow(dim, 0, length)


@rule("MoE", domain=MICROSOFT)
def mixture(
    call: Call,
    x: Tensor,
    router: Tensor,
    fc1: Tensor,
    fc1_bias: Tensor | None,
    fc2: Tensor,
    fc2_bias: Tensor | None = None,
    fc3: Tensor | None = None,
    fc3_bias: Tensor | None = None,
) -> Tensor:
    """Each token through its ``k`` experts: [..., D] to [..., D].

    Args:
        router: [tokens, E], what the softmax of each expert's weight is taken of.
        fc1: [E, I, D] (2 * I for swiglu that is fused); fc2: [E, D, I]; fc3: as fc1.
    """
    return _mixed(call, x, router, None, (fc1, fc2, fc3), (fc1_bias, fc2_bias, fc3_bias))


@rule("QMoE", domain=MICROSOFT, constants=(3, 6, 9))
def quantized_mixture(
    call: Call,
    x: Tensor,
    router: Tensor,
    fc1: Tensor,
    fc1_scales: Tensor,
    fc1_bias: Tensor | None,
    fc2: Tensor,
    fc2_scales: Tensor,
    fc2_bias: Tensor | None = None,
    fc3: Tensor | None = None,
    fc3_scales: Tensor | None = None,
    fc3_bias: Tensor | None = None,
    fc1_zeros: Tensor | None = None,
    fc2_zeros: Tensor | None = None,
    fc3_zeros: Tensor | None = None,
    router_weights: Tensor | None = None,
    *others: Tensor | None,
) -> Tensor:
    """MoE whose weights are uint8 [E, rows, columns * bits / 8].

    Args:
        fc1_scales: [E, rows], or [E, rows, columns / block_size].
    """
    if call.text("quant_type", "int") != "int" or call.integer("weights_prepacked", -1) > 0:
        raise refused(call, "only rows of integers are translated, as the CPU takes them")
    common = call.integer("expert_weight_bits", 4)
    given = ((fc1, fc1_scales, fc1_zeros), (fc2, fc2_scales, fc2_zeros))
    weights = [
        _expert_weights(call, w, s, z, call.integer(f"fc{n}_expert_weight_bits", common))
        for n, (w, s, z) in enumerate(given, 1)
    ]
    third = None
    if fc3 is not None and fc3_scales is not None:
        bits = call.integer("fc3_expert_weight_bits", common)
        third = _expert_weights(call, fc3, fc3_scales, fc3_zeros, bits)
    all_weights = (weights[0].to(x.dtype), weights[1].to(x.dtype), third)
    biases = (fc1_bias, fc2_bias, fc3_bias)
    return _mixed(call, x, router, router_weights, all_weights, biases)


def _expert_weights(
    call: Call, packed: Tensor, scales: Tensor, zeros: Tensor | None, bits: int
) -> Tensor:
    numbers = unpacked(packed, bits)
    if scales.dim() == 2:
        if zeros is not None:
            zeros = unpacked(zeros, bits)[:, : scales.shape[1]]
        zero = 1 << (bits - 1) if zeros is None else zeros.to(scales.dtype)[..., None]
        return (numbers.to(scales.dtype) - zero) * scales[..., None]
    blocks = numbers.reshape(*scales.shape, -1)
    return _dequantized(blocks, scales, _zero_points(zeros, scales.shape, bits)).flatten(2)


def _mixed(
    call: Call,
    x: Tensor,
    router: Tensor,
    router_weights: Tensor | None,
    weights: tuple[Tensor, Tensor, Tensor | None],
    biases: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> Tensor:
    """The sum over experts, each with the weight of the tokens that chose it, else 0."""
    tokens = x.reshape(-1, x.shape[-1])
    share = _shares(call, router, router_weights)
    total = torch.zeros_like(tokens)
    fc1, fc2, fc3 = weights
    for expert in range(router.shape[-1]):
        bias1, bias2, bias3 = (None if b is None else b[expert] for b in biases)
        inner = F.linear(tokens, fc1[expert], bias1)
        if fc3 is None:
            inner = _expert_activation(call, inner)
        else:
            inner = _expert_activation(call, inner) * F.linear(tokens, fc3[expert], bias3)
        total = total + share[:, expert : expert + 1] * F.linear(inner, fc2[expert], bias2)
    return total.reshape(x.shape)


def _shares(call: Call, router: Tensor, router_weights: Tensor | None) -> Tensor:
    """The weight of each expert [tokens, E]: 0 for all but the best ``k``."""
    if call.integer("use_sparse_mixer", 0):
        raise refused(call, "no rule for the sparse mixer")
    probabilities = torch.softmax(router.float(), -1)
    best, chosen = torch.topk(probabilities, call.integer("k", 1), -1)
    if router_weights is not None:
        best = router_weights.float().gather(1, chosen)
    if call.integer("normalize_routing_weights", 0):
        best = best / best.sum(-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter(1, chosen, best).to(router.dtype)


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")  # measured: experts' GELU is the tanh formula


_PLAIN: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": _gelu,
    "silu": F.silu,
    "identity": lambda x: x,
}


def _expert_activation(call: Call, x: Tensor) -> Tensor:
    name = call.text("activation_type", "relu")
    if name != "swiglu":
        if name not in _PLAIN:
            raise refused(call, f"no rule for experts' activation {name!r}")
        return _PLAIN[name](x)
    fusion = call.integer("swiglu_fusion", 0)
    if fusion == 0:
        raise refused(call, "no rule for swiglu of two products that are not fused")
    gate, linear = (x[..., 0::2], x[..., 1::2]) if fusion == 1 else x.chunk(2, -1)
    limit = call.number("swiglu_limit", float("inf"))
    gate, linear = gate.clamp(max=limit), linear.clamp(-limit, limit)
    alpha, beta = call.number("activation_alpha", 1.0), call.number("activation_beta", 0.0)
    return gate * torch.sigmoid(alpha * gate) * (linear + beta)
