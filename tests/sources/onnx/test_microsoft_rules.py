"""Fused operators and attention of com.microsoft, against ONNX Runtime's CPU provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graphmem.errors import UnsupportedOpError
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model
from graphmem.sources.onnx.rules.microsoft.without_tensors import REASONS
from tests.cpu import as_measured
from tests.sources.onnx.ort import Array, check, one_node

pytestmark = as_measured

B, S, D, N = 2, 4, 8, 2  # batch, new tokens, hidden size, heads
_random = np.random.default_rng(4)


def floats(*shape: int) -> NDArray[np.float32]:
    return _random.standard_normal(shape).astype(np.float32)


def int32(*values: Any) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def bits(*shape: int) -> NDArray[np.int32]:
    return _random.integers(0, 2, shape).astype(np.int32)


ACTIVATIONS: list[tuple[str, list[float]]] = [
    ("Relu", []),
    ("LeakyRelu", [0.1]),
    ("Clip", [-0.5, 0.5]),
    ("Sigmoid", []),
    ("Tanh", []),
    ("HardSigmoid", [0.2, 0.5]),
    ("HardSwish", []),
]


@pytest.mark.parametrize(("name", "parameters"), ACTIVATIONS)
def test_a_fused_convolution_applies_its_activation(name: str, parameters: list[float]) -> None:
    given: dict[str, Any] = {"activation_params": parameters} if parameters else {}
    inputs = [floats(2, 4, 8, 8), floats(6, 4, 3, 3), floats(6)]
    check("FusedConv", inputs, activation=name, pads=[1, 1, 1, 1], **given)


def test_a_fused_convolution_adds_another_tensor_before_the_activation() -> None:
    inputs = [floats(2, 4, 8, 8), floats(6, 4, 3, 3), floats(6), floats(2, 6, 4, 4)]
    check("FusedConv", inputs, activation="Relu", pads=[1, 1, 1, 1], strides=[2, 2])


GEMM_ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("Relu", {}),
    ("LeakyRelu", {"activation_alpha": 0.1}),
    ("Elu", {"activation_alpha": 0.7}),
    ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1}),
    ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("ThresholdedRelu", {"activation_alpha": 0.8}),
    ("Tanh", {}),
    ("Sigmoid", {}),
]


@pytest.mark.parametrize(("name", "parameters"), GEMM_ACTIVATIONS)
def test_a_fused_gemm_applies_its_activation(name: str, parameters: dict[str, Any]) -> None:
    inputs = [floats(3, 4), floats(5, 4), floats(5)]
    check("FusedGemm", inputs, activation=name, transB=1, alpha=0.5, beta=2.0, **parameters)


def _stored(rows: int, columns: int, last: int, batch: int) -> NDArray[np.float32]:
    """What becomes [2, 3, rows, columns] once it is transposed."""
    shape = [2, 3, columns, rows] if last else [2, 3, rows, columns]
    return floats(*([shape[2], *shape[:2], shape[3]] if batch else shape))


@pytest.mark.parametrize("a", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("b", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_a_fused_matmul_transposes_matrices_and_batches(
    a: tuple[int, int], b: tuple[int, int]
) -> None:
    flags: dict[str, Any] = {
        "transA": a[0],
        "transBatchA": a[1],
        "transB": b[0],
        "transBatchB": b[1],
    }
    check("FusedMatMul", [_stored(4, 5, *a), _stored(5, 6, *b)], alpha=0.3, **flags)


def test_the_older_name_of_a_fused_matmul_does_the_same() -> None:
    check("TransposeMatMul", [floats(4, 3), floats(4, 5)], transA=1, alpha=2.0)


def test_pads_of_a_transposed_convolution_may_be_an_input() -> None:
    inputs = [floats(1, 4, 5, 5), floats(4, 3, 3, 3), np.array([1, 0, 1, 1])]
    check("ConvTransposeWithDynamicPads", inputs, strides=[2, 2], kernel_shape=[3, 3])


ELEMENTWISE: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Gelu", [floats(3, 4)], {}),
    ("BiasGelu", [floats(3, 4), floats(4)], {}),
    ("FastGelu", [floats(3, 4)], {}),
    ("FastGelu", [floats(3, 4), floats(4)], {}),
    ("QuickGelu", [floats(3, 4)], {}),
    ("QuickGelu", [floats(3, 4)], {"alpha": 1.0}),
    ("GatedAdd", [floats(3, 4), floats(3, 4), floats(3, 1)], {}),
    ("ScaledSiLU", [floats(3, 4)], {"alpha": 0.7}),
]


@pytest.mark.parametrize(("op", "inputs", "settings"), ELEMENTWISE)
def test_an_activation_is_onnx_runtimes(
    op: str, inputs: list[Any], settings: dict[str, Any]
) -> None:
    check(op, inputs, **settings)


SKIPS: list[tuple[str, list[Any], list[int], dict[str, Any]]] = [
    ("SkipLayerNormalization", [floats(B, 3, D), floats(B, 3, D), *([floats(D)] * 3)], [0, 3], {}),
    (
        "SkipLayerNormalization",
        [floats(B, 3, D), floats(1, 3, D), floats(D)],
        [0],
        {"epsilon": 0.01},
    ),
    ("SkipLayerNormalization", [floats(B, 3, D), floats(3, D), floats(D), floats(D)], [0], {}),
    (
        "SkipSimplifiedLayerNormalization",
        [floats(B, 3, D), floats(B, 3, D), floats(D), floats(D)],
        [0, 3],
        {"epsilon": 0.01},
    ),
    ("SkipSimplifiedLayerNormalization", [floats(3, D), floats(3, D), floats(D)], [0], {}),
    ("SimplifiedLayerNormalization", [floats(B, 3, D), floats(D)], [0, 1], {"domain": ""}),
    (
        "SimplifiedLayerNormalization",
        [floats(B, 3, D), floats(D)],
        [0],
        {"domain": "", "epsilon": 0.01},
    ),
]


@pytest.mark.parametrize(("op", "inputs", "outputs", "settings"), SKIPS)
def test_a_normalization_of_a_sum_gives_the_sum_too(
    op: str, inputs: list[Any], outputs: list[int], settings: dict[str, Any]
) -> None:
    check(op, inputs, outputs, **settings)


def test_embeddings_are_summed_and_normalized_and_the_mask_is_counted() -> None:
    ids, segments = int32([1, 2, 9], [0, 4, 4]), int32([0, 0, 1], [1, 1, 0])
    mask = int32([1, 1, 0], [1, 0, 0])
    tables = [floats(10, D), floats(5, D), floats(2, D), floats(D), floats(D)]
    types = [np.float32, np.int32, np.float32]
    inputs = [ids, segments, *tables, mask]
    wanted = check("EmbedLayerNormalization", inputs, 3, types=types, epsilon=0.01)
    assert list(wanted[1]) == [2, 1]
    given = [ids, None, tables[0], tables[1], None, *tables[3:], None, int32([2, 1, 0])]
    wanted = check("EmbedLayerNormalization", given, 2, types=types)
    assert list(wanted[1]) == [0, 0]  # no mask: nothing is counted


X, W, BIAS = floats(B, S, D), floats(D, 3 * D), floats(3 * D)
PAST = floats(2, B, N, 3, D // N)
MASK = int32([1, 1, 1, 0], [1, 1, 0, 0])
ATTENTION: dict[str, tuple[list[Any], int, dict[str, Any]]] = {
    "plain": ([X, W, BIAS], 1, {}),
    "scaled": ([X, W, BIAS], 1, {"scale": 0.3}),
    "causal": ([X, W, BIAS], 1, {"unidirectional": 1}),
    "ends": ([X, W, BIAS, int32(3, 2)], 1, {}),
    "ends and starts": ([X, W, BIAS, int32(4, 3, 1, 0)], 1, {}),
    "mask": ([X, W, BIAS, MASK], 1, {}),
    "mask of nothing": ([X, W, BIAS, MASK * 0], 1, {"unidirectional": 1}),
    "mask, causal": ([X, W, BIAS, MASK], 1, {"unidirectional": 1}),
    "weak mask": ([X, W, BIAS, MASK], 1, {"mask_filter_value": -2.0}),
    "mask of pairs": ([X, W, BIAS, bits(B, S, S)], 1, {}),
    "mask of pairs, causal": ([X, W, BIAS, bits(B, S, S)], 1, {"unidirectional": 1}),
    "past": ([X, W, BIAS, None, PAST], 2, {"unidirectional": 1}),
    "past, mask": ([X, W, BIAS, int32([1] * 7, [1] * 5 + [0] * 2), PAST], 2, {}),
    "sizes": ([X, floats(D, 28), floats(28)], 1, {"qkv_hidden_sizes": [8, 8, 12]}),
    "bias": ([X, W, BIAS, None, None, floats(1, N, S, S)], 1, {}),
    "present": ([X, W, BIAS], 2, {}),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_with_its_projections(case: str) -> None:
    inputs, outputs, settings = ATTENTION[case]
    check("Attention", inputs, outputs, num_heads=N, **settings)


Q, K, V = floats(B, S, D), floats(B, 5, D), floats(B, 5, 12)
SAME = [floats(B, S, D), floats(B, S, D)]
PASTS = [floats(B, N, 3, 4), floats(B, N, 3, 4)]
BUFFERS = [floats(B, N, 6, 4), floats(B, N, 6, 4)]
CROSS = [floats(B, N, 5, 4), floats(B, N, 5, 4)]
ONE = [floats(B, 1, D), floats(B, 1, D), floats(B, 1, D)]
MULTI: dict[str, tuple[list[Any], int, dict[str, Any]]] = {
    "plain": ([Q, K, V], 1, {}),
    "scores": ([Q, K, V, floats(28)], 4, {}),
    "ends": ([Q, K, V, None, int32(3, 2)], 1, {}),
    "mask": ([Q, K, V, None, int32([1, 1, 1, 0, 0], [1, 1, 1, 1, 0])], 1, {}),
    "mask of pairs": ([Q, K, V, None, bits(B, S, 5)], 1, {}),
    "bias of scores": ([Q, K, V, None, None, floats(B, 1, S, 5)], 1, {}),
    "causal": ([Q, *SAME], 1, {"unidirectional": 1, "scale": 0.5}),
    "past": ([Q, *SAME, None, None, None, *PASTS], 3, {"unidirectional": 1}),
    "all": (
        [Q, *SAME, floats(24), int32([1] * 7, [1] * 5 + [0] * 2), floats(B, 1, S, 7), *PASTS],
        4,
        {},
    ),
    "cross": ([Q, *CROSS], 1, {}),
    "cross, bias": ([Q, *CROSS, floats(24)], 1, {}),
    "shared buffer": ([*ONE, None, None, None, *BUFFERS, int32(3)], 3, {}),
}


@pytest.mark.parametrize("case", MULTI)
def test_attention_of_projections(case: str) -> None:
    inputs, outputs, settings = MULTI[case]
    check("MultiHeadAttention", inputs, outputs, num_heads=N, **settings)


SHARE = {"past_present_share_buffer": 1}
DECODER: dict[str, tuple[list[Any], int | Sequence[int], dict[str, Any]]] = {
    "shared buffer": (
        [*ONE, int32([1] * 4, [1, 1, 1, 0]), None, *BUFFERS, int32(3), None, None, floats(24)],
        3,
        SHARE,
    ),
    "cross": ([ONE[0], *CROSS], 1, {}),
    "cross, scores": ([ONE[0], *CROSS, *[None] * 7, floats(24)], [0, 3], {"output_qk": 1}),
    "beams": (
        [*ONE, None, None, *BUFFERS, int32(3), int32(2), bits(1, 2, 6)],
        3,
        SHARE,
    ),
}


@pytest.mark.parametrize("case", DECODER)
def test_attention_of_one_new_token(case: str) -> None:
    inputs, outputs, settings = DECODER[case]
    check("DecoderMaskedMultiHeadAttention", inputs, outputs, num_heads=N, **settings)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("shape", "positions", "part"),
    [
        ((B, S, 16), (B, S), {}),
        ((B, N, S, 8), (1,), {}),
        ((B, S, 16), (B, S), {"rotary_embedding_dim": 4, "num_heads": 2}),
        ((B, N, S, 8), (B, S), {"rotary_embedding_dim": 4, "num_heads": 2}),
    ],
)
def test_rotary_positions(
    interleaved: int, shape: tuple[int, ...], positions: tuple[int, ...], part: dict[str, Any]
) -> None:
    half = 2 if part else 4
    inputs = [floats(*shape), _random.integers(0, 5, positions), floats(9, half), floats(9, half)]
    check("RotaryEmbedding", inputs, interleaved=interleaved, **part)


H = 16  # the CPU provider rotates heads of multiples of 16


def _tokens(new: int, batch: int = B) -> list[Any]:
    return [floats(batch, new, 4 * H), floats(batch, new, 2 * H), floats(batch, new, 2 * H)]


def _cache(length: int, batch: int = B) -> list[Any]:
    return [floats(batch, 2, length, H), floats(batch, 2, length, H)]


def _lengths(total: int, *each: int) -> list[Any]:
    """Of each sequence less one, and the longest."""
    return [int32(*(n - 1 for n in each)), np.array(total, np.int32)]


ANGLES: list[Any] = [floats(16, H // 2), floats(16, H // 2)]
PROMPT = [*_tokens(4), *_cache(0), *_lengths(4, 4, 4)]
NONE3: list[Any] = [None] * 3
GROUPED: dict[str, tuple[list[Any], int, dict[str, Any]]] = {
    "prompt": (PROMPT, 3, {}),
    "prompt without cache": ([*_tokens(4), None, None, *_lengths(4, 4, 4)], 3, {}),
    "packed": ([floats(B, 4, 8 * H), None, None, *_cache(0), *_lengths(4, 4, 4)], 3, {}),
    "rotary": ([*PROMPT, *ANGLES], 3, {"do_rotary": 1}),
    "rotary, interleaved": ([*PROMPT, *ANGLES], 3, {"do_rotary": 1, "rotary_interleaved": 1}),
    "places": (
        [*PROMPT, *ANGLES, np.tile(np.arange(3, 7), (B, 1))],
        3,
        {"do_rotary": 1},
    ),
    "next": ([*_tokens(1), *_cache(5), *_lengths(6, 6, 6), *ANGLES], 3, {"do_rotary": 1}),
    "next, ragged": ([*_tokens(1), *_cache(5), *_lengths(6, 6, 4), *ANGLES], 3, {"do_rotary": 1}),
    "next in a longer buffer": ([*_tokens(1), *_cache(9), *_lengths(6, 6, 5)], 3, {}),
    "several next": (
        [*_tokens(3, 1), *_cache(5, 1), *_lengths(8, 8), *ANGLES],
        3,
        {"do_rotary": 1},
    ),
    "window": ([*_tokens(6), *_cache(0), *_lengths(6, 6, 6)], 3, {"local_window_size": 2}),
    "window, next": ([*_tokens(1), *_cache(5), *_lengths(6, 6, 6)], 3, {"local_window_size": 3}),
    "window, several next": (
        [*_tokens(3, 1), *_cache(5, 1), *_lengths(8, 8)],
        3,
        {"local_window_size": 2},
    ),
    "cap": (PROMPT, 3, {"softcap": 2.0, "scale": 0.4}),
    "smooth": (PROMPT, 3, {"smooth_softmax": 1}),
    "sink": ([*PROMPT, *NONE3, None, floats(4)], 3, {}),
    "bias": ([*PROMPT, *NONE3, floats(1, 1, 4, 4)], 3, {}),
    "bias and cap": ([*PROMPT, *NONE3, floats(1, 1, 4, 4)], 3, {"softcap": 1.0}),
    "both ways": (PROMPT, 3, {"causal": 0}),
    "both ways, next": ([*_tokens(2, 1), *_cache(5, 1), *_lengths(7, 7)], 3, {"causal": 0}),
    "scores": (PROMPT, 4, {"qk_output": 1}),
    "weights": (PROMPT, 4, {"qk_output": 2}),
}


@pytest.mark.parametrize("case", GROUPED)
def test_attention_of_groups_that_share_keys(case: str) -> None:
    inputs, outputs, settings = GROUPED[case]
    check("GroupQueryAttention", inputs, outputs, num_heads=4, kv_num_heads=2, **settings)


def _places(*rows: Sequence[float]) -> Array:
    return np.array(rows, np.float32)


TENSORS: list[Any] = [
    ("Inverse", [floats(2, 3, 3)], 1, {"atol": 1e-3}),
    ("Trilu", [floats(2, 3, 4), np.array(1)], 1, {"upper": 0}),
    ("Trilu", [floats(3, 4)], 1, {}),
    ("Unique", [_places([2, 1, 1, 3, 4, 3])[0]], 3, {"types": [np.float32, np.int64, np.int64]}),
    ("ExpandDims", [floats(3, 4), np.array(-1, np.int32)], 1, {}),
    ("ExpandDims", [floats(3, 4), np.array(1, np.int32)], 1, {}),
    ("Range", [np.array(1, np.float32), np.array(4, np.float32)], 1, {}),
    ("Range", [np.array([1]), np.array([9]), np.array([3])], 1, {"types": [np.int64]}),
    ("GatherND", [floats(3, 4), np.array([[0, 1], [2, 3]])], 1, {}),
    ("Pad", [floats(3, 4), np.array([0, 1, 1, 2]), floats(1)], 1, {}),
    ("Pad", [floats(3, 4), np.array([[0, 1, 1, 2]])], 1, {"mode": "reflect"}),
    ("Pad", [floats(3, 4), np.array([0, 1, 1, 2])], 1, {"mode": "edge"}),
    ("CDist", [floats(3, 4), floats(5, 4)], 1, {"metric": "euclidean"}),
    ("CDist", [floats(3, 4), floats(5, 4)], 1, {}),
    ("UnfoldTensor", [floats(3, 9)], 1, {"size": 3, "step": 2}),
    *(
        ("NGramRepeatBlock", [np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 5]]), floats(2, 8)], 1, kind)
        for kind in ({"ngram_size": 1}, {"ngram_size": 3}, {"ngram_size": 9})
    ),
    *(
        (
            "CropAndResize",
            [
                floats(2, 3, 6, 7),
                _places([0.1, 0.2, 0.7, 0.8], [0, 0, 1.2, 0.9], [0.5, 0.1, 0.6, 0.4]),
                int32(0, 1, 1),
                int32(3, 4),
            ],
            1,
            {"mode": mode, "extrapolation_value": 2.0},
        )
        for mode in ("bilinear", "nearest")
    ),
    ("CropAndResize", [floats(1, 2, 6, 7), floats(1, 4) % 1, int32(0), int32(1, 1)], 1, {}),
    *(
        ("GridSample", [floats(1, 2, 4, 5), floats(1, 3, 3, 2)], 1, {"mode": m, "padding_mode": p})
        for m in ("bilinear", "nearest", "bicubic")
        for p in ("zeros", "border", "reflection")
    ),
]


@pytest.mark.parametrize(("op", "inputs", "outputs", "settings"), TENSORS)
def test_an_operator_on_tensors(
    op: str, inputs: list[Any], outputs: int, settings: dict[str, Any]
) -> None:
    check(op, inputs, outputs, **settings)


@pytest.mark.parametrize("op", REASONS)
def test_an_operator_without_a_tensor_meaning_says_why_in_one_line(op: str) -> None:
    model = one_node(op, [floats(2)])
    with pytest.raises(
        UnsupportedOpError, match=rf"node node \(com.microsoft.{op}\): it "
    ) as error:
        build_module(as_model(model, "one.onnx"), weights=True)(None)
    assert "\n" not in str(error.value)
