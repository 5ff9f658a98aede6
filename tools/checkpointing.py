"""Writes docs/checkpointing.md: what checkpoints save, simulated for four models.

python tools/checkpointing.py            needs the extras hf, timm and vision, and libcudnn
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

import graphmem
from graphmem.analysis import traced_call
from graphmem.report import Report
from graphmem.resolve import make_options
from graphmem.schedule import Category, Phase, Schedule
from graphmem.sources import InputRequest, LoadedSubject, load_subject
from graphmem.trace.run import model_dtype

PAGE = Path(__file__).resolve().parent.parent / "docs" / "checkpointing.md"

_WEIGHTS = frozenset(
    {
        *(Category.PARAMETERS, Category.BUFFERS, Category.GRADIENTS),
        *(Category.OPTIMIZER_STATES, Category.WORKSPACES),
    }
)


@dataclass(frozen=True, slots=True)
class Run:
    """A model in training, and which of its modules are the blocks."""

    title: str
    subject: str
    batch: int
    seq: int | None
    blocks: str
    keep: str
    options: dict[str, Any]


RUNS = (
    Run(
        "GPT-2 (124 M), batch 8 of 1,024 tokens, bf16 autocast, AdamW, A100-80GB",
        "hf:models/gpt2.json",
        *(8, 1024, "transformer.h.*", "aten.addmm"),
        {"precision": "amp-bf16", "device": "A100-80GB"},
    ),
    Run(
        "Llama-3-8B, batch 4 of 2,048 tokens, bf16, SGD, H200",
        "hf:models/llama3_8b.json",
        *(4, 2048, "model.layers.*", "aten.mm"),
        {"precision": "bf16", "optimizer": "sgd", "device": "H200"},
    ),
    Run(
        "ViT-L/16 (timm), batch 64, bf16 autocast, AdamW, A100-80GB",
        "timm:vit_large_patch16_224",
        *(64, None, "blocks.*", "aten.addmm"),
        {"precision": "amp-bf16", "device": "A100-80GB"},
    ),
    Run(
        "ResNet-50 (torchvision), batch 64, fp32, SGD with momentum, A100-80GB",
        "torchvision:resnet50",
        *(64, None, "layer*.*", "aten.convolution"),
        {"optimizer": "sgd+momentum", "device": "A100-80GB"},
    ),
)

_NO_TECHNIQUE: dict[str, Any] = {}


def ways(run: Run) -> dict[str, dict[str, Any]]:
    """The rows of a model's table: what is done, and its options."""
    every = {"checkpoint": run.blocks}
    return {
        "no checkpoints": _NO_TECHNIQUE,
        f"`--checkpoint '{run.blocks}'`": every,
        "the same, `--checkpoint-reentrant`": {**every, "checkpoint_reentrant": True},
        "every second block, `--checkpoint-every 2`": {**every, "checkpoint_every": 2},
        f"selective, `--checkpoint-save {run.keep}`": {**every, "checkpoint_save": run.keep},
        "the whole model as one, `--checkpoint '(top level)'`": {"checkpoint": "(top level)"},
    }


def held_after_forward(schedule: Schedule) -> int:
    """What is held when the last step's forward ends, beside weights and what belongs to them."""
    last = max(
        op.index
        for op in schedule.operations
        if op.step == schedule.steps and op.phase is Phase.FORWARD
    )
    return sum(
        s.nbytes
        for s in schedule.storages
        if s.born <= last
        and (s.freed is None or s.freed > last)
        and s.category not in _WEIGHTS
        and not s.host
    )


def simulated(subject: LoadedSubject, options: dict[str, Any]) -> tuple[Report, Schedule]:
    """A run of a subject."""
    resolved = make_options(**options)
    call = (subject.args, subject.kwargs)
    return traced_call(subject.model, call, resolved, optimizer=resolved.optimizer)


def loaded(run: Run) -> LoadedSubject:
    """The model, of transformers without its cache of keys and values, on meta."""
    dtype = model_dtype(make_options(**run.options))
    request = InputRequest(batch=run.batch, seq=run.seq, dtype=dtype, labels=True)
    subject = load_subject(run.subject, request)
    config: Any = getattr(subject.model, "config", None)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return subject


def table(run: Run) -> Iterator[str]:
    """A model's lines."""
    yield from (f"## {run.title}", "")
    yield "| | activations after forward, MiB | saving | peak, MiB | saving | at | recomputed |"
    yield "|---|--:|--:|--:|--:|---|--:|"
    subject = loaded(run)
    first: tuple[int, int] | None = None
    for name, options in ways(run).items():
        report, schedule = simulated(subject, {**run.options, **options})
        numbers = held_after_forward(schedule), report.peak.allocated_bytes
        first = first or numbers
        yield row(name, numbers, first, report)
        print(run.title, name, *numbers, file=sys.stderr)
    yield ""


def row(name: str, numbers: tuple[int, int], first: tuple[int, int], report: Report) -> str:
    """One way of running a model."""
    cells = [name]
    for value, before in zip(numbers, first, strict=True):
        cells += [f"{value / 2**20:,.0f}", saving(value, before)]
    found = report.recomputation
    again = 0.0 if found is None or not found.flops else found.recomputed_flops / found.flops
    at = f"{report.peak.phase}, `{report.peak.op}`"
    return "| " + " | ".join((*cells, at, f"{100 * again:.1f} %")) + " |"


def saving(value: int, before: int) -> str:
    """A part in percent of what it is without checkpoints."""
    tenths = round(1000 * (before - value) / before)
    return "" if value == before else f"{tenths / 10:.1f} %"


def small_layers() -> nn.Module:
    """Sixteen layers, each of one operator."""
    return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16)))


def nothing_saved() -> Iterator[str]:
    """Two ways of checkpointing that save nothing, in the report's own words."""
    yield from ("## Checkpoints that save nothing", "")
    yield "16 x `nn.Linear(1024, 1024)` on a batch of 4,096, fp32, SGD:"
    yield ""
    inputs = graphmem.spec("4096x1024")
    plain = graphmem.analyze(small_layers(), inputs, optimizer="sgd")
    yield f"- no checkpoints: a peak of {plain.peak.allocated_bytes / 2**20:,.1f} MiB."
    for name, pattern in (
        ("each layer, `--checkpoint '*'`", "*"),
        ("all as one, `--checkpoint '(top level)'`", "(top level)"),
    ):
        report = graphmem.analyze(small_layers(), inputs, optimizer="sgd", checkpoint=pattern)
        why = next(line for line in said(report) if "saves nothing" in line)
        peak = report.peak.allocated_bytes / 2**20
        yield f"- {name}: a peak of {peak:,.1f} MiB. The report: {why}."


def said(report: Report) -> list[str]:
    """What a report says of checkpoints, in markdown."""
    from graphmem.render.techniques import checkpoints

    return [text for _, text in checkpoints(report, lambda name: f"`{name}`")]


INTRODUCTION = """# What checkpoints save

Two steps of training simulated, with every block checkpointed and without. *Activations after
forward* is what is held when the second step's forward ends, beside parameters, buffers, gradients,
optimizer states and workspaces (with the outputs, the loss and the inputs). The *peak* is what
`torch.cuda.max_memory_allocated()` would show. *Recomputed* is the part of the step's
floating-point operations, by the formulas of `torch.utils.flop_counter`, that backward computes
once more. Models of transformers run without their cache of keys and values in all rows.

Written by `tools/checkpointing.py`."""


def page() -> str:
    """The whole page."""
    lines = [*INTRODUCTION.splitlines(), ""]
    for run in RUNS:
        lines += table(run)
    lines += nothing_saved()
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
