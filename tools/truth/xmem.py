"""xMem's runs on an RTX 3060: four fp32 steps, NVML's largest sample less the first.

The measured script caps the process at all of the GPU's memory first
(``set_per_process_memory_fraction``, which asks for free memory), so the context is in the
first sample too and drops out. What stays are reserved bytes, and what CUDA loads later:
the second run of a process measured 18 MiB less than its first, the same in each of five
pairs (distilgpt2 at batch 10, 15, 20 and 30, t5-small at 20).

Transformers wait two seconds for the first sample. Convolutional networks do not: while the
sampler's thread starts, the model moves to the GPU, and counts as not used. That is a race:
of four equal runs of ConvNeXtBase (338 MiB of weights) the results are 9,522, 9,606, 9,646
and 9,666 MiB, of two of ConvNeXtTiny (109 MiB) both 7,634. The whole model is taken off
here, so the large ones may be 2 % higher.

Images are 86x86, of CIFAR-10's 10 classes, while all networks but MnasNet keep 1,000
outputs; sentences are wikitext-2's, cut at 128 and padded to the longest of a batch, which
is 128 where it has 15 or more. A step's batch, outputs and loss live until the next one's
replace them.

Known differences:
- transformers 4.51.3 ran; a row's name tells which one is traced. T5 had the eager attention
  only, which is asked for here. With 4.51.3 (in a folder named by ``PYTHONPATH``) the three
  rows are off by 9.8, 0.8 and 0.2 %, with 5.24 by 1.2, 2.5 and 2.9 %. The 9.8 are one block:
  distilgpt2 reserves 3,004, 4,122, 4,874 and 7,018 MiB at batch 10, 15, 20 and 30, measured
  2,996, 3,752, 4,854 and 7,018 (less the 18); at 15 a gradient of the logits, 370 MiB, finds
  no room where it did there.
- cuDNN 9.1 ran. It can't be asked without a GPU (9.8 is the first that can), and its
  workspaces decide where segments are added. Between 9.8 and 9.24, 192 of the 388
  convolutions here get another workspace, and reserved MiB differ by up to 9 %: ResNet101
  8,282 and 8,408, RegNetY400MF 3,748 and 3,956, VGG19 10,008 and 10,906, while allocated
  MiB differ by 2 % at most. MnasNet, MobileNetV2 and RegNet are off by 10 to 15 %.

Source: exp/run.py, exp/trainer and paper_container/config.py of Stone-ResearchLife/xMem at
5aad72f to 06ab550; the results in plot/data at d61e076.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import Run, mark, run

BARS = (
    Bar("conv nets", outcome.median, 0.025, "conv"),
    Bar("transformers", outcome.median, 0.025, "transformers"),
)

STEPS = 4
LENGTH = 128
LOADED_LATER = 18 * 2**20
"""What CUDA loads after the first sample, bytes; see above."""

OPTIMIZERS = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}


def takes(row: Row) -> bool:
    """All of xMem's."""
    return row.source.startswith("Stone-ResearchLife/xMem")


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict every row."""
    for row in rows:
        optimizer, batch = row.optimizer.partition(" ")[0], int(row.batch)
        if row.model in TEXT:
            group, in_first_sample = "transformers", 0
            traced = run(_text(row.model, batch, optimizer), row.gpu)
        else:
            group = "conv"
            traced = run(_images(row.model, batch, optimizer), row.gpu)
            in_first_sample = traced.reserved(0)
        predicted = _most_reserved(traced) - in_first_sample + LOADED_LATER
        name = f"{row.model}, batch {row.batch}{_traced_with(row.model)}"
        yield outcome.of("xmem", row, name=name, group=group, predicted=predicted)


def _traced_with(model: str) -> str:
    if model not in TEXT:
        return ""
    import transformers

    return f", transformers {transformers.__version__}"


def _most_reserved(traced: Run) -> int:
    return max(point.reserved_bytes or 0 for point in traced.timeline)


def _images(name: str, batch: int, optimizer: str) -> Callable[[], None]:
    model = IMAGES[name]().to("meta").train()
    stepper = OPTIMIZERS[optimizer](model.parameters(), lr=1e-3)

    def script() -> None:
        mark()
        for _ in range(STEPS):
            stepper.zero_grad()
            images, labels = torch.randn(batch, 3, 86, 86), torch.randint(0, 10, (batch,))
            outputs = model(images)
            loss = nn.functional.cross_entropy(outputs, labels)
            loss.backward()
            stepper.step()
            predicted = torch.max(outputs, 1)  # lives through the next step
        del predicted

    return script


def _text(name: str, batch: int, optimizer: str) -> Callable[[], None]:
    with torch.device("meta"):
        model = TEXT[name]().train()
    stepper = OPTIMIZERS[optimizer](model.parameters(), lr=1e-3)

    def script() -> None:
        for _ in range(STEPS):
            stepper.zero_grad()
            inputs = _sentences(batch)
            outputs = model(**inputs)
            loss = outputs.loss
            loss.backward()
            stepper.step()

    return script


def _sentences(batch: int) -> dict[str, torch.Tensor]:
    ids = torch.ones(batch, LENGTH, dtype=torch.int64)
    mask = ids.clone()
    mask[0, -1] = 0  # the sentences of a batch are not equally long
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}


def _of_torchvision(name: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision.models

        model: nn.Module = getattr(torchvision.models, name)(**settings)
        return model

    return build


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

    settings: Any = {"decoder_start_token_id": 0, "attn_implementation": "eager"}
    return T5ForConditionalGeneration(T5Config(**settings))


TEXT: dict[str, Callable[[], Any]] = {
    "distilbert/distilgpt2": _distilgpt2,
    "facebook/opt-350m": _opt_350m,
    "t5-small": _t5_small,
}

IMAGES = {
    "ConvNeXtBase": _of_torchvision("convnext_base"),
    "ConvNeXtTiny": _of_torchvision("convnext_tiny"),
    "MnasNet": _of_torchvision("mnasnet1_0", num_classes=10),
    "MobileNetV2": _of_torchvision("mobilenet_v2"),
    "RegNetY400MF": _of_torchvision("regnet_y_400mf"),
    "ResNet101": _of_torchvision("resnet101"),
    "VGG16": _of_torchvision("vgg16"),
    "VGG19": _of_torchvision("vgg19"),
}
