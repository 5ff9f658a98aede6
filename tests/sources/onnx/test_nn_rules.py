"""Rules of neural networks: the onnx package's node tests, and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor

import graphmem
from graphmem.errors import UnsupportedOpError
from graphmem.sources.onnx import rules as _rules  # registers them
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model
from tests.sources.onnx.backend import as_inputs, cases, of_operator, run_case
from tests.sources.onnx.not_passed import NOT_PASSED

assert _rules

OPERATORS = (
    *("Conv", "ConvTranspose", "ConvInteger", "DeformConv", "CausalConvWithState"),
    *("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "MaxUnpool"),
    *("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
    *("RMSNormalization", "LpNormalization", "MeanVarianceNormalization", "LRN", "Dropout"),
    *("Resize", "Upsample", "GridSample", "AffineGrid", "RNN", "LSTM", "GRU"),
    *("Attention", "RotaryEmbedding", "LinearAttention", "FlexAttention"),
    *("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "DFT", "STFT", "MelWeightMatrix"),
    *("RoiAlign", "NonMaxSuppression", "ImageDecoder", "QuantizeLinear", "DequantizeLinear"),
    *("DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger"),
    *("Adagrad", "Adam", "Momentum"),
)

_RANDOM = {n: why for n, why in NOT_PASSED.items() if n.startswith("test_training_dropout")}

_HALF, _BFLOAT = 2**-10, 2**-7
"""The distance of neighbouring numbers of the two types, relative to them."""

_ROUNDED = {
    "test_attention_4d_fp16": _HALF,
    "test_attention_4d_causal_fp16": _HALF,
    "test_attention_3d_causal_bf16": _BFLOAT,
    "test_attention_4d_causal_bf16": _BFLOAT,
    "test_attention_4d_causal_padded_kv_bf16": _BFLOAT,
    "test_attention_4d_attn_mask_causal_bf16": _BFLOAT,
    "test_attention_4d_padded_kv_bf16": _BFLOAT,
}
"""Torch's fused attention rounds once, at its end, where ONNX's steps each round."""

_NEAR_ZERO = {"test_dft_inverse", "test_dft_inverse_opset19"}
"""Torch transforms in float32, NumPy in float64: zeros are off by 2^-20 of the largest, 5."""

_NAMES = [n for n in of_operator(*OPERATORS) if not n.startswith("test_image_decoder")]


@pytest.mark.parametrize("name", [n for n in _NAMES if n not in _RANDOM])
def test_a_rule_passes_the_node_test(name: str) -> None:
    case = cases()[name]
    if name in _ROUNDED:
        case = replace(case, rtol=2 * _ROUNDED[name])
    if name in _NEAR_ZERO:
        case = replace(case, atol=5 * 2**-20)
    assert run_case(case) is None


@pytest.mark.parametrize("name", _RANDOM)
def test_what_is_dropped_is_random(name: str) -> None:
    why = run_case(cases()[name])
    assert why is not None
    assert "Not equal" in why


def test_an_image_is_not_decoded() -> None:
    why = run_case(cases()["test_image_decoder_decode_png_rgb"])
    assert why is not None
    assert "torch has no decoder; give a rule with --rules FILE.py" in why


def _module(op: str, version: int, weights: dict[str, Any], **attributes: Any) -> Any:
    """A node of input x and some weights, as a module; None is an input left out."""
    outputs = attributes.pop("outputs", 1)
    names = ["x", *(name if w is not None else "" for name, w in weights.items())]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    held = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items() if w is not None]
    value = helper.make_empty_tensor_value_info
    graph = helper.make_graph([node], "g", [value("x")], [*map(value, node.output)], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    return build_module(as_model(model, "m.onnx"), weights=True)


def _doubles(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(size=shape)


_TRAINED: dict[str, Callable[[], tuple[Any, tuple[int, ...]]]] = {
    "Conv": lambda: (
        _module(
            "Conv", 11, {"w": _doubles(4, 1, 3, 2), "b": _doubles(4)}, group=2, pads=[0, 1, 2, 0]
        ),
        (1, 2, 5, 4),
    ),
    "ConvTranspose": lambda: (
        _module(
            "ConvTranspose", 11, {"w": _doubles(2, 3, 2, 2)}, pads=[0, 1, 1, 0], strides=[2, 2]
        ),
        (1, 2, 3, 3),
    ),
    "BatchNormalization": lambda: (
        _module(
            *("BatchNormalization", 15),
            {"w": _doubles(3), "b": _doubles(3), "mean": _doubles(3), "var": np.ones(3)},
            training_mode=1,
        ),
        (4, 3, 2),
    ),
    "LayerNormalization": lambda: (
        _module("LayerNormalization", 17, {"w": _doubles(5), "b": _doubles(5)}),
        (2, 5),
    ),
    "RMSNormalization": lambda: (_module("RMSNormalization", 23, {"w": _doubles(5)}), (2, 5)),
    "GroupNormalization": lambda: (
        _module("GroupNormalization", 18, {"w": _doubles(2), "b": _doubles(2)}, num_groups=2),
        (1, 4, 3),
    ),
    "Attention": lambda: (
        _module(
            "Attention", 23, {"k": _doubles(1, 2, 3, 4), "v": _doubles(1, 2, 3, 4)}, softcap=2.0
        ),
        (1, 2, 3, 4),
    ),
    "LSTM": lambda: (
        _module("LSTM", 14, {"w": _doubles(1, 8, 3), "r": _doubles(1, 8, 2)}, hidden_size=2),
        (3, 2, 3),
    ),
    "GRU": lambda: (
        _module("GRU", 14, {"w": _doubles(1, 6, 3), "r": _doubles(1, 6, 2)}, hidden_size=2),
        (3, 2, 3),
    ),
    "Resize": lambda: (
        _module(
            "Resize", 13, {"roi": None, "scales": np.array([1, 0.6], np.float32)}, mode="linear"
        ),
        (2, 5),
    ),
    "AveragePool": lambda: (
        _module("AveragePool", 19, {}, kernel_shape=[2], dilations=[2], pads=[0, 1]),
        (1, 2, 6),
    ),
    "LpPool": lambda: (_module("LpPool", 18, {}, kernel_shape=[2]), (1, 2, 6)),
}


@pytest.mark.parametrize("op", _TRAINED)
def test_gradients_are_those_of_the_outputs(op: str) -> None:
    module, shape = _TRAINED[op]()
    names = dict(module.named_parameters())
    x = torch.from_numpy(_doubles(*shape)).requires_grad_()

    def run(x: Tensor, *weights: Tensor) -> Any:
        held = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(module, held, (x,))

    assert torch.autograd.gradcheck(run, (x, *names.values()))


def test_statistics_and_tables_are_not_trained() -> None:
    norm, _ = _TRAINED["BatchNormalization"]()
    assert [name.rpartition(".")[2] for name, _ in norm.named_parameters()] == ["w", "b"]
    resized, _ = _TRAINED["Resize"]()
    assert not list(resized.parameters())


def test_a_module_that_trains_takes_the_batchs_statistics() -> None:
    weights = {"w": np.ones(3), "b": np.zeros(3), "mean": np.zeros(3), "var": np.ones(3)}
    module, x = _module("BatchNormalization", 9, weights), torch.from_numpy(_doubles(8, 3)) + 5
    assert module.eval()(x).mean() > 4
    assert module.train()(x).mean().abs() < 1e-6
    assert module.eval()(x).mean() < 4.8  # the running mean moved by a tenth of 5


def test_dropout_drops_only_while_the_module_trains() -> None:
    module, x = _module("Dropout", 11, {}, ratio=0.9), torch.ones(1000)
    assert torch.equal(module.eval()(x), x)
    assert 0 < (module.train()(x) == 0).sum() < 1000


def test_dropout_told_not_to_never_drops() -> None:
    module = _module("Dropout", 13, {"ratio": np.float32(0.9), "training": np.bool_(False)})
    x = torch.ones(1000)
    assert torch.equal(module.train()(x), x)


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_a_mask_of_dropout_that_nothing_reads_takes_no_memory(ratio: float) -> None:
    weights = {"ratio": np.float32(ratio), "training": np.bool_(True)}
    named = _dropout_between(weights, "y1")
    plain = _dropout_between(weights, "")
    x = torch.randn(1 << 20)
    for target in ("cpu", "cuda"):
        peaks = [
            graphmem.analyze(m, (x,), mode="training", target=target).peak.requested_bytes
            for m in (named, plain)
        ]
        assert abs(peaks[0] - peaks[1]) <= 1  # one boolean, seen as a mask


def _dropout_between(weights: dict[str, Any], mask: str) -> Any:
    """Add a weight, Dropout, Sigmoid; nothing reads the mask, which may have a name."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Dropout", ["a", *weights], ["b", mask] if mask else ["b"]),
        helper.make_node("Sigmoid", ["b"], ["y"]),
    ]
    stored = {**weights, "w": np.ones(1 << 20, np.float32)}
    held = [numpy_helper.from_array(np.asarray(w), n) for n, w in stored.items()]
    value = helper.make_empty_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    return build_module(as_model(model, "m.onnx"), weights=True)


def test_a_recurrent_layer_is_torchs_own() -> None:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4)

    def onnx_order(weight: Any) -> np.ndarray[Any, Any]:
        i, f, g, o = weight.detach().chunk(4)
        return torch.cat([i, o, f, g]).unsqueeze(0).numpy()

    biases = np.concatenate([onnx_order(layer.bias_ih_l0), onnx_order(layer.bias_hh_l0)], axis=1)
    weights = {"w": onnx_order(layer.weight_ih_l0), "r": onnx_order(layer.weight_hh_l0)}
    module = _module("LSTM", 14, {**weights, "b": biases}, hidden_size=4)
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(module(x).squeeze(1), layer(x)[0])


def test_an_even_window_of_channels_reaches_further_after() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1)
    module = _module("LRN", 13, {}, size=2, alpha=2.0, beta=1.0, bias=0.0)
    # of channels c and c + 1: x / (2 / 2 * (x[c]^2 + x[c + 1]^2))
    expected = torch.tensor([1 / 5, 2 / 13, 3 / 25, 4 / 16]).reshape(1, 4, 1)
    torch.testing.assert_close(module(x), expected)


def test_boxes_of_an_analysis_are_as_many_as_allowed() -> None:
    scores, limit = np.zeros((2, 3, 5000), np.float32), np.array([7])
    node = {"scores": scores, "limit": limit}
    module = _module("NonMaxSuppression", 11, node)
    report = graphmem.analyze(module, torch.empty(2, 5000, 4, device="meta"), mode="inference")
    assert report.unknown  # 2 images * 3 classes * 7 boxes, whatever the boxes are
    assert "7 of each of 3 classes of 2 images" in str(report.unknown)


def test_gradient_nodes_are_refused() -> None:
    from graphmem.sources.onnx.model import Node
    from graphmem.sources.onnx.registry import Call, find_rule

    node = Node("g", "Gradient", "ai.onnx.preview.training", 1, ("x",), ("y",), {})
    found = find_rule(node)
    assert found is not None
    with pytest.raises(UnsupportedOpError, match="asks for gradients of other nodes"):
        found.function(Call(node), torch.ones(1))


@pytest.mark.parametrize("version", [1, 6])
def test_a_batch_norm_before_opset_7_is_told_when_it_is_tested(version: int) -> None:
    weights = {"w": np.ones(3), "b": np.zeros(3), "mean": np.zeros(3), "var": np.ones(3)}
    x = torch.from_numpy(_doubles(8, 3)) + 5
    tested = _module("BatchNormalization", version, weights, is_test=1).eval()
    assert tested(x).mean() > 4
    trained = _module("BatchNormalization", version, weights).eval()
    assert trained(x).mean().abs() < 1e-6


def test_a_batch_norm_that_is_not_spatial_has_statistics_of_each_element() -> None:
    statistics = {"mean": _doubles(2, 3), "var": np.full((2, 3), 4.0)}
    weights = {"w": np.ones((2, 3)), "b": np.zeros((2, 3)), **statistics}
    module = _module("BatchNormalization", 7, weights, spatial=0, epsilon=0.0).eval()
    x = torch.from_numpy(_doubles(5, 2, 3))
    torch.testing.assert_close(module(x), (x - torch.from_numpy(statistics["mean"])) / 2)


def test_running_statistics_are_outputs_of_training() -> None:
    weights = {"w": np.ones(3), "b": np.zeros(3), "mean": np.zeros(3), "var": np.ones(3)}
    settings = {"training_mode": 1, "momentum": 0.75, "outputs": 3}
    x = torch.from_numpy(_doubles(8, 3))
    _, mean, var = _module("BatchNormalization", 15, weights, **settings)(x)
    torch.testing.assert_close(mean, 0.25 * x.mean(0))
    torch.testing.assert_close(var, 0.75 + 0.25 * x.var(0, correction=0))


def test_the_scales_of_the_first_upsampling_are_attributes() -> None:
    module = _module("Upsample", 1, {}, height_scale=2.0, width_scale=1.5)
    x = torch.arange(4.0).reshape(1, 1, 2, 2)
    expected = torch.tensor([[0.0, 0, 1], [0, 0, 1], [2, 2, 3], [2, 2, 3]])
    assert torch.equal(module(x), expected.reshape(1, 1, 4, 3))


def test_an_old_dropout_keeps_a_mask_of_numbers() -> None:
    x = torch.ones(4)
    y, mask = _module("Dropout", 7, {}, outputs=2).eval()(x)
    assert torch.equal(y, x)
    assert mask.dtype is torch.float32
    _, mask = _module("Dropout", 10, {}, outputs=2).eval()(x)
    assert mask.dtype is torch.bool


def test_a_pool_of_four_axes_is_refused() -> None:
    module = _module("MaxPool", 12, {}, kernel_shape=[1] * 4)
    with pytest.raises(
        UnsupportedOpError, match="4 spatial axes, but torch has kernels for 1 to 3"
    ):
        module(torch.ones(1, 1, 2, 2, 2, 2))


def test_regions_of_an_analysis_are_as_large_as_the_image() -> None:
    many = 100_000  # too many for an analysis to hold their values
    weights = {"rois": np.zeros((many, 4), np.float32), "images": np.zeros(many, np.int64)}
    module = _module("RoiAlign", 16, weights, output_height=2, output_width=2)
    report = graphmem.analyze(module, torch.empty(1, 3, 16, 16, device="meta"), mode="inference")
    assert "each is as large as the image" in str(report.unknown)


def _is_table(x: Tensor) -> bool:
    return x.is_floating_point() and x.dim() > 1


_FIRST = {op: next(of_operator(op)) for op in OPERATORS if op not in ("ImageDecoder", "Dropout")}


@pytest.mark.parametrize("name", _FIRST.values(), ids=_FIRST)
def test_a_rule_is_analyzed_without_the_values_of_its_floats(name: str) -> None:
    """Scales and thresholds, which decide sizes, have values; tables of numbers have none."""
    case = cases()[name]
    module = build_module(as_model(case.model, "m.onnx"), weights=True)
    given = as_inputs(case.model, case.data_sets[0][0])
    inputs = tuple(x.to("meta") if _is_table(x) else x for x in given)
    report = graphmem.analyze(module, inputs, mode="inference")
    assert report.peak.requested_bytes > 0
