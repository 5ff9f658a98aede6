"""Quantized operators of com.microsoft, against ONNX Runtime's CPU provider.

Where a sum lies between two steps, ONNX Runtime's kernels and torch may round to different
sides: such results may be one step apart, in one element of fifty at most.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cpu import as_measured
from tests.sources.onnx.ort import Array, check

pytestmark = as_measured

_random = np.random.default_rng(5)


def floats(*shape: int) -> NDArray[np.float32]:
    return _random.standard_normal(shape).astype(np.float32)


def steps(*shape: int) -> NDArray[np.float32]:
    """Scales."""
    return (np.abs(_random.standard_normal(shape)) + 0.1).astype(np.float32)


def scale(value: float) -> NDArray[np.float32]:
    return np.array(value, np.float32)


def small(kind: type, *shape: int) -> Array:
    limits = np.iinfo(kind)
    return _random.integers(limits.min, limits.max + 1, shape).astype(kind)


def bytes_(*shape: int) -> NDArray[np.uint8]:
    return _random.integers(0, 256, shape).astype(np.uint8)


U8, I8 = np.uint8, np.int8
BLOCKS = [(32, 16), (40, 16), (64, 32)]  # columns and the size of a block


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("columns", "size"), BLOCKS)
@pytest.mark.parametrize("zeros", ["none", "packed", "flat", "floats"])
def test_a_product_with_weights_in_blocks(bits: int, columns: int, size: int, zeros: str) -> None:
    if bits == 8 and zeros == "floats":
        pytest.skip("ONNX Runtime's CPU provider has no such kernel")
    rows, blocks = 6, -(-columns // size)
    packed = bytes_(rows, -(-blocks * bits // 8))
    point: Array | None = {"packed": packed, "flat": packed.ravel()}.get(zeros)
    if zeros == "floats":
        point = floats(rows, blocks)
    inputs: list[Any] = [
        floats(3, columns),
        bytes_(rows, blocks, size * bits // 8),
        steps(rows, blocks),
    ]
    given: list[Any] = [*inputs, point, None, floats(rows)]
    sizes: dict[str, Any] = {"K": columns, "N": rows, "bits": bits, "block_size": size}
    held = (1, 2, 3) if point is not None else (1, 2)
    check("MatMulNBits", given, weights=held, rtol=1e-3, atol=1e-3, **sizes)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("rows", "columns"), [(6, 32), (5, 33)])
def test_a_product_with_weights_of_bitsandbytes(kind: int, rows: int, columns: int) -> None:
    count = rows * columns
    inputs: list[Any] = [floats(3, columns), bytes_(-(-count // 2)), steps(-(-count // 16))]
    sizes: dict[str, Any] = {"K": columns, "N": rows, "block_size": 16}
    check("MatMulBnb4", inputs, weights=(1, 2), quant_type=kind, atol=1e-4, **sizes)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_packed_table(bits: int, zeros: bool) -> None:
    indices = np.array([[0, -1, 6], [3, 3, -7]])
    inputs: list[Any] = [bytes_(7, 32 * bits // 8), indices, steps(7, 2)]
    given: list[Any] = [*inputs, bytes_(7, -(-2 * bits // 8))] if zeros else inputs
    held = (0, 2, 3) if zeros else (0, 2)
    check("GatherBlockQuantized", given, weights=held, bits=bits, block_size=16)


@pytest.mark.parametrize("name", ["uint4", "int4"])
@pytest.mark.parametrize(
    ("shape", "scales", "gather", "quantize"),
    [((7, 32), (7, 2), 0, 1), ((20, 3, 4), (2, 3, 4), 1, 0), ((3, 4, 20), (3, 4, 2), 1, 2)],
)
def test_slices_of_a_table_of_four_bits(
    name: str, shape: tuple[int, ...], scales: tuple[int, ...], gather: int, quantize: int
) -> None:
    kind, low = getattr(ml_dtypes, name), 0 if name == "uint4" else -8

    def numbers(*size: int) -> Array:
        return (_random.integers(0, 16, size) + low).astype(kind)

    inputs: list[Any] = [
        numbers(*shape),
        np.array([[0, 2], [1, -1]]),
        steps(*scales),
        numbers(*scales),
    ]
    axes: dict[str, Any] = {"gather_axis": gather, "quantize_axis": quantize, "block_size": 16}
    check("GatherBlockQuantized", inputs, weights=(0, 2, 3), **axes)


def _qlinear(kind: type) -> list[Any]:
    zero: Array = np.array(3, kind)
    nil = np.array(0, I8)
    low: Array = np.array(np.iinfo(kind).min, kind)

    def of(*shape: int) -> Array:
        return small(kind, *shape)

    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    pair: list[Any] = [of(3, 40), scale(0.1), zero, of(1, 40), scale(0.2), zero]
    image: list[Any] = [of(2, 7, 8, 4), scale(0.02), zero]
    filters: list[Any] = [small(I8, 6, 4, 3, 3), scale(0.01), nil]
    each: list[Any] = [filters[0], steps(6), np.zeros(6, I8)]
    bias = np.arange(6, dtype=np.int32)
    end: list[Any] = [scale(0.3), zero, bias]
    matrices = [of(3, 20), scale(0.02), zero, small(I8, 6, 20), scale(0.03), nil]
    where = _random.integers(0, 2, (3, 40)).astype(bool)
    return [
        ("QLinearAdd", [*pair, scale(0.25), zero], {}),
        ("QLinearMul", [*pair, scale(2.03), zero], {}),
        ("QLinearSigmoid", [of(3, 40), scale(0.05), zero, scale(1 / 255), low], {}),
        ("QLinearLeakyRelu", [of(3, 40), scale(0.05), zero, scale(0.06), zero], {"alpha": 0.2}),
        *(
            (
                "QLinearSoftmax",
                [of(3, 4, 10), scale(0.05), zero, scale(1 / 256), low],
                {"axis": 1, "opset": opset},
            )
            for opset in (11, 13)
        ),
        (
            "QLinearConcat",
            [scale(0.1), zero, of(3, 40), scale(0.2), zero, of(3, 20), scale(0.1), zero],
            {"axis": 1},
        ),
        ("QLinearWhere", [where, *pair, scale(0.15), zero], {}),
        ("QLinearGlobalAveragePool", [of(2, 40, 4, 5), scale(0.2), zero, scale(0.05), zero], {}),
        (
            "QLinearGlobalAveragePool",
            [of(2, 4, 5, 40), scale(0.2), zero, scale(0.05), zero],
            {"channels_last": 1},
        ),
        ("QLinearAveragePool", [of(2, 4, 9, 9), scale(0.2), zero, scale(0.13), zero], pool),
        (
            "QLinearAveragePool",
            [of(2, 9, 9, 4), scale(0.2), zero, scale(0.13), zero],
            {**pool, "count_include_pad": 1, "channels_last": 1},
        ),
        ("QLinearConv", [*image, *filters, *end], {"channels_last": 1, "weights": (3, 4, 5)}),
        ("QLinearConv", [of(2, 4, 7, 8), *image[1:], *each, *end], {"weights": (3, 4, 5)}),
        (
            "QGemm",
            [*matrices, bias, scale(0.2), zero],
            {"transB": 1},
        ),
        ("NhwcMaxPool", [of(2, 9, 9, 4)], pool),
        ("QuantizeLinear", [floats(3, 20) * 9, scale(0.1), zero], {}),
    ]


@pytest.mark.parametrize(
    ("kind", "op", "inputs", "settings"),
    [(kind, *case) for kind in (U8, I8) for case in _qlinear(kind)],
)
def test_an_operator_from_quantized_to_quantized(
    kind: type, op: str, inputs: list[Any], settings: dict[str, Any]
) -> None:
    check(op, inputs, types=[kind], steps=1, **settings)


def test_older_quantization_has_sixteen_bits_and_axes() -> None:
    wide = [floats(3, 20) * 9, scale(0.001), np.array(5, np.uint16)]
    check("QuantizeLinear", wide, types=[np.uint16])
    rows = [floats(3, 20) * 9, steps(3), np.zeros(3, I8)]
    check("QuantizeLinear", rows, axis=0, types=[I8], steps=1)
    check("DequantizeLinear", [bytes_(3, 20), scale(0.1), np.array(3, U8)])


@pytest.mark.parametrize("kind", [U8, I8])
def test_products_of_quantized_matrices_in_float(kind: type) -> None:
    zero: Array = np.array(3, kind)
    columns = np.zeros(5, I8)
    a, b = small(kind, 2, 3, 20), small(I8, 20, 5)
    check("MatMulIntegerToFloat", [a, b, scale(0.02), steps(5), zero, columns, floats(5)])
    bias = np.arange(5, dtype=np.int32)
    check("QGemm", [a[0], scale(0.02), zero, b, steps(5), columns, bias], alpha=0.5)


def test_a_product_quantizes_its_first_matrix_as_it_runs() -> None:
    b = small(I8, 20, 5)
    check("DynamicQuantizeMatMul", [floats(2, 3, 20), b, scale(0.03), np.array(0, I8), floats(5)])
    zeros = np.full(5, 128, U8)
    check("DynamicQuantizeMatMul", [floats(3, 20), bytes_(20, 5), steps(5), zeros])


def test_a_product_of_sixteen_bits() -> None:
    a, b = small(I8, 3, 4).astype(np.int16), small(I8, 4, 5).astype(np.int16)
    check("MatMulInteger16", [a, b], types=[np.int32])


QKV: list[Any] = [bytes_(2, 4, 8), small(I8, 8, 24), floats(24), scale(0.02)]
ZEROS: list[Any] = [np.array(128, U8), np.array(0, I8)]
QATTENTION: list[tuple[list[Any], int, dict[str, Any]]] = [
    ([*QKV, scale(0.01), None, *ZEROS], 1, {}),
    ([*QKV, scale(0.01), np.array([3, 2], np.int32), *ZEROS], 1, {}),
    ([*QKV, scale(0.01), None, *ZEROS, floats(2, 2, 2, 3, 4)], 2, {"unidirectional": 1}),
    ([*QKV, steps(24) * 0.02, None, ZEROS[0], np.zeros(24, I8)], 1, {}),
]


@pytest.mark.parametrize(("inputs", "outputs", "settings"), QATTENTION)
def test_attention_with_quantized_projections(
    inputs: list[Any], outputs: int, settings: dict[str, Any]
) -> None:
    check("QAttention", inputs, outputs, num_heads=2, weights=(1,), **settings)


def test_embeddings_of_quantized_tables() -> None:
    ids, segments = np.array([[1, 2, 9]], np.int32), np.array([[0, 1, 0]], np.int32)
    mask, types = np.array([[1, 1, 0]], np.int32), [np.float32, np.int32]
    word, place, kind = bytes_(10, 8), bytes_(5, 8), bytes_(2, 8)
    gamma, beta = bytes_(8), bytes_(8)
    tables = [word, place, kind, gamma, beta, mask]
    points: list[Any] = [scale(0.1)] * 5 + [np.array(128, U8)] * 5
    given: list[Any] = [ids, segments, *tables, *points]
    check("QEmbedLayerNormalization", given, 2, types=types, epsilon=1e-5)
    points = [scale(0.1), scale(0.2), None, scale(0.1), scale(0.1)]
    points += [np.array(128, U8), np.array(3, U8), None, np.array(4, U8), np.array(5, U8)]
    given = [ids, None, word, place, None, gamma, beta, None, *points]
    check("QEmbedLayerNormalization", given, 2, types=types)


@pytest.mark.parametrize(("way", "count"), [("forward", 1), ("reverse", 1), ("bidirectional", 2)])
@pytest.mark.parametrize("batch", [1, 3])
def test_an_lstm_of_quantized_weights(way: str, count: int, batch: int) -> None:
    size, hidden = 5, 6
    base: list[Any] = [floats(4, batch, size), small(I8, count, size, 4 * hidden)]
    base += [small(I8, count, hidden, 4 * hidden), floats(count, 8 * hidden)]
    zero = np.zeros(count, I8)
    points: list[Any] = [
        np.full(count, 0.01, np.float32),
        zero,
        np.full(count, 0.02, np.float32),
        zero,
    ]
    kind: dict[str, Any] = {"hidden_size": hidden, "direction": way}
    check("DynamicQuantizeLSTM", [*base, None, None, None, None, *points], 3, **kind)
    columns = [np.repeat(p[:, None], 4 * hidden, 1) for p in points]
    lengths = np.array([4, 2, 3][:batch], np.int32)
    state = [floats(count, batch, hidden), floats(count, batch, hidden)]
    full = [*base, lengths, *state, floats(count, 3 * hidden), *columns]
    check("DynamicQuantizeLSTM", full, 3, clip=3.0, **kind)


MOE = [floats(6, 8), floats(6, 4), floats(4, 16, 8), floats(4, 16), floats(4, 8, 16), floats(4, 8)]
SWIGLU: dict[str, Any] = {
    "activation_type": "swiglu",
    "swiglu_fusion": 1,
    "normalize_routing_weights": 1,
}
LIMITS: dict[str, Any] = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0}


def test_tokens_go_through_their_best_experts() -> None:
    check("MoE", MOE, k=2, activation_type="gelu", normalize_routing_weights=1)
    check("MoE", MOE, k=2, activation_type="silu")
    check("MoE", MOE, k=1)
    wide = [*MOE[:2], floats(4, 32, 8), floats(4, 32), *MOE[4:]]
    check("MoE", wide, k=2, **SWIGLU, **LIMITS)


@pytest.mark.parametrize(("bits", "size"), [(4, 0), (4, 16), (8, 0)])
def test_experts_of_quantized_weights(bits: int, size: int) -> None:
    def points(rows: int, columns: int) -> Array:
        made = steps(4, rows, columns // size) if size else steps(4, rows)
        return made * np.float32(0.01)

    width = 32 * bits // 8
    inputs: list[Any] = [floats(6, 32), floats(6, 4)]
    inputs += [bytes_(4, 64, width), points(64, 32), floats(4, 64)]
    inputs += [bytes_(4, 32, width), points(32, 32), floats(4, 32)]
    blocks: dict[str, Any] = {"block_size": size} if size else {}
    settings: dict[str, Any] = {"expert_weight_bits": bits, **blocks, **SWIGLU}
    held = (2, 3, 4, 5, 6, 7)
    check("QMoE", inputs, weights=held, k=2, rtol=1e-2, atol=1e-2, **settings)
