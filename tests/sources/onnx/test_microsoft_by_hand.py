"""Operators that ONNX Runtime's CPU provider does not have, against what they consist of.

ONNX Runtime has them for CUDA, or only as ONNX's operator with another layout: there it runs
ONNX's own operator, and the layout is changed by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import helper
from torch import Tensor

from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.registry import Call, find_rule
from graphmem.sources.onnx.rules.microsoft.nchwc import block_size, plain_weight
from tests.sources.onnx.ort import Array, by_ort, by_translation, feeds_of, one_node

_made = torch.Generator().manual_seed(6)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_made)


def run(
    op: str,
    *inputs: Tensor | None,
    outputs: int = 1,
    domain: str = "com.microsoft",
    version: int = 1,
    training: bool = False,
    **attributes: Any,
) -> Any:
    """A rule, called by itself."""
    names = tuple("" if x is None else f"x{n}" for n, x in enumerate(inputs))
    results = tuple(f"y{n}" for n in range(outputs))
    node = Node("node", op, domain, version, names, results, attributes)
    found = find_rule(node)
    assert found is not None
    return found.function(Call(node, training=training), *inputs)


def same(got: Any, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


X, BIAS = numbers(2, 3, 8), numbers(8)


def test_biases_before_activations() -> None:
    left, right = (X + BIAS).chunk(2, -1)
    same(run("BiasSplitGelu", X, BIAS), left * F.gelu(right))
    skip = numbers(2, 3, 8)
    same(run("BiasAdd", X, BIAS, skip), X + BIAS + skip)
    weight = numbers(8, 5)
    same(run("GemmFastGelu", X, weight), F.gelu(X @ weight, approximate="tanh"))


def test_a_softmax_of_a_sum_goes_over_all_dimensions_from_its_axis() -> None:
    bias = numbers(1, 3, 8)
    whole = torch.softmax((X + bias).reshape(2, 24), -1).reshape(2, 3, 8)
    same(run("BiasSoftmax", X, bias, axis=1, is_inner_broadcast=0), whole)
    same(run("BiasSoftmax", X, bias, axis=2, is_inner_broadcast=0), torch.softmax(X + bias, -1))


def test_dropout_drops_in_training_alone() -> None:
    residual, half = numbers(2, 3, 8), torch.tensor(0.5)
    y, mask = run("BiasDropout", X, BIAS, residual, half, outputs=2)
    same(y, X + BIAS + residual)
    assert mask.all()
    y, mask = run("BiasDropout", X, BIAS, None, half, torch.tensor(True), outputs=2)
    same(y, (X + BIAS) * mask * 2)
    assert 0 < mask.sum() < mask.numel()


def test_a_mask_of_bits_has_the_first_element_lowest() -> None:
    x = torch.ones(5, 8)
    y, packed = run("BitmaskDropout", x, torch.tensor(0.5), outputs=2, training=True)
    kept = (y != 0).reshape(-1)
    words = [int(w) for w in packed.to(torch.int64)]
    assert len(words) == 2  # 40 bits
    assert [bool(words[n // 32] >> n % 32 & 1) for n in range(40)] == kept.tolist()
    assert run("BitmaskDropout", x) is x


def test_group_normalization_may_have_its_channels_last() -> None:
    x, gamma, beta = numbers(2, 3, 4, 8), numbers(8), numbers(8)
    first = x.permute(0, 3, 1, 2)
    wanted = F.silu(F.group_norm(first, 2, gamma, beta, 1e-5)).permute(0, 2, 3, 1)
    same(run("GroupNorm", x, gamma, beta, groups=2, activation=1), wanted)
    plain = run("GroupNorm", first, gamma, beta, groups=2, activation=0, channels_last=0)
    same(plain, F.group_norm(first, 2, gamma, beta, 1e-5))
    skip, bias = numbers(2, 8), numbers(8)
    y, total = run("SkipGroupNorm", x, gamma, beta, skip, bias, outputs=2, groups=2, activation=0)
    same(total, x + skip[:, None, None] + bias)
    normed = F.group_norm(total.permute(0, 3, 1, 2), 2, gamma, beta, 1e-5)
    same(y, normed.permute(0, 2, 3, 1))


def test_statistics_of_a_normalization() -> None:
    gamma, skip = numbers(8), numbers(2, 3, 8)
    total = X + skip
    _, mean, inverse = run("SkipLayerNormalization", X, skip, gamma, outputs=3, epsilon=0.1)
    same(mean, total.mean(-1, keepdim=True))
    same(inverse, 1 / (total.var(-1, correction=0, keepdim=True) + 0.1).sqrt())
    wanted = 1 / (total.square().mean(-1, keepdim=True) + 0.1).sqrt()
    made = run("SkipSimplifiedLayerNormalization", X, skip, gamma, outputs=3, epsilon=0.1)
    same(made[2], wanted)
    y, mean, _ = run("LayerNormalization", X, gamma, BIAS, outputs=3)
    same(y, F.layer_norm(X, (8,), gamma, BIAS, 1e-5))
    same(mean, X.mean(-1, keepdim=True))


B, S, N, H = 2, 4, 2, 4


def split(x: Tensor) -> Tensor:
    """[B, S, N * H] as [B, N, S, H]."""
    return x.reshape(*x.shape[:2], N, H).transpose(1, 2)


def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    y = F.scaled_dot_product_attention(split(q), split(k), split(v), mask)
    return y.transpose(1, 2).flatten(2)


def test_attention_without_a_bias_or_with_a_mask_of_four_dimensions() -> None:
    x, w = numbers(B, S, 8), numbers(8, 24)
    q, k, v = (x @ w).chunk(3, -1)
    same(run("Attention", x, w, num_heads=N), attended(q, k, v))
    mask = torch.ones(B, 1, 6, 6, dtype=torch.int32).tril()
    added = torch.where(mask[:, :, :S, :S] > 0, 0.0, -10000.0)
    made = run("Attention", x, w, None, mask, num_heads=N)
    same(made, attended(q, k, v, added))


def test_packed_projections() -> None:
    q, k, v = (numbers(B, S, 8) for _ in range(3))
    parts = [p.reshape(B, S, N, H) for p in (q, k, v)]
    bias = numbers(24)
    bq, bk, bv = bias.chunk(3)
    same(run("MultiHeadAttention", torch.stack(parts, 3), num_heads=N), attended(q, k, v))
    made = run("MultiHeadAttention", q, torch.stack(parts[1:], 3), num_heads=N)
    same(made, attended(q, k, v))
    biased = attended(q + bq, k + bk, v + bv)
    made = run("MultiHeadAttention", torch.stack(parts, 3), None, None, bias, num_heads=N)
    same(made, biased)
    flat = torch.cat((q, k, v), -1)
    same(run("DecoderMaskedMultiHeadAttention", flat[:, :1], num_heads=N), v[:, :1])


def test_one_token_of_self_attention_with_its_past() -> None:
    x, w, bias, past = numbers(B, 1, 8), numbers(8, 24), numbers(24), numbers(2, B, N, 6, H)
    length = torch.tensor([3], dtype=torch.int32)
    shared: dict[str, Any] = {"past_present_share_buffer": 1}
    y, present = run(
        *("DecoderMaskedSelfAttention", x, w, bias, None, past, None, length),
        outputs=2,
        num_heads=N,
        **shared,
    )
    wanted, joined = run("Attention", x, w, bias, None, past[:, :, :, :3], outputs=2, num_heads=N)
    same(y, wanted)
    same(present[:, :, :, :4], joined)
    same(present[:, :, :, 4:], past[:, :, :, 4:])


def test_queries_and_keys_are_normalized_before_they_are_grouped() -> None:
    q, k, v = numbers(B, S, 32), numbers(B, S, 16), numbers(B, S, 16)
    lengths = torch.tensor([3, 3], dtype=torch.int32), torch.tensor(4, dtype=torch.int32)
    heads: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}
    weight = numbers(8)
    nothing = [None] * 7
    made = run(
        "GroupQueryAttention", q, k, v, None, None, *lengths, *nothing, weight, weight, **heads
    )
    normed = [F.rms_norm(x.reshape(B, S, -1, 8), (8,), weight, 1e-6).flatten(2) for x in (q, k)]
    same(made, run("GroupQueryAttention", *normed, v, None, None, *lengths, **heads))


def test_attention_of_sequences_without_padding() -> None:
    x, w, bias = numbers(2, 3, 8), numbers(8, 24), numbers(24)
    counts = torch.tensor([3, 1], dtype=torch.int32)
    tokens, offsets, sums, longest = run("RemovePadding", x, counts, outputs=4)
    assert offsets.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (sums.tolist(), longest.tolist()) == ([0, 3, 4], [3])
    same(tokens, torch.cat((x[0], x[1, :1])))
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.int32)
    wanted = run("Attention", x, w, bias, mask, num_heads=N)
    made = run("PackedAttention", tokens, w, bias, offsets, sums, num_heads=N)
    same(made, torch.cat((wanted[0], wanted[1, :1])))
    parts = (tokens @ w).chunk(3, -1)
    packed = run("PackedMultiHeadAttention", *parts, bias, offsets, sums, num_heads=N)
    same(packed, made)
    together = torch.stack([p.reshape(-1, N, H) for p in parts], 2)
    given = (together, None, None, bias, offsets, sums)
    same(run("PackedMultiHeadAttention", *given, num_heads=N), made)
    restored = run("RestorePadding", tokens, offsets)
    same(restored[0], x[0])
    assert restored[1, 1:].eq(0).all()


def _bucket(distance: int, buckets: int, furthest: int) -> int:
    """T5's bucket of a distance, as its paper has it."""
    exact = buckets // 2
    if distance < exact:
        return distance
    grown = math.log(distance / exact) / math.log(furthest / exact) * (buckets - exact)
    return min(exact + int(grown), buckets - 1)


@pytest.mark.parametrize("both", [0, 1])
def test_a_bias_by_distance(both: int) -> None:
    table, length = numbers(8, N), torch.tensor(20)
    made = run(
        *("RelativePositionBias", table, length, length), max_distance=16, is_bidirectional=both
    )
    columns = table.reshape(N, 8)  # the file holds the table column by column
    for row, column in ((0, 0), (5, 3), (3, 5), (19, 1), (0, 19), (7, 4)):
        distance = abs(column - row)
        bucket = _bucket(distance, 4, 16) + 4 * (column > row) if both else _bucket(distance, 8, 16)
        same(made[0, :, row, column], columns[:, bucket])


def test_a_gated_bias_by_distance() -> None:
    query, bias, rel = numbers(B, S, 8), numbers(8), numbers(1, N, S, S)
    weight, shift, eco = numbers(H, 6), numbers(6), numbers(1, N, 1, 1)
    gates = (split(query + bias) @ weight + shift).reshape(B, N, S, 2, 3).sum(-1)
    update, reset = torch.sigmoid(gates).chunk(2, -1)
    wanted = (update * (reset * eco - 1) + 2) * rel
    given = (bias, rel, weight, shift, eco)
    same(run("GatedRelativePositionBias", query, *given, num_heads=N), wanted)
    offsets = torch.arange(B * S, dtype=torch.int32).reshape(B, S)
    packed = run("GatedRelativePositionBias", query.flatten(0, 1), *given, offsets, num_heads=N)
    same(packed, wanted)


def test_gemmas_rotary_positions() -> None:
    angles = numbers(B, S, H)
    q, turned_q, k, turned_k = (numbers(B, N, S, H) for _ in range(4))
    a, b = run("GemmaRotaryEmbedding", angles, q, turned_q, k, turned_k, outputs=2)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    same(a, q * cos + turned_q * sin)
    same(b, k * cos + turned_k * sin)


def test_a_product_with_an_activation() -> None:
    a, b = numbers(3, 4), numbers(4, 5)
    same(run("FusedMatMulActivation", a, b, activation="Relu", alpha=2.0), (2 * a @ b).relu())
    made = run("FusedMatMulActivation", a, b, activation="Softmax", activation_axis=0)
    same(made, torch.softmax(a @ b, 0))
    same(run("SparseToDenseMatMul", a.to_sparse(), b, alpha=0.5), 0.5 * a @ b)


def test_a_transposed_weight_of_bitsandbytes() -> None:
    packed = torch.arange(96, dtype=torch.uint8)
    scales = numbers(12).abs()
    sizes: dict[str, Any] = {"K": 32, "N": 6, "block_size": 16, "quant_type": 1}
    weight = run("MatMulBnb4", torch.eye(32), packed, scales, **sizes).t()
    x = numbers(3, 6)
    same(run("MatMulBnb4", x, packed, scales, transB=0, **sizes), x @ weight)


def test_fourier_transforms_and_complex_products() -> None:
    x = numbers(2, 8)
    spectrum = run("Rfft", x, signal_ndim=1)
    same(spectrum, torch.view_as_real(torch.fft.rfft(x)))
    same(run("Irfft", spectrum, signal_ndim=1), x)
    a, b = numbers(2, 3, 2), numbers(2, 3, 2)
    whole = torch.view_as_complex(a) * torch.view_as_complex(b)
    same(run("ComplexMul", a, b), torch.view_as_real(whole))
    whole = torch.view_as_complex(a) * torch.view_as_complex(b).conj()
    same(run("ComplexMulConj", a, b), torch.view_as_real(whole.resolve_conj()))


def test_small_operators() -> None:
    table, rows = numbers(4, 3), torch.tensor([1, 2])
    same(run("TorchEmbedding", table, rows), table[rows])
    bad = torch.tensor([1.0, math.inf])
    assert bool(run("IsAllFinite", bad[:1], bad[:1]))
    assert not bool(run("IsAllFinite", bad[:1], bad))
    assert bool(run("IsAllFinite", bad, isnan_only=1))
    a, b = torch.tensor([3, 200], dtype=torch.uint8), torch.tensor([2, 5], dtype=torch.uint8)
    made = run("MulInteger", a, torch.tensor(10, dtype=torch.uint8), b)
    assert made.tolist() == [-14, 950]  # (3 - 10) * 2, (200 - 10) * 5
    assert run("ReduceSumInteger", a, axes=(0,), keepdims=1).to(torch.int64).tolist() == [203]
    zero, scale = torch.tensor(0, dtype=torch.uint8), torch.tensor(1.0)
    mean = run("QLinearReduceMean", a, scale, zero, scale * 2, zero, axes=(0,), keepdims=0)
    assert mean.item() == 51  # (3 + 200) / 2 / 2 = 50.75


NHWC: list[tuple[str, Sequence[tuple[int, ...]], int, dict[str, Any]]] = [
    ("Conv", [(2, 4, 7, 8), (6, 4, 3, 3), (6,)], 11, {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    ("ConvTranspose", [(2, 4, 5, 6), (4, 3, 3, 3)], 11, {"strides": (2, 2)}),
    ("MaxPool", [(2, 4, 7, 8)], 12, {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ("AveragePool", [(2, 4, 7, 8)], 11, {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    ("GlobalAveragePool", [(2, 4, 7, 8)], 1, {}),
    ("GlobalMaxPool", [(2, 4, 7, 8)], 1, {}),
    ("LpPool", [(2, 4, 7, 8)], 11, {"kernel_shape": (2, 2), "p": 2}),
    ("BatchNormalization", [(2, 4, 7, 8), (4,), (4,), (4,), (4,)], 15, {}),
    ("InstanceNormalization", [(2, 4, 7, 8), (4,), (4,)], 6, {}),
    ("LRN", [(2, 4, 7, 8)], 13, {"size": 3}),
    ("DepthToSpace", [(2, 4, 7, 8)], 13, {"blocksize": 2}),
    ("SpaceToDepth", [(2, 4, 6, 8)], 13, {"blocksize": 2}),
    ("GridSample", [(2, 4, 7, 8), (2, 3, 3, 2)], 16, {}),
]


def by_onnx(op: str, inputs: Sequence[Array | None], **attributes: Any) -> Array:
    """ONNX's own operator in ONNX Runtime."""
    model = one_node(op, inputs, domain="", **attributes)
    return by_ort(model, feeds_of(model, inputs))[0]


@pytest.mark.parametrize(("op", "shapes", "version", "attributes"), NHWC)
def test_an_operator_with_channels_last_is_onnxs_between_two_layouts(
    op: str, shapes: Sequence[tuple[int, ...]], version: int, attributes: dict[str, Any]
) -> None:
    x, *rest = (numbers(*shape).abs() for shape in shapes)
    wanted = by_onnx(op, [x.numpy(), *(r.numpy() for r in rest)], **attributes)
    last = x.movedim(1, -1).contiguous()
    made = run(op, last, *rest, domain="com.ms.internal.nhwc", version=version, **attributes)
    np.testing.assert_allclose(made.movedim(-1, 1), wanted, rtol=1e-4, atol=1e-5)
    assert made.is_contiguous()


def test_a_resize_with_channels_last_has_its_scales_in_that_order() -> None:
    x = numbers(2, 4, 3, 5)
    scales = np.array([1, 1, 2, 3], np.float32)
    kind: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    wanted = by_onnx("Resize", [x.numpy(), None, scales], nearest_mode="floor", **kind)
    last = torch.tensor([1.0, 2.0, 3.0, 1.0])
    image = x.movedim(1, -1)
    settings: dict[str, Any] = {
        "domain": "com.ms.internal.nhwc",
        "version": 13,
        "nearest_mode": "floor",
        **kind,
    }
    made = run("Resize", image, None, last, **settings)
    np.testing.assert_array_equal(made.movedim(-1, 1), wanted)


def test_indices_of_an_unpooling_have_their_channels_last() -> None:
    x = numbers(1, 2, 4, 4)
    pooled, places = F.max_pool2d(x, 2, 2, return_indices=True)
    flat = places + 16 * torch.arange(2).reshape(1, 2, 1, 1)  # ONNX counts over channels, too
    wanted = F.max_unpool2d(pooled, places, [2, 2], [2, 2])
    given = pooled.movedim(1, -1), flat.movedim(1, -1)
    settings: dict[str, Any] = {"kernel_shape": (2, 2), "strides": (2, 2)}
    made = run("MaxUnpool", *given, domain="com.ms.internal.nhwc", version=11, **settings)
    same(made.movedim(-1, 1), wanted)


def test_a_fused_convolution_with_channels_last() -> None:
    x, w, b, z = numbers(2, 7, 8, 4), numbers(6, 4, 3, 3), numbers(6), numbers(2, 5, 6, 6)
    plain = F.conv2d(x.movedim(-1, 1), w, b).movedim(1, -1)
    same(run("NhwcConv", x, w, b), plain)
    same(run("NhwcFusedConv", x, w, b, z, activation="Relu"), (plain + z).relu())
    settings: dict[str, Any] = {
        "domain": "com.ms.internal.nhwc",
        "version": 11,
        "activation": "Relu",
    }
    same(run("Conv", x, w, b, **settings), plain.relu())


def test_a_quantized_transposed_convolution_with_channels_last() -> None:
    x = torch.randint(0, 255, (1, 3, 4, 2), generator=_made, dtype=torch.uint8)
    w = torch.randint(-9, 9, (2, 3, 2, 2), generator=_made, dtype=torch.int8)
    zero, nil = torch.tensor(7, dtype=torch.uint8), torch.tensor(0, dtype=torch.int8)
    scale, bias = torch.tensor(0.5), torch.tensor([4, 8, 12], dtype=torch.int32)
    image = (x.float() - 7).movedim(-1, 1) * 0.5
    y = F.conv_transpose2d(image, w.float() * 0.5, bias * 0.25, stride=2)
    wanted = (torch.round(y / 8.0) + 7).clamp(0, 255).to(torch.uint8)
    settings: dict[str, Any] = {"domain": "com.ms.internal.nhwc", "strides": (2, 2)}
    made = run(
        *("QLinearConvTranspose", x, scale, zero, w, scale, nil, scale * 16, zero, bias),
        **settings,
    )
    assert torch.equal(made.movedim(-1, 1), wanted)


def test_an_operator_with_channels_last_has_onnxs_opset() -> None:
    x = numbers(1, 4, 4, 2).numpy()
    model = one_node("MaxPool", [x], domain="com.ms.internal.nhwc", kernel_shape=[2, 2])
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 17))
    made = by_translation(model, {"x0": x})[0]
    same(made, F.max_pool2d(torch.from_numpy(x).movedim(-1, 1), 2, 1).movedim(1, -1))


@pytest.mark.parametrize("inputs", [3, 48])
def test_filters_in_blocks_are_put_in_order(inputs: int) -> None:
    w = numbers(48, inputs, 3, 3)
    b = block_size(48)
    if inputs % b:
        blocks = w.reshape(48 // b, b, inputs, 3, 3).permute(0, 2, 3, 4, 1)
    else:
        blocks = w.reshape(48 // b, b, inputs // b, b, 3, 3).permute(0, 2, 4, 5, 3, 1)
    assert torch.equal(plain_weight(blocks.reshape(w.shape)), w)


def test_a_value_in_blocks_is_padded_and_cut() -> None:
    x = numbers(1, 12, 2, 3)
    settings: dict[str, Any] = {"domain": "com.microsoft.nchwc"}
    padded = run("ReorderInput", x, channels_last=0, **settings)
    assert padded.shape[1] % block_size(padded.shape[1]) == 0
    assert padded[:, 12:].eq(0).all()
    same(run("ReorderInput", x.movedim(1, -1), channels_last=1, **settings), padded)
    same(run("ReorderOutput", padded, channels=12, channels_last=0, **settings), x)
    made = run("ReorderOutput", padded, channels=12, channels_last=1, **settings)
    same(made, x.movedim(1, -1))
