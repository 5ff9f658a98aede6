"""Graphs as ONNX Runtime optimizes and quantizes them: every value of every node is the same."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import ModelProto
from onnxruntime import GraphOptimizationLevel as Level
from torch import Tensor, nn

from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model
from graphmem.sources.onnx.rules.microsoft.nchwc import NCHWC, block_size
from tests.cpu import as_measured
from tests.sources.onnx.ort import Array, session

pytestmark = as_measured

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
SIZE = 32


class Perceptron(nn.Sequential):
    """[B, 16] to [B, 4], with activations that ONNX Runtime fuses and one that it doesn't."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(16, 32),
            nn.GELU(),
            nn.Linear(32, 32),
            nn.LeakyReLU(0.1),
            nn.Linear(32, 32),
            nn.ReLU(),
            nn.Linear(32, 4),
            nn.Softmax(-1),
        )


class Images(nn.Module):
    """[B, 3, 32, 32] to [B, 5]: batch norms, sums, groups, pools and a larger image again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16)
        self.second, self.norm2 = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.each, self.wide = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 36, 1)
        self.third, self.last = nn.Conv2d(36, 36, 3, padding=1), nn.Linear(36, 5)
        for norm in (self.norm, self.norm2):
            norm.running_mean = torch.randn(16)
            norm.running_var = torch.rand(16) + 0.5

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        y = F.relu(self.norm2(self.second(x)) + x)
        y = self.wide(F.hardswish(self.each(y)))
        y = F.relu6(self.third(y)) + y
        y = F.avg_pool2d(F.interpolate(y, scale_factor=2), 3, 2)
        return self.last(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Attention(nn.Module):
    """Self-attention of four heads, in the operators that older exports have."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(SIZE, SIZE) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        shape = (x.shape[0], x.shape[1], 4, SIZE // 4)
        q, k, v = (f(x).view(shape).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / (SIZE // 4) ** 0.5
        y = torch.softmax(scores + mask, -1) @ v
        return self.o(y.permute(0, 2, 1, 3).contiguous().view(x.shape))


class Block(nn.Module):
    """A transformer's layer, with its norms before (GPT) or after (BERT)."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self.attention, self.before = Attention(), before
        self.norm, self.norm2 = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        gelu = nn.GELU(approximate="tanh" if before else "none")
        self.inner = nn.Sequential(nn.Linear(SIZE, 64), gelu, nn.Linear(64, SIZE))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.before:
            x = x + self.attention(self.norm(x), mask)
            return x + self.inner(self.norm2(x))
        x = self.norm(x + self.attention(x, mask))
        return self.norm2(x + self.inner(x))


class Bert(nn.Module):
    """Ids, mask and segments [B, S] to [B, S, 32]."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(50, SIZE), nn.Embedding(20, SIZE)
        self.kind, self.norm = nn.Embedding(2, SIZE), nn.LayerNorm(SIZE, eps=1e-12)
        self.blocks = nn.ModuleList(Block(before=False) for _ in range(2))

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])[None]
        x = self.norm(self.word(ids) + self.place(places) + self.kind(kinds))
        added = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for block in self.blocks:
            x = block(x, added)
        return x


class Gpt(nn.Module):
    """Ids [B, S] to [B, S, 50]."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(50, SIZE), nn.Embedding(20, SIZE)
        self.blocks = nn.ModuleList(Block(before=True) for _ in range(2))
        self.head = nn.Linear(SIZE, 50, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.word(ids) + self.place(torch.arange(ids.shape[1])[None])
        mask = torch.triu(torch.full((ids.shape[1], ids.shape[1]), -1e9), 1)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class Case(NamedTuple):
    """A model and what it is run on."""

    model: ModelProto
    inputs: tuple[Tensor, ...]


@cache
def exported(name: str) -> Case:
    """One of the four networks, exported with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        ids, mask = torch.randint(0, 50, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
        mask[1, 4:] = 0
        network, inputs = {
            "mlp": (Perceptron(), (torch.randn(3, 16),)),
            "cnn": (Images(), (torch.randn(2, 3, 32, 32),)),
            "bert": (Bert(), (ids, mask, torch.randint(0, 2, (2, 7)))),
            "gpt": (Gpt(), (ids,)),
        }[name]
    file: Any = io.BytesIO()  # the older exporter takes a file, too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter is deprecated, and traces constants
        torch.onnx.export(
            network.eval(),
            inputs,
            file,
            dynamo=False,
            opset_version=17,
            training=torch.onnx.TrainingMode.PRESERVE,  # keeps the batch norms
            do_constant_folding=name != "cnn",  # would fold them
        )
    return Case(onnx.load_from_string(file.getvalue()), inputs)


def optimized(model: ModelProto, level: str, folder: Path) -> ModelProto:
    """The graph that ONNX Runtime saves at a level of optimization."""
    path = folder / "optimized.onnx"
    session(
        model, graph_optimization_level=getattr(Level, level), optimized_model_filepath=str(path)
    )
    return onnx.load(path)


def dynamic(case: Case, folder: Path) -> Case:
    """With int8 weights, and activations that are quantized as it runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    onnx.save(case.model, folder / "float.onnx")
    quantize_dynamic(folder / "float.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
    return Case(onnx.load(folder / "int8.onnx"), case.inputs)


def static(case: Case, folder: Path, form: str, activations: str) -> Case:
    """Quantized with scales measured beforehand."""
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            made = np.random.default_rng(8)
            name = case.model.graph.input[0].name
            images = (made.standard_normal((2, 3, 32, 32)) for _ in range(4))
            self._left: Iterator[Any] = iter([{name: i.astype(np.float32)} for i in images])

        def get_next(self) -> Any:
            return next(self._left, None)

    onnx.save(optimized(case.model, "ORT_ENABLE_BASIC", folder), folder / "float.onnx")
    q.quantize_static(
        *(folder / "float.onnx", folder / "int8.onnx", Reader()),
        quant_format=q.QuantFormat[form],
        activation_type=q.QuantType[activations],
        weight_type=q.QuantType.QInt8,
        per_channel=form == "QDQ",
    )
    return Case(onnx.load(folder / "int8.onnx"), case.inputs)


def fused_offline(case: Case, folder: Path, kind: str) -> Case:
    """By ONNX Runtime's own tool for transformers, which finds more than a session does."""
    from onnxruntime.transformers import optimizer

    onnx.save(case.model, folder / "float.onnx")
    made = optimizer.optimize_model(
        str(folder / "float.onnx"), kind, num_heads=4, hidden_size=SIZE, opt_level=0
    )
    return Case(made.model, case.inputs)


def in_order(array: Array) -> Array:
    """A value in blocks of channels as [N, C, H, W]."""
    n, c, h, w = array.shape
    b = block_size(c)
    return array.reshape(n, c // b, h, w, b).transpose(0, 1, 4, 2, 3).reshape(array.shape)


def in_blocks(model: ModelProto) -> set[str]:
    """The names of the values that ONNX Runtime holds in blocks."""
    found: set[str] = set()
    for node in model.graph.node:
        made = node.domain == NCHWC and node.op_type != "ReorderOutput"
        if made or (not node.domain and found & set(node.input)):
            found.update(node.output)
    return found


def check_every_value(model: ModelProto, inputs: tuple[Tensor, ...]) -> set[str]:
    """Compare all values of a graph; returns its operators outside of ONNX's domain."""
    whole = ModelProto()
    whole.CopyFrom(model)
    ends = {output.name for output in whole.graph.output}
    names = [n for node in whole.graph.node for n in node.output if n and n not in ends]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    feeds = dict(zip((v.name for v in whole.graph.input), inputs, strict=True))
    running = session(whole)
    made = running.run(None, {name: x.numpy() for name, x in feeds.items()})
    wanted = dict(zip((o.name for o in running.get_outputs()), made, strict=True))
    module = build_module(as_model(whole, "optimized.onnx"), weights=True).eval()
    with torch.no_grad():
        results = dict(zip((o.name for o in whole.graph.output), module(*inputs), strict=True))
    blocks = in_blocks(whole)
    for node in whole.graph.node:
        for name in filter(None, node.output):
            theirs = in_order(wanted[name]) if name in blocks else wanted[name]
            _check_value(f"{node.op_type} {name}", results[name].detach().numpy(), theirs)
    return {node.op_type for node in whole.graph.node if node.domain}


def _check_value(what: str, mine: Array, theirs: Array) -> None:
    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), what
    if mine.dtype.itemsize == 1 and mine.dtype.kind in "iu":
        apart = np.abs(mine.astype(np.int64) - theirs.astype(np.int64))
        assert apart.max(initial=0) <= 1, what  # sums between two steps
    else:
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4, err_msg=what)


EXPECTED: dict[str, set[str]] = {
    "mlp": {"Gelu", "FusedGemm"},
    "cnn": {"Conv", "MaxPool", "Upsample", "ReorderOutput"},
    "bert": {"SkipLayerNormalization", "FusedMatMul", "Gelu"},
    "gpt": {"FusedMatMul"},
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("level", LEVELS)
def test_an_optimized_graph(name: str, level: str, tmp_path: Path) -> None:
    case = exported(name)
    found = check_every_value(optimized(case.model, level, tmp_path), case.inputs)
    if level == "ORT_ENABLE_ALL":
        assert found >= EXPECTED[name]


@pytest.mark.parametrize("name", ["mlp", "bert"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_graph_that_is_quantized_as_it_runs(name: str, level: str, tmp_path: Path) -> None:
    case = dynamic(exported(name), tmp_path)
    found = check_every_value(optimized(case.model, level, tmp_path), case.inputs)
    if level == "ORT_ENABLE_ALL":
        assert "DynamicQuantizeMatMul" in found


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_quantized_network_of_images(
    form: str, activations: str, level: str, tmp_path: Path
) -> None:
    case = static(exported("cnn"), tmp_path, form, activations)
    found = check_every_value(optimized(case.model, level, tmp_path), case.inputs)
    if level == "ORT_ENABLE_ALL":
        assert found >= {"QLinearConv", "QLinearAveragePool", "QGemm"}


@pytest.mark.parametrize(("name", "kind"), [("bert", "bert"), ("gpt", "gpt2")])
@pytest.mark.parametrize("level", LEVELS)
def test_a_transformer_fused_by_onnx_runtimes_own_tool(
    name: str, kind: str, level: str, tmp_path: Path
) -> None:
    case = fused_offline(exported(name), tmp_path, kind)
    found = check_every_value(optimized(case.model, level, tmp_path), case.inputs)
    assert "SkipLayerNormalization" in found
    assert name != "bert" or {"Attention", "EmbedLayerNormalization", "BiasGelu"} <= found
