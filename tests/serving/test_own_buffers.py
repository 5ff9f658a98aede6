"""What kernels pack and allocate for themselves, held to ONNX Runtime's profile to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmem.measure.processor import has_amx
from graphmem.serving.settings import ServeSettings
from tests.cpu import as_measured
from tests.serving.kernels import Array, Kernel, figures, floats, small

pytestmark = as_measured

pytest.importorskip("onnxruntime", reason="the truth is ONNX Runtime's profile")

_MICROSOFT = "com.microsoft"
_UNSIGNED, _SIGNED = np.uint8, np.int8


def _scales(left: Any = _UNSIGNED, right: Any = _UNSIGNED, zero: int = 0) -> dict[str, Any]:
    """Scales and zero points of input, weight and output."""
    scale = np.array(0.1, np.float32)
    return {
        **{"xs": scale, "ws": scale, "ys": scale},
        **{"xz": np.array(3, left), "wz": np.array(zero, right), "yz": np.array(3, left)},
    }


def _products() -> Iterator[tuple[str, Kernel]]:
    for left, right in ((_UNSIGNED, _UNSIGNED), (_UNSIGNED, _SIGNED), (_SIGNED, _SIGNED)):
        for rows, columns in ((80, 100), (33, 50), (7, 16)):
            x, w = {"x": small(left, 6, rows)}, {"w": small(right, rows, columns)}
            q, name = _scales(left, right), f"{left.__name__} {right.__name__} {rows}x{columns}"
            reads = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
            yield f"QLinearMatMul {name}", Kernel("QLinearMatMul", x, w | q, reads)
            reads = ["x", "w", "xz", "wz"]
            both = {k: q[k] for k in ("xz", "wz")}
            yield f"MatMulInteger {name}", Kernel("MatMulInteger", x, w | both, reads)
            reads = ["x", "xs", "xz", "w", "ws", "wz", "", "ys", "yz"]
            for turned in (0, 1):
                turn = {"w": w["w"].T.copy()} if turned else w
                made = Kernel("QGemm", x, turn | q, reads, domain=_MICROSOFT)
                yield f"QGemm {turned} {name}", _with(made, transB=turned)
            reads, q = ["x", "w", "ws", "wz"], {k: q[k] for k in ("ws", "wz")}
            x = {"x": floats(6, rows)}
            made = Kernel("DynamicQuantizeMatMul", x, w | q, reads, domain=_MICROSOFT)
            yield f"DynamicQuantizeMatMul {name}", made


def _with(kernel: Kernel, **attributes: Any) -> Kernel:
    return Kernel(
        kernel.op,
        kernel.inputs,
        kernel.weights,
        kernel.reads,
        kernel.outputs,
        kernel.domain,
        kernel.opset,
        {**kernel.attributes, **attributes},
    )


_CONVOLUTIONS = (  # images, filters, channels, groups, kernel, stride, channels last, zero point
    (1, 64, 32, 1, 3, 1, 0, 0),
    (3, 64, 32, 1, 3, 1, 1, 0),
    (1, 64, 32, 1, 3, 1, 0, 2),
    (2, 64, 32, 2, 3, 1, 0, 0),
    (2, 64, 64, 64, 3, 1, 0, 0),
    (3, 64, 64, 64, 3, 1, 1, 0),
    (3, 60, 60, 60, 3, 1, 1, 0),
    (1, 12, 32, 1, 3, 1, 0, 0),
    (1, 20, 30, 1, 3, 2, 0, 0),
    (2, 64, 32, 1, 1, 1, 0, 0),
    (2, 64, 32, 1, 1, 2, 1, 0),
)


def _convolutions() -> Iterator[tuple[str, Kernel]]:
    reads = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    for left, right in ((_UNSIGNED, _UNSIGNED), (_UNSIGNED, _SIGNED), (_SIGNED, _SIGNED)):
        for case in _CONVOLUTIONS:
            images, filters, channels, groups, size, stride, last, zero = case
            x = small(left, images, *((14, 14, channels) if last else (channels, 14, 14)))
            w = {"w": small(right, filters, channels // groups, size, size)}
            q = _scales(left, right, zero)
            made = Kernel("QLinearConv", {"x": x}, w | q, reads)
            made = _with(made, group=groups, pads=[size // 2] * 4, strides=[stride] * 2)
            if last:
                made = _with(made, channels_last=1)
                made = Kernel(**{**vars(made), "domain": _MICROSOFT})
            yield f"QLinearConv {left.__name__} {right.__name__} {case}", made
    image = {"x": small(_UNSIGNED, 2, 32, 14, 14)}
    for size in (1, 3):
        made = Kernel("ConvInteger", image, {"w": small(_UNSIGNED, 64, 32, size, size)}, ["x", "w"])
        yield f"ConvInteger {size}", _with(made, pads=[size // 2] * 4)


def _others() -> Iterator[tuple[str, Kernel]]:
    q = _scales()
    x = {"x": small(_UNSIGNED, 2, 24, 12, 16)}
    reads = ["x", "xs", "xz", "ys", "yz"]
    ends = {k: q[k] for k in ("xs", "xz", "ys", "yz")}
    pool: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    made = Kernel("QLinearAveragePool", x, ends, reads, domain=_MICROSOFT)
    yield "QLinearAveragePool", _with(made, **pool)
    yield "NhwcMaxPool", _with(Kernel("NhwcMaxPool", x, domain=_MICROSOFT), **pool)
    where = {"c": small(_UNSIGNED, 1, 24, 1, 16) > 50, **x, "b": small(_UNSIGNED, 2, 1, 12, 16)}
    reads = ["c", "x", "xs", "xz", "b", "ws", "wz", "ys", "yz"]
    yield "QLinearWhere", Kernel("QLinearWhere", where, q, reads, domain=_MICROSOFT)
    for op in ("QLinearAdd", "QLinearMul"):
        reads = ["x", "xs", "xz", "b", "ws", "wz", "ys", "yz"]
        both = {**x, "b": small(_UNSIGNED, 12, 16)}
        yield op, Kernel(op, both, q, reads, domain=_MICROSOFT)
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        reads = ["x", "xs", "xz", "ys", "yz"]
        yield op, Kernel(op, x, ends, reads, domain=_MICROSOFT)
    for axis in (1, 3):
        made = Kernel("QLinearSoftmax", x, ends, ["x", "xs", "xz", "ys", "yz"], domain=_MICROSOFT)
        yield f"QLinearSoftmax {axis}", _with(made, opset=13, axis=axis)
    made = Kernel("QLinearGlobalAveragePool", x, ends, reads, domain=_MICROSOFT)
    yield "QLinearGlobalAveragePool", made
    yield (
        "DynamicQuantizeLinear",
        Kernel("DynamicQuantizeLinear", {"x": floats(9, 700)}, outputs=("y", "s", "z")),
    )
    ends = {k: q[k] for k in ("xs", "xz")}
    yield "QuantizeLinear", Kernel("QuantizeLinear", {"x": floats(9, 700)}, ends, ["x", "xs", "xz"])
    yield "DequantizeLinear", Kernel("DequantizeLinear", x, ends, ["x", "xs", "xz"])


def _attentions() -> Iterator[tuple[str, Kernel]]:
    heads = {"num_heads": 4}
    for batch, length in ((2, 16), (1, 1), (3, 40)):
        name = f"{batch} {length}"
        x = {"x": floats(batch, length, 64)}
        weights = {"w": floats(64, 192), "b": floats(192)}
        made = Kernel("Attention", x, weights, ["x", "w", "b"], domain=_MICROSOFT, attributes=heads)
        yield f"Attention {name}", made
        yield f"Attention causal {name}", _with(made, unidirectional=1)
        masked = {**x, "m": np.ones((batch, length), np.int32)}
        yield (
            f"Attention mask {name}",
            Kernel(**{**vars(made), "inputs": masked, "reads": ["x", "w", "b", "m"]}),
        )
        yield f"Attention past {name}", _with_past(made, batch, length)
        three = {**x, "k": floats(batch, length, 64), "v": floats(batch, length, 64)}
        made = Kernel("MultiHeadAttention", three, domain=_MICROSOFT, attributes=heads)
        yield f"MultiHeadAttention {name}", made
        yield f"MultiHeadAttention causal {name}", _with(made, unidirectional=1)
        yield (
            f"MultiHeadAttention bias {name}",
            Kernel(**{**vars(made), "weights": {"b": weights["b"]}, "reads": ["x", "k", "v", "b"]}),
        )
        masked = {**three, "m": np.ones((batch, length), np.int32)}
        yield (
            f"MultiHeadAttention mask {name}",
            Kernel(**{**vars(made), "inputs": masked, "reads": ["x", "k", "v", "", "m"]}),
        )
        q: dict[str, Array] = {"s": np.array(0.1, np.float32), "z": np.array(1, np.uint8)}
        yield (
            f"QAttention {name}",
            Kernel(
                "QAttention",
                {"x": small(_UNSIGNED, batch, length, 64)},
                {"w": small(_UNSIGNED, 64, 192), "b": floats(192), **q},
                ["x", "w", "b", "s", "s", "", "z", "z"],
                domain=_MICROSOFT,
                attributes=heads,
            ),
        )
        yield from _grouped(batch, length)


def _with_past(made: Kernel, batch: int, length: int) -> Kernel:
    inputs = {**made.inputs, "p": floats(2, batch, 4, 8, 16)}
    reads = ["x", "w", "b", "", "p"]
    return Kernel(**{**vars(made), "inputs": inputs, "reads": reads, "outputs": ("y", "n")})


def _grouped(batch: int, length: int) -> Iterator[tuple[str, Kernel]]:
    x = {"x": floats(batch, length, 64)}
    shared = {"k": floats(batch, length, 32), "v": floats(batch, length, 32)}
    counts = {
        "l": np.full((batch,), length - 1, np.int32),
        "t": np.array(length, np.int32),
    }
    caches = {"c": floats(64, 8), "s": floats(64, 8)}
    reads = ["x", "k", "v", "", "", "l", "t"]
    made = Kernel(
        "GroupQueryAttention",
        {**x, **shared},
        counts,
        reads,
        ("y", "p", "q"),
        _MICROSOFT,
        attributes={"num_heads": 4, "kv_num_heads": 2},
    )
    name = f"GroupQueryAttention {batch} {length}"
    yield name, made
    turned = {"weights": counts | caches, "reads": [*reads, "c", "s"]}
    yield f"{name} rotary", _with(Kernel(**{**vars(made), **turned}), do_rotary=1)
    packed = {"inputs": {"x": floats(batch, length, 128)}, "reads": ["x", "", "", *reads[3:]]}
    yield f"{name} packed", Kernel(**{**vars(made), **packed})


def _bits() -> Iterator[tuple[str, Kernel]]:
    for bits, block, level, columns in (
        *((4, 32, level, 96) for level in (0, 1, 4)),
        *((4, 128, 4, 96), (4, 16, 4, 40), (4, 32, 0, 40)),
        *((8, 32, level, 96) for level in (0, 4)),
        *((2, 32, level, 96) for level in (0, 4)),
    ):
        blocks = 256 // block
        weights = {
            "w": small(_UNSIGNED, columns, blocks, block * bits // 8),
            "s": floats(columns * blocks),
        }
        made = Kernel("MatMulNBits", {"x": floats(2, 16, 256)}, weights, ["x", "w", "s"])
        yield (
            f"MatMulNBits {bits} {block} {level} {columns}",
            _with(
                Kernel(**{**vars(made), "domain": _MICROSOFT}),
                **{"K": 256, "N": columns, "bits": bits, "block_size": block},
                accuracy_level=level,
            ),
        )


def _recurrent() -> Iterator[tuple[str, Kernel]]:
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            for has_bias in (False, True):
                for outputs in (("y", "h"), ("y",), ("", "h")):
                    weights = {
                        "w": floats(count, gates * 32, 64),
                        "r": floats(count, gates * 32, 32),
                    }
                    weights |= {"b": floats(count, 2 * gates * 32)} if has_bias else {}
                    made = Kernel(op, {"x": floats(8, 4, 64)}, weights, outputs=outputs)
                    made = Kernel(**{**vars(made), "reads": ["x", *weights]})
                    made = _with(made, hidden_size=32, direction=direction)
                    yield f"{op} {direction} {has_bias} {outputs}", made
                    if op == "GRU":
                        yield (
                            f"GRU linear {direction} {has_bias} {outputs}",
                            _with(made, linear_before_reset=1),
                        )


def _resizes() -> Iterator[tuple[str, Kernel]]:
    for mode in ("nearest", "linear", "cubic"):
        for factor in (2, 0.5):
            s = {"s": np.array([1, 1, factor, factor], np.float32)}
            made = Kernel("Resize", {"x": floats(1, 4, 16, 12)}, s, ["x", "", "s"])
            yield f"Resize {mode} {factor}", _with(made, mode=mode)
    s = {"s": np.array([1, 1, 2, 2, 2], np.float32)}
    made = Kernel("Resize", {"x": floats(1, 4, 8, 10, 12)}, s, ["x", "", "s"])
    yield "Resize of volumes", _with(made, mode="linear")


def _normalizations() -> Iterator[tuple[str, Kernel]]:
    x, both = {"x": floats(4, 30, 64)}, {"x": floats(4, 30, 64), "s": floats(4, 30, 64)}
    ends = {"g": floats(64), "b": floats(64)}
    yield (
        "SkipLayerNormalization",
        Kernel("SkipLayerNormalization", both, ends, ["x", "s", "g", "b"], domain=_MICROSOFT),
    )
    yield (
        "SkipSimplifiedLayerNormalization",
        Kernel(
            *("SkipSimplifiedLayerNormalization", both, {"g": ends["g"]}, ["x", "s", "g"]),
            *(("y", "", "", "z"), _MICROSOFT),
        ),
    )
    made = Kernel("SimplifiedLayerNormalization", x, {"g": ends["g"]}, ["x", "g"])
    yield "SimplifiedLayerNormalization", _with(made, axis=-1)
    for op in ("Gelu", "QuickGelu", "FastGelu"):
        yield op, Kernel(op, x, domain=_MICROSOFT)
    yield "Gelu of ONNX", Kernel("Gelu", x, opset=20)
    yield "Erf", Kernel("Erf", x)
    at = {"i": np.zeros((4, 30, 5), np.int64)}
    yield "GatherElements", _with(Kernel("GatherElements", x, at, ["x", "i"]), axis=2)
    ids = {"x": np.ones((4, 30), np.int32), "t": np.zeros((4, 30), np.int32)}
    words = {"w": floats(50, 64), "p": floats(40, 64), "u": floats(2, 64), **ends}
    yield (
        "EmbedLayerNormalization",
        Kernel(
            *("EmbedLayerNormalization", ids, words, ["x", "t", "w", "p", "u", "g", "b"]),
            *(("y", "m"), _MICROSOFT),
        ),
    )


CASES = dict(
    case
    for family in (
        *(_products, _convolutions, _others, _attentions, _bits, _recurrent, _resizes),
        _normalizations,
    )
    for case in family()
)


@pytest.mark.parametrize("name", CASES)
def test_every_figure_of_a_kernel_is_predicted(name: str, tmp_path: Path) -> None:
    predicted, measured = figures(
        CASES[name], tmp_path, ServeSettings(optimize=False, has_amx=has_amx())
    )
    assert predicted == measured


@pytest.mark.parametrize("name", CASES)
def test_and_where_no_weight_is_packed(name: str, tmp_path: Path) -> None:
    settings = ServeSettings(optimize=False, packs=False)
    predicted, measured = figures(CASES[name], tmp_path, settings)
    assert predicted == measured
