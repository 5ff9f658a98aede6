"""Packed base weights, by hand and beside bitsandbytes' own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import graphmem
from graphmem.errors import UsageError

K, N, ROWS = 256, 512, 64
COUNT = K * N  # 131,072 weights in 2,048 blocks of 64
TABLES = {
    "nf4": COUNT // 2 + 4 * 2048 + 4 * 16,
    # a byte a maximum, 8 fp32 maxima of them, their mean, and the table of levels
    "nf4-double": COUNT // 2 + 2048 + 4 * 8 + 4 + 4 * 256 + 4 * 16,
    "fp4": COUNT // 2 + 4 * 2048 + 4 * 16,
    "int8": COUNT + 4 * N,
}


class Net(nn.Module):
    """A trained layer before a linear one, whose input therefore needs a gradient."""

    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.first = nn.Embedding(8, K)
        self.base = nn.Sequential(*(nn.Linear(K, N, bias=False) for _ in range(layers)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.first(ids)
        return sum(layer(hidden).mean() for layer in self.base)


def _report(layers: int = 1, **options: Any) -> graphmem.Report:
    options = {"target": "cpu", "precision": "bf16", "optimizer": "sgd", **options}
    return graphmem.analyze(Net(layers), graphmem.spec(f"{ROWS}:int64"), **options)


@pytest.mark.parametrize("packing", TABLES)
def test_the_bytes_of_a_packed_weight(packing: str) -> None:
    report = _report(quantize=packing)
    assert report.breakdown["parameters"] == TABLES[packing] + 2 * 8 * K
    # elements are those of the weight before it was packed
    assert report.subject.parameters == COUNT + 8 * K
    assert report.subject.trainable_parameters == 8 * K


def test_all_layers_share_the_levels_of_packed_tables() -> None:
    assert _report(2, quantize="nf4-double").breakdown["parameters"] == (
        2 * TABLES["nf4-double"] - 4 * 256 + 2 * 8 * K
    )


def test_four_bits_save_nothing_and_eight_bits_hold_the_input() -> None:
    inputs, ids = 2 * ROWS * K, 8 * ROWS

    def saved(**options: Any) -> int:
        return sum(layer.saved_bytes for layer in _report(**options).layers)

    assert saved() == saved(quantize="nf4") + inputs  # the trained weight's
    assert saved(quantize="nf4") == ids
    # Not by autograd's saving: it lives as long as the loss, into the next step's forward.
    four, eight = _report(quantize="nf4"), _report(quantize="int8")
    assert four.steps[1].phases["optimizer"] is not None
    assert eight.steps[1].phases["optimizer"] is not None
    weights = TABLES["int8"] - TABLES["nf4"]
    assert eight.steps[1].phases["optimizer"] - four.steps[1].phases["optimizer"] == (
        weights + inputs
    )


def _peak(model: nn.Module, spec: str, phase: str, **options: Any) -> int:
    report = graphmem.analyze(model, graphmem.spec(spec), target="cpu", **options)
    found = report.steps[0].phases[phase]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("packing", "extra"),
    [
        ("nf4", 2 * COUNT),  # the weight in bf16
        ("nf4-double", 2 * COUNT + 2 * 4 * 2048),  # and the maxima in fp32, twice
        # codes and scales of the input, an int32 product and its fp16 form, beside the result
        ("int8", ROWS * K + 4 * ROWS + 4 * ROWS * N + 2 * ROWS * N),
    ],
)
def test_what_a_forward_makes_on_the_way(packing: str, extra: int) -> None:
    model = nn.Sequential(nn.Linear(K, N, bias=False))
    peak = _peak(
        model, f"{ROWS}x{K}", "forward", mode="inference", precision="bf16", quantize=packing
    )
    assert peak == TABLES[packing] + 2 * ROWS * K + 2 * ROWS * N + extra


def test_up_to_four_rows_make_no_weight() -> None:
    model = nn.Sequential(nn.Linear(K, N, bias=False))
    peak = _peak(model, f"4x{K}", "forward", mode="inference", precision="bf16", quantize="nf4")
    assert peak == TABLES["nf4"] + 2 * 4 * K + 2 * 4 * N


@pytest.mark.parametrize(
    ("packing", "rows", "told"),
    [
        ("nf4", 4, []),
        ("nf4", 1536, ["whether a 4-bit product makes its whole weight"]),
        ("nf4", 1537, []),
        ("int8", 4, ["columns of outliers in 8-bit products"]),
    ],
)
def test_what_depends_on_the_gpu_or_on_values_is_told(
    packing: str, rows: int, told: list[str]
) -> None:
    model = nn.Sequential(nn.Linear(K, N, bias=False))
    spec = graphmem.spec(f"{rows}x{K}")
    report = graphmem.analyze(model, spec, mode="inference", quantize=packing, target="cpu")
    assert [item.what for item in report.unknown] == told


def test_a_backward_makes_the_weight_again() -> None:
    def backward(**options: Any) -> int:
        found = _report(**options).steps[0].phases["backward"]
        assert found is not None
        return found

    assert backward(quantize="nf4") - TABLES["nf4"] >= 2 * COUNT


def test_heads_of_transformers_stay_as_they_are() -> None:
    transformers = pytest.importorskip("transformers")
    small: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 100}
    small |= {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small))
    ids = graphmem.spec("2x8:int64")
    report = graphmem.analyze(model, {"input_ids": ids, "labels": ids}, quantize="int8")
    rows = {layer.module: layer for layer in report.layers}
    assert rows["lm_head"].parameter_bytes == 4 * 100 * 64
    # 64 * 64 B, and 64 scales
    assert rows["model.layers.0.self_attn.q_proj"].parameter_bytes == 64 * 64 + 4 * 64


@pytest.mark.parametrize(
    ("model", "packing", "error"),
    [
        (nn.Linear(2, 2), "nf5", "did you mean 'nf4'?"),
        (nn.Sequential(nn.Conv2d(3, 3, 1)), "nf4", "has no nn.Linear"),
    ],
)
def test_a_mistake_is_one_line(model: nn.Module, packing: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        graphmem.analyze(model, graphmem.spec("1x3x4x4"), quantize=packing)
    assert error in str(raised.value)


@pytest.mark.parametrize("packing", ["nf4", "nf4-double"])
def test_bitsandbytes_stores_the_same_tensors(packing: str) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    double = packing.endswith("double")
    weight = torch.randn(N, K)
    packed, state = bitsandbytes.functional.quantize_4bit(
        weight, quant_type="nf4", compress_statistics=double
    )
    tables = [packed, state.absmax, state.code]
    if double:
        tables += [state.offset, state.state2.absmax, state.state2.code]
    assert sum(t.numel() * t.element_size() for t in tables) == TABLES[packing]


@pytest.mark.parametrize("packing", ["nf4", "nf4-double", "int8"])
def test_layers_of_bitsandbytes_itself_are_taken_as_on_a_gpu(packing: str) -> None:
    nn_of = pytest.importorskip("bitsandbytes").nn
    model = Net().to(torch.bfloat16)
    if packing == "int8":
        layer: Any = nn_of.Linear8bitLt(K, N, bias=False, has_fp16_weights=False, threshold=6.0)
        layer.weight = layer.weight._quantize("cpu")
    else:
        double = packing.endswith("double")
        layer = nn_of.Linear4bit(K, N, bias=False, compress_statistics=double, quant_type="nf4")
        layer = layer.to(torch.bfloat16)
        layer.weight._quantize("cpu")
    model.base[0] = layer
    options: dict[str, Any] = {"target": "cpu", "optimizer": "sgd"}
    theirs = graphmem.analyze(model, graphmem.spec(f"{ROWS}:int64"), **options)
    ours = _report(quantize=packing)
    assert theirs.peak == ours.peak
    assert theirs.breakdown == ours.breakdown
    assert model.base[0] is layer


def test_a_model_of_peft_and_bitsandbytes_is_the_same_as_both_options() -> None:
    nn_of, peft = pytest.importorskip("bitsandbytes").nn, pytest.importorskip("peft")
    model = Net().to(torch.bfloat16)
    layer = nn_of.Linear4bit(K, N, bias=False, compress_statistics=False, quant_type="nf4")
    layer = layer.to(torch.bfloat16)
    layer.weight._quantize("cpu")
    model.base[0] = layer
    vars(model)["is_loaded_in_4bit"] = True  # as transformers says, and peft asks
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["base.0"]))
    spec = graphmem.spec(f"{ROWS}:int64")
    theirs = graphmem.analyze(adapted, spec, target="cpu", optimizer="sgd")
    ours = _report(quantize="nf4", lora={"r": 4, "targets": "base.0"})
    assert theirs.peak.allocated_bytes == ours.peak.allocated_bytes
    assert theirs.steps == ours.steps


def test_transposed_layers_of_transformers_are_packed_too() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=4, vocab_size=100, n_positions=8)
    ids = graphmem.spec("2x8:int64")
    inputs = {"input_ids": ids, "labels": ids}
    report = graphmem.analyze(transformers.GPT2LMHeadModel(config), inputs, quantize="int8")
    rows = {layer.module: layer for layer in report.layers}
    # 64 * 192 weights, 192 scales and a bias of 192
    assert rows["transformer.h.0.attn.c_attn"].parameter_bytes == 64 * 192 + 2 * 4 * 192
