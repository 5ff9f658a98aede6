"""Claims about the size of what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

import graphmem
from graphmem.report import Report
from tools.claims.section import Row, Section, gb, mb, times
from tools.claims.training import GPT2, RESNET50, SGD, kept, trained

ROWS, WIDTH, RESULT = 64, 1024, 4096
IMAGES = 64


def linear() -> Section:
    """What a linear layer keeps."""
    plain = two_layers()
    cases = (
        ("fp32", two_layers(precision="fp32")),
        ("after a ReLU", two_layers(nn.ReLU(), precision="fp32")),
        ("bf16 autocast", two_layers(precision="amp-bf16")),
        ("its weight is frozen", two_layers(freeze="1")),
    )
    saved = [(name, kept(report) - of_first(report)) for name, report in cases]
    claimed = kept(plain) - of_first(plain)
    return Section(
        f"A Linear's saved input is [batch, {WIDTH:,}]",
        f"Held where {ROWS} x {WIDTH:,} x 4 B = {ROWS * WIDTH * 4:,} B are all that it saves.",
        f"`nn.Linear({WIDTH}, {RESULT})` after another layer, whose result is what it saves"
        f" ({claimed:,} B). A ReLU before it saves the same tensor, which is there once."
        " Autocast saves the bf16 copy of the input and that of the weight, and a layer that is"
        " not trained saves no input.",
        ("saved, bytes",),
        tuple(Row(name, (f"{b:,}",), b == ROWS * WIDTH * 4) for name, b in saved),
    )


def two_layers(*between: nn.Module, **options: Any) -> Report:
    """A training of two linear layers: [64, 512] -> [64, 1024] -> [64, 4096]."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(512, WIDTH), *between, nn.Linear(WIDTH, RESULT))
    return graphmem.analyze(model, graphmem.spec(f"{ROWS}x512"), **options)


def of_first(report: Report) -> int:
    """What the first layer keeps."""
    return next(layer.saved_bytes for layer in report.layers if layer.module == "0")


def convolution() -> Section:
    """What the first convolution of ResNet-50 gives, and what is kept of it."""
    report, _ = trained(RESNET50, IMAGES, optimizer=SGD)
    half, _ = trained(RESNET50, IMAGES, optimizer=SGD, precision="amp-bf16")
    return Section(
        "A convolution's output [64, 64, 112, 112] in fp32 is 205 MB",
        "64 x 64 x 112 x 112 x 4 B = 205,520,896 B.",
        "The first layers of ResNet-50, batch 64. The convolution itself keeps its input, the"
        " image. Its output is kept by the batch norm after it, whose result of the same size is"
        " kept by the ReLU that overwrites it: so twice 205 MB stay until backward.",
        ("output, bytes", "kept for backward, bytes"),
        (
            *(layer_row(report, "conv1", "fp32", 205), layer_row(report, "bn1", "fp32")),
            *(layer_row(report, "relu", "fp32"), layer_row(half, "conv1", "bf16 autocast")),
        ),
    )


def layer_row(report: Report, path: str, how: str, claimed: int | None = None) -> Row:
    """A layer's output and what it keeps; ``claimed`` MB are asked of the output."""
    layer = next(layer for layer in report.layers if layer.module == path)
    holds = None if claimed is None else layer.output_bytes // 10**6 == claimed
    return Row(f"`{path}`, {how}", (f"{layer.output_bytes:,}", f"{layer.saved_bytes:,}"), holds)


def doubled() -> Section:
    """ResNet-50 at batch 32 and 64."""
    rows = [_doubled_on(device) for device in ("T4", "A100-80GB", "H100")]
    return Section(
        "ResNet-50 takes nearly three times as much at batch 64 as at batch 32",
        "Held if the peak grows by more than 2.5.",
        "SGD with momentum, fp32. What is kept doubles; parameters, gradients and states stay, so"
        " that the peak grows by a little less than two. The workspaces are those at the peak;"
        " cuDNN's heuristics choose them by size.",
        ("32, GB", "64, GB", "times", "reserved, times", "kept, times", "workspaces, MB"),
        tuple(rows),
    )


def _doubled_on(device: str) -> Row:
    small, large = (
        trained(RESNET50, n, optimizer=SGD, device=device)[0] for n in (IMAGES // 2, IMAGES)
    )
    before, after = small.peak, large.peak
    spaces = " and ".join(mb(report.breakdown["workspaces"]) for report in (small, large))
    reserved = times(after.reserved_bytes or 0, before.reserved_bytes or 0)
    growth = times(after.allocated_bytes, before.allocated_bytes)
    cells = (gb(before.allocated_bytes), gb(after.allocated_bytes), growth, reserved)
    holds = after.allocated_bytes > 2.5 * before.allocated_bytes
    return Row(device, (*cells, times(kept(large), kept(small)), spaces), holds)


SIX_GB = 6 * 10**9


def transformer() -> Section:
    """For which sequences a transformer of 12 layers keeps about 6 GB at batch 64."""
    return Section(
        "A 12-layer transformer at batch 64 holds about 6 GB of activations",
        "Held where some sequence gives 6 GB (within 5 %), which is the first column.",
        "12 x `nn.TransformerEncoderLayer` with dropout and a feed-forward layer of four widths,"
        " heads of 64; kept for backward. The claim names no shape, and which one it is decides:"
        " see the other columns.",
        ("6 GB at tokens", "keeps then, GB", "at 128 tokens, GB", "at 512 tokens, GB"),
        tuple(_rows_of_transformers()),
    )


def _rows_of_transformers() -> Iterator[Row]:
    for width in (512, 768, 1024):
        for precision in ("fp32", "amp-bf16"):
            yield _six_gb(f"width {width:,}, {precision}", partial(_encoder, width, precision))
    yield _six_gb("GPT-2 with its head, fp32", lambda tokens: kept(trained(GPT2, 64, tokens)[0]))


def _six_gb(name: str, keeps: Callable[[int], int]) -> Row:
    """A row: the sequence by the line through two simulated ones, and what that keeps."""
    short, long = keeps(128), keeps(512)
    tokens = round(128 + (SIX_GB - short) * (512 - 128) / (long - short))
    found = keeps(tokens)
    cells = (f"{tokens:,}", gb(found), gb(short), gb(long))
    return Row(name, cells, abs(found - SIX_GB) < SIX_GB / 20)


def _encoder(width: int, precision: str, tokens: int) -> int:
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True)
        model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    inputs = graphmem.spec(f"64x{tokens}x{width}")
    return kept(graphmem.analyze(model, inputs, precision=precision, device="A100-80GB"))


SECTIONS = (linear, convolution, doubled, transformer)
