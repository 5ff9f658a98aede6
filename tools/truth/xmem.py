"""xMem's runs on an RTX 3060: four fp32 steps, NVML's largest sample less the first.

The context is in the measurement, so the middle of ``device_bytes`` is compared: reserved
bytes and the GPU's context. Images are 86x86 with 10 classes (CIFAR-10); sentences are
wikitext-2's, cut at 128 and padded to the longest of a batch, which is taken as 128.

Known differences: the lengths of the sentences are not known; of conv nets the segments
reserved in backward are more here than there (RegNet: 3.9 GiB for 2.7 allocated, of which
0.4 are one workspace of a grouped convolution); cuDNN 9.24 is asked here, 9.1 ran there.

Source: plot/data of Stone-ResearchLife/xMem at d61e076.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

import graphmem
from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import GPUS

BARS = (
    Bar("conv nets", outcome.median, 0.025, "conv"),
    Bar("transformers", outcome.median, 0.025, "transformers"),
)

CLASSES = 10
LENGTH = 128


def takes(row: Row) -> bool:
    """All of xMem's."""
    return row.source.startswith("Stone-ResearchLife/xMem")


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict every row."""
    for row in rows:
        optimizer = row.optimizer.partition(" ")[0].lower()
        batch, is_text = int(row.batch), row.model in TEXT
        call = _text if is_text else _images
        report = call(row.model, batch, optimizer, GPUS[row.gpu])
        low, high = report.peak.device_bytes or (0, 0)
        group = "transformers" if is_text else "conv"
        name = f"{row.model}, batch {row.batch}"
        predicted = (low + high) / 2
        yield outcome.of("xmem", row, name=name, group=group, predicted=predicted)


def _images(name: str, batch: int, optimizer: str, gpu: str) -> graphmem.Report:
    import torchvision.models

    labels = torch.empty(batch, dtype=torch.int64, device="meta")
    model = getattr(torchvision.models, IMAGES[name])(num_classes=CLASSES)
    return graphmem.analyze(
        model,
        torch.empty(batch, 3, 86, 86, device="meta"),
        loss=lambda scores: nn.functional.cross_entropy(scores, labels),
        optimizer=optimizer,
        device=gpu,
    )


def _text(name: str, batch: int, optimizer: str, gpu: str) -> graphmem.Report:
    with torch.device("meta"):
        model = TEXT[name]()
    ids = torch.ones(batch, LENGTH, dtype=torch.int64)
    mask = ids.clone()
    mask[0, -1] = 0  # the sentences of a batch are not equally long
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}
    return graphmem.analyze(model, inputs, optimizer=optimizer, device=gpu)


def _distilgpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=6))


def _opt_350m() -> Any:
    from transformers import OPTConfig, OPTForCausalLM

    sizes: Any = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    return OPTForCausalLM(
        OPTConfig(**sizes, ffn_dim=4096, word_embed_proj_dim=512, do_layer_norm_before=False)
    )


def _t5_small() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    start: Any = {"decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(**start))


TEXT: dict[str, Callable[[], Any]] = {
    "distilbert/distilgpt2": _distilgpt2,
    "facebook/opt-350m": _opt_350m,
    "t5-small": _t5_small,
}

IMAGES = {
    "ConvNeXtBase": "convnext_base",
    "ConvNeXtTiny": "convnext_tiny",
    "MnasNet": "mnasnet1_0",
    "MobileNetV2": "mobilenet_v2",
    "RegNetY400MF": "regnet_y_400mf",
    "ResNet101": "resnet101",
    "VGG16": "vgg16",
    "VGG19": "vgg19",
}
