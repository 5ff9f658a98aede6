"""Rules of arithmetic, activations, comparisons, casts, reductions and random tensors.

The onnx package's own node tests, and by hand what they leave out: old opsets, unsigned
integers, narrow types, strings, gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.narrow import SMALL_FLOATS, bits_of, from_bits
from graphmem.sources.onnx.read import as_model
from tests.sources.onnx.backend import cases, run_case
from tests.sources.onnx.not_passed import NOT_PASSED

NAMES = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Bernoulli BitCast BitShift
    BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu Clip Cos
    Cosh CumProd CumSum Det Div Einsum Elu Equal Erf Exp Floor Gelu Gemm Greater GreaterOrEqual
    HammingWindow HannWindow HardSigmoid HardSwish Hardmax Identity IsInf IsNaN LeakyRelu Less
    LessOrEqual Log LogSoftmax MatMul Max Mean Min Mish Mod Mul Multinomial Neg Not Or PRelu Pow
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike Reciprocal ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt
    Sub Sum SwiGLU Swish Tan Tanh ThresholdedRelu Xor
"""
OPERATORS = frozenset(NAMES.split())
DO_NOT_PASS = {name: why for name, why in NOT_PASSED.items() if name.startswith("test_bernoulli")}


def _named() -> list[str]:
    """The cases that consist of these operators alone (and constants)."""
    return [
        name
        for name, case in cases().items()
        if {node.op_type for node in case.model.graph.node} <= OPERATORS | {"Constant"}
    ]


@pytest.mark.parametrize("name", [n for n in _named() if n not in DO_NOT_PASS])
def test_a_node_test_of_onnx_passes(name: str) -> None:
    assert run_case(cases()[name]) is None


def test_the_cases_that_do_not_pass_differ_in_numbers_alone() -> None:
    assert set(DO_NOT_PASS) <= set(_named())
    for name in DO_NOT_PASS:
        torch.manual_seed(0)  # by chance one of ten coins may pass
        assert (run_case(cases()[name]) or "").startswith("AssertionError: Not equal to tolerance")


def run(
    op: str, opset: int, *inputs: Any, types: dict[int, int] | None = None, **attributes: Any
) -> Any:
    """The outcome of one node, inputs given as tensors or arrays of strings."""
    names = [f"x{i}" for i in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(name, (types or {}).get(i, 0), None)
        for i, name in enumerate(names)
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    out = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph([node], "g", infos, [out])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return build_module(as_model(proto, "made.onnx"), weights=True)(*inputs)


def floats(*shape: int) -> Tensor:
    """Numbers of both signs, without a pattern in either dimension."""
    numel = int(np.prod(shape))
    return torch.sin(torch.arange(numel, dtype=torch.float32) * 1.7 + 0.3).reshape(shape)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less", "Equal"])
def test_before_opset_7_the_second_input_lies_along_an_axis(op: str) -> None:
    a, b = floats(2, 3, 4, 5).abs(), floats(3, 4).abs()
    old = run(op, 6, a, b, broadcast=1, axis=1)
    assert torch.equal(old, run(op, 7, a, b.reshape(3, 4, 1)))


def test_before_opset_7_the_second_input_lies_along_the_last_dimensions() -> None:
    a, b = floats(2, 3, 4), floats(4)
    assert torch.equal(run("Add", 6, a, b, broadcast=1), a + b)
    assert torch.equal(run("Add", 1, a, a, consumed_inputs=[0, 0]), a + a)


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic_broadcasts_along_an_axis_before_opset_7(op: str) -> None:
    a, b = floats(2, 3, 4) > 0, floats(3) > 0
    assert torch.equal(run(op, 6, a, b, broadcast=1, axis=1), run(op, 7, a, b.reshape(3, 1)))


def test_softmax_before_opset_13_takes_all_dimensions_from_the_axis_on() -> None:
    x = floats(2, 3, 4)
    flat = torch.softmax(x.reshape(2, 12), 1).reshape(2, 3, 4)
    assert torch.equal(run("Softmax", 11, x), flat)
    assert torch.equal(run("Softmax", 13, x), torch.softmax(x, 2))
    assert torch.equal(run("LogSoftmax", 1, x, axis=2), torch.log_softmax(x, 2))
    assert run("Hardmax", 11, x).sum() == 2  # one of 12, twice
    assert run("Hardmax", 13, x).sum() == 6  # one of 4, six times


def test_bounds_of_clip_were_attributes_before_opset_11() -> None:
    x = torch.tensor([-2.0, 0.5, 9.0, torch.inf])
    assert run("Clip", 1, x, max=1.0).tolist() == [-2.0, 0.5, 1.0, 1.0]
    assert run("Clip", 6, x, min=0.0, max=6.0).tolist() == [0.0, 0.5, 6.0, 6.0]
    assert run("Clip", 6, x, min=0.0)[3] == torch.finfo(torch.float32).max
    assert run("Clip", 11, x, torch.tensor(0.0)).tolist() == [0.0, 0.5, 9.0, torch.inf]


def test_clip_of_integers_that_torch_cannot_compare() -> None:
    big = torch.tensor([1, 5, 2**63 + 9], dtype=torch.uint64)
    low, high = (torch.tensor(n, dtype=torch.uint64) for n in (3, 2**63 + 1))
    assert run("Clip", 13, big, low, high).tolist() == [3, 5, 2**63 + 1]


def test_axes_of_reductions_became_an_input() -> None:
    x, axes = floats(2, 3, 4), torch.tensor([1])
    assert torch.equal(run("ReduceSum", 11, x, axes=[1]), x.sum(1, keepdim=True))
    assert torch.equal(run("ReduceSum", 13, x, axes), x.sum(1, keepdim=True))
    assert torch.equal(run("ReduceMax", 13, x, axes=[-1], keepdims=0), x.amax(2))
    assert torch.equal(run("ReduceMax", 18, x, axes, keepdims=0), x.amax(1))


@pytest.mark.parametrize(
    ("op", "of_each"),
    [
        ("ReduceSum", lambda x: x),
        ("ReduceMean", lambda x: x),
        ("ReduceMax", lambda x: x),
        ("ReduceProd", lambda x: x),
        ("ReduceLogSumExp", lambda x: x),
        ("ReduceL1", torch.abs),
        ("ReduceL2", torch.abs),
        ("ReduceSumSquare", torch.square),
        ("ReduceLogSum", torch.log),
    ],
)
def test_a_reduction_over_no_axes_does_the_rest_of_its_steps(op: str, of_each: Any) -> None:
    x = floats(2, 3).abs() + 0.1
    none = torch.tensor([], dtype=torch.int64)
    result = run(op, 18, x, none, noop_with_empty_axes=1)
    torch.testing.assert_close(result, of_each(x))
    assert run(op, 18, x, none).shape == (1, 1)  # without the flag: over all


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint32, torch.uint64])
def test_reductions_of_integers_keep_their_type(dtype: torch.dtype) -> None:
    x = torch.tensor([[3, 4], [6, 8]]).to(dtype)
    axes = torch.tensor([1])
    wanted = {
        **{"ReduceSum": [7, 14], "ReduceMean": [3, 7], "ReduceMax": [4, 8], "ReduceMin": [3, 6]},
        **{"ReduceProd": [12, 48], "ReduceL1": [7, 14], "ReduceL2": [5, 10]},
        **{"ReduceSumSquare": [25, 100], "ReduceLogSum": [1, 2], "ReduceLogSumExp": [4, 8]},
    }  # log 7 = 1.9, log 14 = 2.6; log(e^3 + e^4) = 4.3, log(e^6 + e^8) = 8.1
    for op, numbers in wanted.items():
        result = run(op, 18, x, axes, keepdims=0)
        assert result.dtype is dtype
        assert result.tolist() == numbers, op


def test_extremes_of_nothing() -> None:
    nothing, axes = torch.empty(2, 0, dtype=torch.int8), torch.tensor([1])
    assert run("ReduceMax", 20, nothing, axes, keepdims=0).tolist() == [-128, -128]
    assert run("ReduceMin", 20, nothing, axes, keepdims=0).tolist() == [127, 127]
    assert run("ReduceMax", 20, nothing.bool(), axes, keepdims=0).tolist() == [False, False]


UNSIGNED = {
    np.uint16: [0, 1, 2, 7, 40_000, 65_535],
    np.uint32: [0, 1, 2, 7, 3_000_000_000, 2**32 - 1],
    np.uint64: [0, 1, 2, 7, 10, 2**63 - 1, 2**63, 2**63 + 7, 2**64 - 2, 2**64 - 1],
}


@pytest.mark.parametrize("kind", UNSIGNED)
def test_unsigned_integers_are_exact_up_to_their_largest(kind: Any) -> None:
    numbers = np.array(UNSIGNED[kind], dtype=kind)
    a, b = (m.reshape(-1) for m in np.meshgrid(numbers, numbers[1:]))  # b: no zero
    oracles: dict[str, Any] = {
        **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.floor_divide},
        **{"Mod": np.mod, "Max": np.maximum, "Min": np.minimum, "Equal": np.equal},
        **{"Greater": np.greater, "LessOrEqual": np.less_equal, "BitwiseXor": np.bitwise_xor},
    }
    for op, oracle in oracles.items():
        result = run(op, 18, torch.from_numpy(a), torch.from_numpy(b))
        np.testing.assert_array_equal(result.numpy(), oracle(a, b), err_msg=op)
    largest = run("ArgMax", 13, torch.from_numpy(numbers), axis=0, keepdims=0)
    assert largest == len(numbers) - 1


@pytest.mark.parametrize(
    ("dtype", "bits"), [(torch.uint8, 8), (torch.uint32, 32), (torch.uint64, 64), (torch.int8, 8)]
)
def test_bits_shifted_out_are_gone(dtype: torch.dtype, bits: int) -> None:
    top = 1 << (bits - 1)
    x = torch.tensor([top, top, top + 1 if dtype.is_signed else 1], dtype=torch.uint64).to(dtype)
    by = torch.tensor([bits - 1, bits, bits - 1]).to(dtype)
    signed = dtype is torch.int8
    right, left = (run("BitShift", 28, x, by, direction=d).tolist() for d in ("RIGHT", "LEFT"))
    assert right == ([-1, -1, -1] if signed else [1, 0, 0])
    assert left == ([0, 0, -128] if signed else [0, 0, top])


def test_integer_division_is_rounded_toward_zero() -> None:
    a, b = torch.tensor([7, -7, 7, -7]), torch.tensor([2, 2, -2, -2])
    assert run("Div", 14, a, b).tolist() == [3, -3, -3, 3]
    assert run("Mod", 13, a, b).tolist() == [1, 1, -1, -1]
    assert run("Mod", 13, a, b, fmod=1).tolist() == [1, -1, 1, -1]


def test_the_last_of_equal_extremes() -> None:
    x = torch.tensor([[3, 1, 3, 1]])
    assert run("ArgMax", 12, x, axis=1, keepdims=0).tolist() == [0]
    assert run("ArgMax", 12, x, axis=1, keepdims=0, select_last_index=1).tolist() == [2]
    assert run("ArgMin", 12, x, axis=1, keepdims=0, select_last_index=1).tolist() == [3]


def test_a_constant_exponent_is_a_number_for_torch() -> None:
    power = helper.make_node("Pow", ["x", "two"], ["y"])
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("x", "y")]
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    graph = helper.make_graph([power], "g", ends[:1], ends[1:], [two])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])
    x = floats(3).requires_grad_()
    y = build_module(as_model(proto, "pow.onnx"), weights=True)(x)
    assert "_saved_exponent" in dir(y.grad_fn)
    assert y.grad_fn._saved_exponent == 2.0  # PowBackward0, of a Python number
    assert torch.equal(y, x**2)


@pytest.mark.parametrize("slope", [[1], [3], [3, 1, 1], [1, 1, 5], [3, 4, 1]])
def test_slopes_of_prelu_broadcast(slope: list[int]) -> None:
    x, slopes = floats(2, 3, 4, 5), floats(*slope)
    opset = 6 if slope == [3] else 16
    spread = slopes.reshape(3, 1, 1) if slope == [3] else slopes
    assert torch.equal(run("PRelu", opset, x, slopes), torch.where(x < 0, x * spread, x))


def test_prelu_of_integers() -> None:
    x = torch.tensor([-2, 3])
    assert run("PRelu", 16, x, torch.tensor([5])).tolist() == [-10, 3]
    positive = torch.tensor([2, 3], dtype=torch.uint32)
    assert run("PRelu", 16, positive, positive).tolist() == [2, 3]


def test_shrink_with_a_bias_of_its_own_and_of_integers() -> None:
    x = torch.tensor([-2.0, -0.5, 0.5, 2.0])
    assert run("Shrink", 9, x, lambd=1.0, bias=0.5).tolist() == [-1.5, 0.0, 0.0, 1.5]
    assert run("Shrink", 9, x.int(), lambd=1.0, bias=1.0).tolist() == [-1, 0, 0, 1]


def test_selu_has_other_constants_before_opset_6() -> None:
    x = torch.tensor([2.0])
    assert run("Selu", 1, x).item() == pytest.approx(2 * 1.0507, rel=1e-7)
    assert run("Selu", 6, x).item() == pytest.approx(2 * 1.05070102214813, rel=1e-7)
    assert torch.equal(run("Selu", 6, floats(9)), torch.selu(floats(9)))


def test_hard_sigmoid_is_torchs_where_it_is_the_same() -> None:
    x = floats(9) * 5
    assert torch.equal(run("HardSigmoid", 6, x, alpha=1 / 6), torch.nn.Hardsigmoid()(x))
    assert torch.equal(run("HardSigmoid", 6, x), torch.clamp(x * 0.2 + 0.5, 0, 1))


def test_softplus_is_exact_in_double() -> None:
    x = torch.tensor([25.0], dtype=torch.float64)
    assert run("Softplus", 1, x).item() == float(np.log1p(np.exp(-25.0)) + 25)


def test_infinities_of_one_sign_and_of_8_bits() -> None:
    x = torch.tensor([torch.inf, -torch.inf, 1.0])
    for dtype in (torch.float32, torch.float8_e5m2):
        held = x.to(dtype)
        assert run("IsInf", 20, held).tolist() == [True, True, False]
        assert run("IsInf", 20, held, detect_negative=0).tolist() == [True, False, False]
        assert run("IsInf", 20, held, detect_positive=0).tolist() == [False, True, False]
        neither = run("IsInf", 20, held, detect_positive=0, detect_negative=0)
        assert neither.tolist() == [False] * 3
    assert run("IsNaN", 20, (x * 0).to(torch.float8_e5m2)).tolist() == [True, True, False]


def test_gemm_of_every_form() -> None:
    a, b, c = floats(2, 3), floats(3, 4), floats(2, 4)
    for ta, tb in ((0, 0), (0, 1), (1, 0), (1, 1)):
        given = (a.t() if ta else a, b.t() if tb else b)
        for bias in (None, c, c[0], c[:, :1]):
            for alpha, beta in ((1.0, 1.0), (0.5, 2.0)):
                inputs = given if bias is None else (*given, bias)
                result = run("Gemm", 11, *inputs, transA=ta, transB=tb, alpha=alpha, beta=beta)
                wanted = alpha * (a @ b) + (0 if bias is None else beta * bias)
                torch.testing.assert_close(result, wanted)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint64])
def test_products_of_integers(dtype: torch.dtype) -> None:
    a, b = torch.tensor([[1, 2], [3, 4]]).to(dtype), torch.tensor([[5], [6]]).to(dtype)
    assert run("MatMul", 13, a, b).tolist() == [[17], [39]]
    assert run("Gemm", 13, a, b, b, alpha=2.0).tolist() == [[39], [84]]
    assert run("Einsum", 28, a, b, equation="ij,jk").tolist() == [[17], [39]]


def test_operators_that_onnx_retired() -> None:
    x = floats(1, 3, 2, 2)
    assert torch.equal(run("Affine", 7, x, alpha=2.0, beta=1.0), 2 * x + 1)
    assert torch.equal(run("Scale", 7, x, scale=3.0), 3 * x)
    assert torch.equal(run("ScaledTanh", 7, x, alpha=2.0, beta=0.5), 2 * torch.tanh(x / 2))
    softplus = run("ParametricSoftplus", 7, x, alpha=2.0, beta=0.5)
    torch.testing.assert_close(softplus, 2 * torch.log1p(torch.exp(x / 2)))
    image = run("ImageScaler", 7, x, scale=2.0, bias=[1.0, 2.0, 3.0])
    assert torch.equal(image, 2 * x + torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1))


# Casts


@pytest.mark.parametrize("element", [e for e in ElementType if e.dtype and e.bits >= 8])
def test_every_type_of_a_byte_or_more_can_be_cast_to_and_from(element: ElementType) -> None:
    x = torch.tensor([0.0, 1.0, 2.0])
    there = run("Cast", 28, x, to=int(element))
    assert there.dtype is element.dtype
    back = run("Cast", 28, there.real if there.is_complex() else there, to=TensorProto.FLOAT)
    zero = 2.0**-127 if element is ElementType.FLOAT8E8M0 else 0.0
    assert back.tolist() == [zero, 1.0, 1.0 if element is ElementType.BOOL else 2.0]


def test_casts_to_types_of_less_than_a_byte_drop_the_higher_bits() -> None:
    x = torch.tensor([-9, -8, -1, 7, 8, 17])
    wanted = {
        ElementType.INT4: [7, -8, -1, 7, -8, 1],
        ElementType.UINT4: [7, 8, 15, 7, 8, 1],
        ElementType.INT2: [-1, 0, -1, -1, 0, 1],
        ElementType.UINT2: [3, 0, 3, 3, 0, 1],
    }
    for element, numbers in wanted.items():
        for given in (x, x.float(), x.to(torch.int16)):
            assert run("Cast", 25, given, to=int(element)).tolist() == numbers


@pytest.mark.parametrize("element", SMALL_FLOATS)
def test_small_floats_are_rounded_to_the_nearest_as_ml_dtypes_does(element: ElementType) -> None:
    import ml_dtypes

    named = {
        ElementType.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
        ElementType.FLOAT6E2M3: ml_dtypes.float6_e2m3fn,
        ElementType.FLOAT6E3M2: ml_dtypes.float6_e3m2fn,
    }
    x = np.linspace(-40, 40, 5121, dtype=np.float32)  # steps of 1/64: all halves are among them
    wanted = x.astype(named[element]).astype(np.float32)
    result = run("Cast", 28, torch.from_numpy(x), to=int(element))
    np.testing.assert_array_equal(result.numpy(), wanted)


def test_8_bit_floats_saturate_or_overflow() -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e6, 464.0, 465.0])
    inf, nan = torch.inf, torch.nan
    wanted = {
        ("FLOAT8E4M3FN", 1): [448, -448, nan, 448, 448, 448],
        ("FLOAT8E4M3FN", 0): [nan, nan, nan, nan, 448, nan],
        ("FLOAT8E4M3FNUZ", 1): [240, -240, nan, 240, 240, 240],
        ("FLOAT8E4M3FNUZ", 0): [nan] * 6,
        ("FLOAT8E5M2", 1): [57344, -57344, nan, 57344, 448, 448],
        ("FLOAT8E5M2", 0): [inf, -inf, nan, inf, 448, 448],
        ("FLOAT8E5M2FNUZ", 1): [57344, -57344, nan, 57344, 448, 448],
        ("FLOAT8E5M2FNUZ", 0): [nan, nan, nan, nan, 448, 448],
    }
    for (name, saturate), numbers in wanted.items():
        for given in (x, x.double()):
            made = run("Cast", 19, given, to=int(ElementType[name]), saturate=saturate)
            np.testing.assert_array_equal(made.float().numpy(), np.array(numbers), err_msg=name)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("up", [1, 2, 4, 4, 8]), ("down", [1, 1, 2, 2, 4]), ("nearest", [1, 1, 4, 4, 8])],
)
def test_powers_of_two_are_rounded_by_mode(mode: str, wanted: list[int]) -> None:
    x = torch.tensor([1.0, 1.25, 3.0, 3.5, 6.0])
    made = run("Cast", 24, x, to=int(ElementType.FLOAT8E8M0), round_mode=mode)
    assert made.float().tolist() == wanted


def test_powers_of_two_end_at_both_ends() -> None:
    x = torch.tensor([0.0, 2.0**-130, torch.inf, 3.4e38, torch.nan])
    to = int(ElementType.FLOAT8E8M0)
    codes = run("Cast", 24, x, to=to).view(torch.uint8).tolist()
    assert codes == [0, 0, 254, 254, 255]
    codes = run("Cast", 24, x, to=to, saturate=0, round_mode="nearest").view(torch.uint8).tolist()
    assert codes == [255, 255, 255, 255, 255]


def test_strings_are_read_and_written() -> None:
    strings = np.array([["3.5", "1e-5", "1E8"], ["+INF", "-inf", "NaN"]], dtype=object)
    numbers = run("Cast", 19, strings, to=TensorProto.FLOAT)
    np.testing.assert_array_equal(
        numbers.numpy(), np.array([[3.5, 1e-5, 1e8], [np.inf, -np.inf, np.nan]], np.float32)
    )
    whole = np.array(["-7", "100.5", str(2**53 + 1)], dtype=object)
    assert run("Cast", 19, whole, to=TensorProto.INT64).tolist() == [-7, 100, 2**53 + 1]
    largest = np.array([str(2**64 - 1)], dtype=object)
    assert run("Cast", 19, largest, to=TensorProto.UINT64).tolist() == [2**64 - 1]
    assert run("Cast", 19, torch.tensor([1.5, -2.0]), to=8).tolist() == ["1.5", "-2.0"]
    assert run("Cast", 19, torch.tensor([1.5]).bfloat16(), to=8).tolist() == ["1.5"]
    assert run("Cast", 19, torch.tensor([7, -1]), to=8).tolist() == ["7", "-1"]
    assert run("Cast", 19, strings, to=8) is strings
    assert run("Equal", 19, whole, np.array(["-7"], object)).tolist() == [True, False, False]


def test_the_first_opset_names_types_by_strings() -> None:
    assert run("Cast", 1, floats(2), to="DOUBLE").dtype is torch.float64
    with pytest.raises(ModelLoadError, match="'FLOAT9' is no element type"):
        run("Cast", 1, floats(2), to="FLOAT9")


def test_cast_like_a_type_that_torch_does_not_have() -> None:
    x, like = torch.tensor([17.0]), torch.tensor([0], dtype=torch.uint8)
    assert run("CastLike", 25, x, like, types={1: TensorProto.UINT4}).tolist() == [1]
    assert run("CastLike", 25, x, like).tolist() == [17]  # nothing says that it is not uint8


@pytest.mark.parametrize("element", SMALL_FLOATS)
def test_bits_of_small_floats_go_there_and_back(element: ElementType) -> None:
    codes = torch.arange(1 << element.bits, dtype=torch.uint8)
    numbers = from_bits(codes, element)
    assert torch.equal(bits_of(numbers, element), codes)
    assert numbers.max() == SMALL_FLOATS[element].largest


def test_bit_cast_between_types_of_4_bits() -> None:
    x = torch.tensor([0, 7, -8, -1], dtype=torch.int8)
    assert run("BitCast", 26, x, to=int(ElementType.UINT4)).tolist() == [0, 7, 8, 15]
    floats4 = run("BitCast", 26, x, types={0: TensorProto.INT4}, to=int(ElementType.FLOAT4E2M1))
    assert floats4.tolist() == [0.0, 6.0, -0.0, -6.0]
    with pytest.raises(ModelLoadError, match="strings have no fixed bits"):
        run("BitCast", 26, x, to=8)


# Random tensors


def test_random_tensors_have_the_shape_type_and_distribution_asked_for() -> None:
    torch.manual_seed(0)
    normal = run("RandomNormal", 1, shape=[100, 100], mean=5.0, scale=2.0)
    assert normal.dtype is torch.float32
    assert normal.mean().item() == pytest.approx(5, abs=0.1)
    assert normal.std().item() == pytest.approx(2, abs=0.1)
    like = run("RandomUniformLike", 22, floats(50, 50), low=2.0, high=3.0, dtype=11)
    assert like.dtype is torch.float64
    assert 2 <= like.min() < 2.1 < 2.9 < like.max() <= 3
    assert run("RandomNormalLike", 1, floats(3).double()).dtype is torch.float64
    ones = run("Bernoulli", 15, torch.full((10_000,), 0.25), dtype=TensorProto.INT32)
    assert ones.dtype is torch.int32
    assert ones.sum().item() == pytest.approx(2500, abs=200)
    weights = torch.log(torch.tensor([[1.0, 3.0], [1.0, 0.0]]))
    drawn = run("Multinomial", 7, weights, sample_size=10_000)
    assert drawn.dtype is torch.int32
    assert drawn[0].sum().item() == pytest.approx(7500, abs=200)
    assert drawn[1].sum() == 0


# Gradients


@pytest.mark.parametrize(
    ("op", "opset", "attributes"),
    [
        *[(op, 22, {}) for op in ("Sin", "Tanh", "Erf", "Mish", "HardSwish", "Softsign")],
        *[(op, 22, {}) for op in ("Softplus", "Selu", "Celu", "Elu", "Gelu", "LeakyRelu")],
        *[(op, 13, {}) for op in ("Softmax", "LogSoftmax", "Reciprocal", "Abs")],
        *[(f"Reduce{kind}", 13, {"axes": [1]}) for kind in ("L1", "L2", "LogSumExp", "Max")],
        *[(f"Reduce{kind}", 13, {"axes": [0, 1]}) for kind in ("Mean", "Prod", "SumSquare")],
        ("Softmax", 11, {"axis": 0}),
        ("Swish", 24, {"alpha": 1.5}),
        ("Shrink", 9, {"lambd": 0.1, "bias": 0.05}),
        ("Clip", 6, {"min": -0.5, "max": 0.5}),
        ("Det", 22, {}),
        ("Einsum", 12, {"equation": "ij->ji"}),
    ],
)
def test_gradients_are_those_of_the_function(op: str, opset: int, attributes: Any) -> None:
    x = floats(3, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: run(op, opset, x, **attributes), (x,))
