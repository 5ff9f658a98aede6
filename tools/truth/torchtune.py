"""torchtune's recipes on one GPU: packed data, checkpoints, offloading, 8-bit AdamW, LoRA.

README.md's table adds one technique to the ones before it, for Llama-3.2-3B, batch 2 of 4,096
packed tokens on an A100, in bf16 (first in 1814feb17, November 2024). AdamW is fused as in
recipes/configs/llama3_2/3B_full.yaml there; the 8-bit one is torchao's, as in docs/source/
tutorials/memory_optimizations.rst. docs/source/tutorials/lora_finetune.rst is Llama-2-7B by
recipes/configs/llama2/7B_lora_single_device.yaml at ff594c231 (April 2024), checkpoints on,
where ``alpaca_dataset`` cuts examples at 512 tokens, and gradients are accumulated. Peak memory
was what was reserved then, as README.md says there.

What differs: attention of packed data is compiled flex attention, here flash attention, which
keeps as much (its mask of blocks is small); compiled layers fuse what is eager here, where
``+compile`` stands before the row; offloading there is by a stream, of results above 1 KiB but
no parameters, and not of the head's input, here ``save_on_cpu``. LoRA's GPU is not named, and
its batches have many lengths, here one.

Source: meta-pytorch/torchtune, recipes/full_finetune_single_device.py and torchtune/training/
memory.py, ``get_memory_stats``, at 1814feb17; recipes/lora_finetune_single_device.py and
torchtune/utils/memory.py at ff594c231; torchtune/datasets/_alpaca.py there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import graphmem
from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.torchtune_model import Llama, Loss, Shape, loss_of

BARS: Sequence[Bar] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model, its tokens, and the arguments of ``graphmem.analyze``.

    ``is_reserved`` says that what was reserved is the measurement, not what was allocated.
    """

    technique: str
    shape: Shape
    tokens: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_reserved: bool = False


LLAMA_3_2_3B = Shape(128_256, 28, 3072, 24, 8, 8192, is_tied=True)
CHUNKED = Shape(128_256, 28, 3072, 24, 8, 8192, is_tied=True, loss=Loss.CHUNKED)
FUSED = "adamw(fused=True)"
CHECKPOINTS = {"checkpoint": "layers.*"}
ACCUMULATED = {**CHECKPOINTS, "accumulate": 2}


def _lora(rank: int, is_everywhere: bool) -> Shape:
    return Shape(
        *(32_000, 32, 4096, 32, 32, 11_008),
        rank=rank,
        is_everywhere=is_everywhere,
        loss=Loss.SHIFTED,
    )


RUNS = {
    "Llama 3.2 3B full finetune +packed": Recipe(
        "packed data", LLAMA_3_2_3B, 4096, {"optimizer": FUSED}
    ),
    "Llama 3.2 3B full finetune +activation ckpt": Recipe(
        "checkpoints (and chunked loss)", CHUNKED, 4096, {"optimizer": FUSED, **CHECKPOINTS}
    ),
    "Llama 3.2 3B full finetune +8bit AdamW": Recipe(
        "8-bit AdamW in backward, offloading, checkpoints",
        CHUNKED,
        4096,
        {
            "optimizer": "ao_adamw8bit",
            "optimizer_in_backward": True,
            "offload": "activations",
            **CHECKPOINTS,
        },
    ),
    "Llama-2-7B LoRA all r64": Recipe(
        "LoRA, checkpoints", _lora(64, True), 512, ACCUMULATED, is_reserved=True
    ),
    "Llama-2-7B LoRA qv r64": Recipe(
        "LoRA, checkpoints", _lora(64, False), 512, ACCUMULATED, is_reserved=True
    ),
}

COMPILED = (
    "layers under torch.compile, of which graphmem gives a range: how far inductor fuses is its own"
)


def takes(row: Row) -> bool:
    """All of torchtune's."""
    return row.source.startswith("pytorch/torchtune")


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict each row's run, but for the one that compiles its layers."""
    for row in rows:
        recipe = RUNS.get(row.model)
        if recipe is None:
            yield outcome.of("torchtune", row, group="compiled layers", skipped=COMPILED)
        else:
            predicted, group = _peak(recipe, int(row.batch)), recipe.technique
            yield outcome.of("torchtune", row, group=group, predicted=predicted)


def _peak(recipe: Recipe, batch: int) -> int:
    """The peak of two steps on an A100."""
    with torch.device("meta"):
        model = Llama(recipe.shape).to(torch.bfloat16).train()
    tokens = torch.zeros(batch, recipe.tokens, dtype=torch.int64)
    report = graphmem.analyze(
        model,
        {"tokens": tokens, "labels": tokens.clone()},
        loss=loss_of,
        device="A100-80GB",
        **recipe.arguments,
    )
    reserved = report.peak.reserved_bytes
    assert reserved is not None  # the target is CUDA
    return reserved if recipe.is_reserved else report.peak.allocated_bytes
