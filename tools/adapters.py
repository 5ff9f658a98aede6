"""Writes docs/adapters.md: what adapters and packed base weights save, simulated.

python tools/adapters.py            needs the extras hf and vision, and peft
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphmem import spec
from graphmem.analysis import analyze, traced_call
from graphmem.report import Report
from graphmem.resolve import make_options
from graphmem.sources import InputRequest, load_subject

PAGE = Path(__file__).resolve().parent.parent / "docs" / "adapters.md"
SUBJECT, BATCH, SEQ, GPU = "hf:models/llama3_8b.json", 1, 2048, "A100-80GB"
LORA = "r=16,alpha=32,targets=q_proj+v_proj"
EVERYWHERE = f"{LORA}+k_proj+o_proj+gate_proj+up_proj+down_proj"

RUNS: dict[str, dict[str, Any]] = {
    "all weights are trained": {},
    f"`--lora {LORA}`": {"lora": LORA},
    f"`--lora {LORA},dropout=0.05`": {"lora": f"{LORA},dropout=0.05"},
    "`--lora` on all linear layers of a block": {"lora": EVERYWHERE},
    "the same with `--quantize int8`": {"lora": EVERYWHERE, "quantize": "int8"},
    "with `--quantize nf4`": {"lora": EVERYWHERE, "quantize": "nf4"},
    "with `--quantize nf4-double`": {"lora": EVERYWHERE, "quantize": "nf4-double"},
}

RESNET_LORA = "r=4,targets=conv1+conv2+conv3+downsample.0"
WITHOUT_SHORTCUTS = "r=4,targets=conv1+conv2+conv3,dropout=0.1"
RESNET: dict[str, tuple[str | None, str, str]] = {
    "all weights are trained": (None, "cpu", "1,310.95"),
    f"`--lora {RESNET_LORA}`": (RESNET_LORA, "cpu", "-"),
    f"`--lora {RESNET_LORA},dropout=0.1`": (f"{RESNET_LORA},dropout=0.1", "cpu", "2,618.32"),
    "the same on a GPU": (f"{RESNET_LORA},dropout=0.1", "cuda", "-"),
    f"`--lora {WITHOUT_SHORTCUTS}`": (WITHOUT_SHORTCUTS, "cpu", "-"),
}
"""Measured: huggingface/peft issue 2196, activations in torch's MemTracker on the CPU."""

_HEAD = f"""\
# What adapters save

`{SUBJECT}`, batch {BATCH}, {SEQ:,} tokens, bf16, AdamW, on an {GPU}: parameters, gradients (all
that a step makes), optimizer states, what forward keeps for backward, and the peak, in GiB.
Adapters are peft's own modules, in fp32; packed weights are stored and unpacked as bitsandbytes
does. Written by `tools/adapters.py`.

| training | trained | parameters | gradients | states | kept | peak | peak in |
|---|--:|--:|--:|--:|--:|--:|---|
"""

_BETWEEN = """
- LoRA saves gradients and states, and little of what forward keeps: the activations are needed
  to go back through the frozen layers to the first adapter. Frozen layers keep no input, but
  adapters keep theirs, in fp32.
- Dropout in an adapter keeps a mask and the dropped input besides, for each adapted layer.
- Packed base weights save parameters alone; each product makes its whole weight again.
- bitsandbytes' 8-bit product holds its input until the loss is let go, so into the next step's
  forward.

## A published case

ResNet-50 (one output), batch 16, fp32: what forward keeps, with the images, in MiB.
peft's issue 2196 has the measurements, of all activations.

| training | trained | simulated | measured |
|---|--:|--:|--:|
"""

_AFTER = """\
Without dropout an adapter's first convolution keeps the input that the frozen one is given, which
the batch norm's ReLU keeps anyway. Dropout makes a tensor of its own of each input (641.6 MiB in
all), which the adapter keeps, and a mask, which is as large in fp32 on a CPU: twice 641.6 MiB are
the 1,283 that it adds. On a GPU the mask is of bytes, a quarter. Some of the measurements there
are smaller than 2,618 (about 2,450); which layers they adapt is not said. Adapters on all
convolutions but the four shortcuts keep less than that, so it is not explained.
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """Of one run: sums over all layers, in bytes."""

    trained: int
    parameters: int
    gradients: int
    states: int
    saved: int
    peak: int
    phase: str

    @staticmethod
    def of(report: Report) -> Kept:
        """What a report says."""
        layers = report.layers
        return Kept(
            report.subject.trainable_parameters,
            sum(layer.parameter_bytes for layer in layers),
            sum(layer.gradient_bytes for layer in layers),
            sum(layer.optimizer_bytes for layer in layers),
            sum(layer.saved_bytes for layer in layers),
            report.peak.allocated_bytes,
            f"step {report.peak.step}, {report.peak.phase}",
        )


def llama(name: str, options: dict[str, Any]) -> str:
    """A row of the first table."""
    resolved = make_options(precision="bf16", device=GPU, **options)
    request = InputRequest(batch=BATCH, seq=SEQ, labels=True, dtype=torch.bfloat16)
    loaded = load_subject(SUBJECT, request)
    report, _ = traced_call(loaded.model, (loaded.args, loaded.kwargs), resolved)
    kept = Kept.of(report)
    sizes = (kept.parameters, kept.gradients, kept.states, kept.saved, kept.peak)
    cells = [name, f"{kept.trained:,}", *(f"{size / 2**30:.2f}" for size in sizes), kept.phase]
    return f"| {' | '.join(cells)} |"


def resnet(name: str, lora: str | None, target: str, measured: str) -> str:
    """A row of the second table."""
    from torchvision import models

    model = models.resnet50()
    model.fc = nn.Linear(2048, 1)
    kept = Kept.of(analyze(model, spec("16x3x224x224"), lora=lora, target=target))
    images = 16 * 3 * 224 * 224 * 4 if lora else 0  # else the first convolution keeps them
    simulated = (kept.saved + images) / 2**20
    return f"| {name} | {kept.trained:,} | {simulated:,.2f} | {measured} |"


def page() -> str:
    """The whole page."""
    first = "\n".join(llama(name, options) for name, options in RUNS.items())
    second = "\n".join(resnet(name, *given) for name, given in RESNET.items())
    return f"{_HEAD}{first}\n{_BETWEEN}{second}\n{_AFTER}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
