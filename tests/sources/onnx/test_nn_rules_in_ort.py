"""Rules of neural networks give what ONNX Runtime's CPU kernels give, in old opsets too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, helper

from graphmem.sources.onnx import rules as _rules  # registers them
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model
from tests.cpu import as_measured

pytestmark = as_measured

assert _rules

Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(0)


def _floats(*shape: int) -> Array:
    return _RNG.normal(size=shape).astype(np.float32)


def _bytes(*shape: int, dtype: Any = np.uint8) -> Array:
    return _RNG.integers(0, 100, size=shape).astype(dtype)


def _model(
    op: str, version: int, inputs: list[Array | None], outputs: int, attributes: dict[str, Any]
) -> ModelProto:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in made]
    graph = helper.make_graph([node], "g", values, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def _check(
    op: str, version: int, inputs: list[Array | None], outputs: int = 1, **attributes: Any
) -> None:
    """The rule's outputs are the runtime's."""
    runtime = pytest.importorskip("onnxruntime", reason="the oracle is ONNX Runtime")
    model = _model(op, version, inputs, outputs, attributes)
    given = [x for x in inputs if x is not None]
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    expected = session.run(None, dict(zip(names, given, strict=True)))
    module = build_module(as_model(model, "m.onnx"), weights=True).eval()
    with torch.no_grad():
        result = module(*map(torch.from_numpy, given))
    results = result if isinstance(result, tuple) else (result,)
    assert len(results) == len(expected)
    for got, wanted in zip(results, expected, strict=True):
        assert got.numpy().dtype == wanted.dtype
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-5)


_X2 = _floats(2, 4, 9, 7)

_CONV = [
    ("Conv", 1, [_X2, _floats(6, 2, 3, 2)], {"group": 2, "pads": [0, 1, 2, 0], "strides": [2, 1]}),
    ("Conv", 11, [_X2, _floats(6, 4, 3, 3), _floats(6)], {"auto_pad": "SAME_LOWER"}),
    ("Conv", 11, [_X2, _floats(6, 4, 2, 4)], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ("Conv", 11, [_X2, _floats(6, 4, 3, 3)], {"dilations": [2, 2], "pads": [1, 1, 1, 1]}),
    ("ConvTranspose", 1, [_X2, _floats(4, 2, 3, 3)], {"group": 2, "strides": [2, 2]}),
    (
        "ConvTranspose",
        11,
        [_X2, _floats(4, 2, 3, 3)],
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    (
        "ConvTranspose",
        11,
        [_X2, _floats(4, 2, 3, 3)],
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ),
    ("ConvTranspose", 11, [_X2, _floats(4, 2, 3, 3)], {"pads": [0, 1, 2, 1], "strides": [2, 2]}),
    (
        "ConvTranspose",
        11,
        [_X2, _floats(4, 2, 3, 3), _floats(2)],
        {"output_shape": [18, 14], "strides": [2, 2], "output_padding": [1, 1]},
    ),
    ("ConvTranspose", 11, [_floats(1, 2, 5), _floats(2, 3, 3)], {"dilations": [2], "pads": [2, 1]}),
    (
        "ConvInteger",
        10,
        [_bytes(1, 2, 5, 5), _bytes(3, 2, 3, 3), np.uint8(7)],
        {"pads": [1, 1, 1, 1]},
    ),
    (
        "QLinearConv",
        10,
        [
            *(_bytes(1, 2, 5, 5), np.float32(0.02), np.uint8(7)),
            *(
                _bytes(3, 2, 3, 3, dtype=np.int8),
                np.full(3, 0.05, np.float32),
                np.zeros(3, np.int8),
            ),
            *(np.float32(0.6), np.uint8(11), _RNG.integers(-99, 99, 3).astype(np.int32)),
        ],
        {"auto_pad": "SAME_UPPER"},
    ),
    (
        "QLinearMatMul",
        21,
        [
            *(_bytes(4, 5), np.float32(0.02), np.uint8(7)),
            *(_bytes(5, 3), np.full(3, 0.1, np.float32), np.full(3, 9, np.uint8)),
            *(np.float32(0.2), np.uint8(11)),
        ],
        {},
    ),
    ("MatMulInteger", 10, [_bytes(2, 4, 5), _bytes(5, 3), np.uint8(3), _bytes(3)], {}),
]

_POOL = [
    ("MaxPool", 1, [_X2], {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("MaxPool", 12, [_X2], {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "strides": [2, 2]}),
    ("MaxPool", 12, [_X2], {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 3]}),
    (
        "MaxPool",
        12,
        [_X2],
        {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 2], "pads": [0, 0, 1, 1]},
    ),
    ("MaxPool", 12, [_X2], {"kernel_shape": [3, 3], "dilations": [2, 1], "ceil_mode": 1}),
    ("MaxPool", 12, [_bytes(1, 2, 6, 6)], {"kernel_shape": [2, 2]}),
    (
        "MaxPool",
        12,
        [_bytes(1, 2, 6, 6, dtype=np.int8)],
        {"kernel_shape": [2, 2], "pads": [1, 0, 0, 0]},
    ),
    (
        "AveragePool",
        7,
        [_X2],
        {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "count_include_pad": 1},
    ),
    ("AveragePool", 11, [_X2], {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "strides": [2, 2]}),
    (
        "AveragePool",
        11,
        [_X2],
        {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ),
    ("AveragePool", 19, [_X2], {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]}),
    ("AveragePool", 11, [_floats(1, 2, 9)], {"kernel_shape": [4], "pads": [0, 1]}),
    (
        "AveragePool",
        11,
        [_floats(1, 2, 5, 6, 7)],
        {"kernel_shape": [2, 3, 2], "pads": [0, 1, 0, 1, 0, 0]},
    ),
    ("LpPool", 11, [_X2], {"kernel_shape": [3, 2], "p": 3, "pads": [1, 0, 0, 1]}),
    ("LpPool", 18, [_X2], {"kernel_shape": [3, 2], "dilations": [2, 1]}),
    ("LpPool", 11, [_floats(1, 2, 9)], {"kernel_shape": [4], "strides": [3]}),
    ("GlobalLpPool", 2, [_X2], {"p": 3}),
    ("GlobalMaxPool", 1, [_X2], {}),
    ("GlobalAveragePool", 1, [_floats(2, 3, 4, 5, 6)], {}),
    (
        "MaxRoiPool",
        1,
        [_X2, np.array([[0, 0, 0, 9, 11], [1, 2, 1, 5, 3], [0, 4, 4, 4, 4]], np.float32)],
        {"pooled_shape": [2, 3], "spatial_scale": 0.6},
    ),
]

_NORM = [
    (
        "BatchNormalization",
        version,
        [_X2, _floats(4), _floats(4), _floats(4), _floats(4) ** 2],
        {"epsilon": 1e-3},
    )
    for version in (7, 9, 14, 15)
] + [
    ("InstanceNormalization", 6, [_X2, _floats(4), _floats(4)], {"epsilon": 1e-3}),
    ("GroupNormalization", 21, [_X2, _floats(4), _floats(4)], {"num_groups": 2}),
    ("LayerNormalization", 17, [_X2, _floats(9, 7), _floats(9, 7)], {"axis": 2}),
    ("LpNormalization", 1, [_X2], {"axis": 1, "p": 1}),
    ("LRN", 13, [_X2], {"size": 3, "alpha": 0.1}),
    ("MeanVarianceNormalization", 13, [_X2], {"axes": [0, 2]}),
    ("Dropout", 7, [_X2], {"ratio": 0.3}),
]


@pytest.mark.parametrize(("op", "version", "inputs", "attributes"), [*_CONV, *_POOL, *_NORM])
def test_a_layer_gives_what_the_runtime_gives(
    op: str, version: int, inputs: list[Array], attributes: dict[str, Any]
) -> None:
    _check(op, version, [np.asarray(x) for x in inputs], **attributes)


@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
def test_a_pool_gives_indices_in_the_whole_input(columns: int, pads: list[int]) -> None:
    settings: dict[str, Any] = {
        "kernel_shape": [3, 2],
        "strides": [2, 2],
        "storage_order": columns,
        "pads": pads,
    }
    _check("MaxPool", 12, [_X2], outputs=2, **settings)


def test_unpooling_puts_values_where_indices_say() -> None:
    x, indices = _floats(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])
    shape = np.array([1, 1, 4, 4])
    _check("MaxUnpool", 11, [x, indices, shape], kernel_shape=[2, 2], strides=[2, 2])


_SMALL = _floats(1, 2, 5, 6)
_TRANSFORMS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


@pytest.mark.parametrize("transform", _TRANSFORMS)
@pytest.mark.parametrize("scales", [(2.0, 2.0), (0.6, 0.7), (1.5, 0.5), (0.2, 2.3)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resizing_reads_between_elements(
    mode: str, scales: tuple[float, float], transform: str
) -> None:
    settings: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
    if transform == "align_corners":  # the runtime rounds the length, which ONNX does not
        sizes = np.array([1, 2, int(5 * scales[0]), int(6 * scales[1])])
        _check("Resize", 13, [_SMALL, None, None, sizes], **settings)
    else:
        given = np.array([1, 1, *scales], np.float32)
        _check("Resize", 13, [_SMALL, None, given], **settings)


@pytest.mark.parametrize("transform", _TRANSFORMS)
@pytest.mark.parametrize("sizes", [(10, 12), (3, 4), (7, 3)])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resizing_reads_the_nearest_element(
    rounding: str, sizes: tuple[int, int], transform: str
) -> None:
    settings: dict[str, Any] = {
        "nearest_mode": rounding,
        "coordinate_transformation_mode": transform,
    }
    _check("Resize", 13, [_SMALL, None, None, np.array([1, 2, *sizes])], **settings)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_resizing_some_axes_keeps_their_ratio(mode: str, antialias: int, policy: str) -> None:
    settings: dict[str, Any] = {"mode": mode, "axes": [2, 3], "keep_aspect_ratio_policy": policy}
    excludes = antialias  # the runtime's filter leaves out what lies outside
    sizes = np.array([3, 4])
    settings |= {"antialias": antialias, "exclude_outside": excludes}
    _check("Resize", 19, [_SMALL, None, None, sizes], **settings)


def test_resizing_a_region_fills_what_lies_outside() -> None:
    roi = np.array([0, 0, 0.1, -0.3, 1, 1, 0.8, 1.2], np.float32)
    settings: dict[str, Any] = {
        "mode": "linear",
        "coordinate_transformation_mode": "tf_crop_and_resize",
    }
    sizes = np.array([1, 2, 4, 7])
    _check("Resize", 13, [_SMALL, roi, None, sizes], extrapolation_value=9.0, **settings)


@pytest.mark.parametrize(("op", "version"), [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_scales_before_opset_11(op: str, version: int, mode: str) -> None:
    scales = [1.0, 1.0, 2.0, 3.0]
    if version == 7:
        _check(op, version, [_SMALL], mode=mode, scales=scales)
    else:
        _check(op, version, [_SMALL, np.array(scales, np.float32)], mode=mode)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_grid_is_sampled(mode: str, padding: str) -> None:
    old = {"linear": "bilinear", "cubic": "bicubic"}
    grid = _floats(1, 3, 4, 2)
    _check("GridSample", 20, [_SMALL, grid], mode=mode, padding_mode=padding)
    _check("GridSample", 16, [_SMALL, grid], mode=old.get(mode, mode), padding_mode=padding)


_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_OWN = {
    "RNN": ["Relu"],
    "GRU": ["HardSigmoid", "Softsign"],
    "LSTM": ["HardSigmoid", "Relu", "Softsign"],
}


def _recurrent(op: str, directions: int, lengths: list[int] | None) -> list[Array | None]:
    gates, steps, batch, inputs, hidden = _GATES[op], 5, 2, 3, 4
    made: list[Array | None] = [
        _floats(steps, batch, inputs),
        _floats(directions, gates * hidden, inputs),
        _floats(directions, gates * hidden, hidden),
        _floats(directions, 2 * gates * hidden),
        None if lengths is None else np.array(lengths, np.int32),
        _floats(directions, batch, hidden),
    ]
    return [*made, _floats(directions, batch, hidden)] if op == "LSTM" else made


@pytest.mark.parametrize("op", _GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [None, [5, 5], [5, 2]])
@pytest.mark.parametrize("own", [False, True])
def test_a_recurrent_layer_runs(
    op: str, direction: str, lengths: list[int] | None, own: bool
) -> None:
    directions = 2 if direction == "bidirectional" else 1
    settings: dict[str, Any] = {"hidden_size": 4, "direction": direction}
    if own:
        settings["activations"] = _OWN[op] * directions
        settings["clip"] = 0.7
    outputs = 3 if op == "LSTM" else 2
    _check(op, 14, _recurrent(op, directions, lengths), outputs=outputs, **settings)


def test_a_reset_gate_after_the_product_is_torchs() -> None:
    inputs = _recurrent("GRU", 2, None)
    settings: dict[str, Any] = {
        "hidden_size": 4,
        "direction": "bidirectional",
        "linear_before_reset": 1,
    }
    _check("GRU", 7, inputs, outputs=2, **settings)
    _check("GRU", 7, _recurrent("GRU", 2, [3, 5]), outputs=2, **settings)


@pytest.mark.parametrize("coupled", [0, 1])
def test_a_cell_is_seen_through_peepholes(coupled: int) -> None:
    inputs = [*_recurrent("LSTM", 1, None), _floats(1, 12)]
    _check("LSTM", 7, inputs, outputs=3, hidden_size=4, input_forget=coupled)


_ROIS = np.array([[0, 0, 5, 4], [1.3, 0.4, 3.9, 3.2], [-2, 1, 9, 8]], np.float32)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
def test_regions_are_aligned(transform: str, ratio: int, mode: str) -> None:
    settings: dict[str, Any] = {
        "mode": mode,
        "sampling_ratio": ratio,
        "output_height": 2,
        "output_width": 3,
    }
    inputs: list[Array | None] = [_floats(2, 3, 6, 7), _ROIS, np.array([0, 1, 1])]
    _check("RoiAlign", 16, inputs, coordinate_transformation_mode=transform, **settings)


@pytest.mark.parametrize("centered", [0, 1])
def test_boxes_that_overlap_are_dropped(centered: int) -> None:
    boxes, scores = np.abs(_floats(2, 20, 4)), np.abs(_floats(2, 3, 20))
    limits = [np.array([5]), np.array([0.3], np.float32), np.array([0.2], np.float32)]
    _check("NonMaxSuppression", 11, [boxes, scores, *limits], center_point_box=centered)


@pytest.mark.parametrize("onesided", [0, 1])
def test_a_signal_has_its_spectra(onesided: int) -> None:
    signal, window = _floats(2, 40, 1), np.hanning(8).astype(np.float32)
    step, length = np.array(4), np.array(8)
    _check("STFT", 17, [signal, step, window, length], onesided=onesided)
    _check("DFT", 17, [signal, np.array(32)], onesided=onesided)
    _check("DFT", 20, [_floats(2, 6, 8, 2), None, np.array(1)], inverse=1)


def test_mels_are_triangles() -> None:
    given = [np.array(5), np.array(64), np.array(8000), np.float32(100), np.float32(3500)]
    _check("MelWeightMatrix", 17, [np.asarray(x) for x in given])


@pytest.mark.parametrize("zero", [np.uint8(9), np.int8(-4), np.uint16(900), np.int16(-9)])
def test_numbers_are_quantized_and_back(zero: Any) -> None:
    zero = np.asarray(zero)
    scale = np.float32(0.05)
    _check("QuantizeLinear", 21, [_X2, np.asarray(scale), zero])
    _check("DequantizeLinear", 21, [_bytes(3, 4, dtype=zero.dtype), np.asarray(scale), zero])


def test_a_range_is_quantized_by_itself() -> None:
    _check("DynamicQuantizeLinear", 11, [_X2], outputs=3)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_losses_weigh_classes(reduction: str) -> None:
    scores, labels = _floats(3, 5, 2), np.array([[0, 4], [2, 2], [1, 3]])
    weights = np.abs(_floats(5))
    settings: dict[str, Any] = {"reduction": reduction, "ignore_index": 2}
    _check("SoftmaxCrossEntropyLoss", 13, [scores, labels, weights], outputs=2, **settings)
    _check("NegativeLogLikelihoodLoss", 13, [scores, labels, weights], **settings)
