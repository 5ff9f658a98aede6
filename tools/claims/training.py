"""The simulated trainings that several claims are asked of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from graphmem.report import Report
from graphmem.resolve import make_options
from graphmem.schedule import Phase, Schedule
from graphmem.sources import InputRequest, LoadedSubject, load_subject
from graphmem.trace.run import model_dtype
from tools.checkpointing import simulated

GPT2 = "hf:models/gpt2.json"
LLAMA_8B = "hf:models/llama3_8b.json"
LLAMA_7B = "hf:models/llama_7b.json"
RESNET50 = "torchvision:resnet50"
VIT_B = "timm:vit_base_patch16_224"
A100 = "A100-80GB"
SGD = "sgd+momentum"


@dataclass(frozen=True, slots=True)
class Training:
    """A model, its batch and how it is trained: AdamW on an A100-80GB if nothing else is said."""

    title: str
    subject: str
    batch: int
    seq: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


TRAININGS = (
    Training("GPT-2, 8 x 1,024 tokens", GPT2, 8, 1024),
    Training("the same, each block checkpointed", GPT2, 8, 1024, {"checkpoint": "transformer.h.*"}),
    Training("GPT-2, 1 x 128 tokens", GPT2, 1, 128),
    Training("ResNet-50, batch 64, momentum", RESNET50, 64, None, {"optimizer": SGD}),
    Training("ResNet-50, batch 32, momentum", RESNET50, 32, None, {"optimizer": SGD}),
    Training("VGG-16, batch 64, momentum", "torchvision:vgg16", 64, None, {"optimizer": SGD}),
    Training("MobileNetV2, batch 64", "torchvision:mobilenet_v2", 64),
    Training("ViT-B/16, batch 64", VIT_B, 64),
    Training("LLaMA-7B, fp16, 4 x 2,048 tokens", LLAMA_7B, 4, 2048, {"precision": "fp16"}),
    Training(
        "Llama-3-8B, bf16, 1 x 2,048 tokens, H200",
        *(LLAMA_8B, 1, 2048, {"precision": "bf16", "device": "H200"}),
    ),
)


def loaded(
    subject: str, batch: int, seq: int | None = None, options: Mapping[str, Any] | None = None
) -> LoadedSubject:
    """A model on meta, and its inputs in the dtype of the run."""
    dtype = model_dtype(make_options(**(options or {})))
    return load_subject(subject, InputRequest(batch=batch, seq=seq, dtype=dtype, labels=True))


def trained(
    subject: str, batch: int, seq: int | None = None, **options: Any
) -> tuple[Report, Schedule]:
    """Two steps of training, with AdamW on an A100-80GB if nothing else is said."""
    every = {"device": A100, **options}
    return simulated(loaded(subject, batch, seq, every), every)


@cache
def runs() -> tuple[tuple[Training, Report, Schedule], ...]:
    """All trainings, simulated."""
    return tuple((t, *trained(t.subject, t.batch, t.seq, **t.options)) for t in TRAININGS)


def kept(report: Report) -> int:
    """What a step's forward keeps for backward, in bytes of blocks."""
    return sum(layer.saved_bytes for layer in report.layers)


def backward_done(report: Report, schedule: Schedule) -> float:
    """The share of a step's backward operations that stand before the peak."""
    step = [
        op.index
        for op in schedule.operations
        if op.step == report.peak.step and op.phase is Phase.BACKWARD
    ]
    return sum(index < report.peak.op_index for index in step) / len(step)
