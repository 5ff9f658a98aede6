"""Recorded CUDA snapshots of models that are known, each from a simulated fresh process.

Measured is the file's replay through the allocator, which is what
``torch.cuda.max_memory_allocated()`` said: a trace itself records what was asked for, and
not the slack of the blocks. Where a file has no segments, its own reckoning counts.

Known differences:

- lm2700m is the same decoder with an expanded mask kept (2 MiB a block), rotary tables of its
  own in each block, and an AdamW with fewer temporaries.
- linear-grad-hopper is of torch 2.4, whose cuBLASLt took 1 MiB of its own for each product
  with a bias; today it shares cuBLAS's workspace.
- lm2b-xl is the same decoder by another author, who makes masks and rotations with vmap and
  einx: a few tensors of a megabyte are copied where ours are not.
- resnet18 is of a nightly of torch 2.0 on a GPU that is not named, with cuDNN 8 and cuBLAS
  workspaces of 4 MiB; asked are here the installed cuDNN about an A100, and workspaces of
  8.1 MiB. With its own version's workspaces the peak is exact: tests/targets/test_cudnn.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.errors import ModelLoadError
from graphmem.snapshots import load, replay_device
from graphmem.snapshots.peaks import recorded_allocated
from models.decoder import MEDIUM, SIZE_2_7B, SMALL, XL, DecoderConfig, decoder
from models.decoder_training import DecoderAdamW, batches, cross_entropy, training_step
from tools.truth import outcome
from tools.truth.attention import attend
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import TRUTH, Row
from tools.truth.runs import Run, mark, run

FOLDER = TRUTH / "snapshots"

BARS = (
    Bar("423 M decoder, fp32, allocated", outcome.worst, 0.0, "423 M fp32", "allocated"),
    Bar("423 M decoder, bf16 autocast, allocated", outcome.worst, 0.001, "423 M", "allocated"),
    Bar("423 M decoder, fp32, reserved", outcome.worst, 0.01, "423 M fp32", "reserved"),
    Bar("423 M decoder, bf16 autocast, reserved", outcome.worst, 0.01, "423 M", "reserved"),
    Bar("decoders of other sizes, allocated", outcome.worst, 0.005, "decoders", "allocated"),
    Bar("ResNet-18, allocated", outcome.worst, 0.01, "ResNet-18", "allocated"),
)


def takes(row: Row) -> bool:
    """No row: the files lie in their own folder."""
    return False


@dataclass(frozen=True, slots=True)
class Known:
    """A file whose model is known, and what makes the script that it was recorded from."""

    file: str
    group: str
    gpu: str
    script: Callable[[], Callable[[], Any]]

    def run(self) -> Run:
        """Trace the script."""
        return run(self.script(), self.gpu)


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict both peaks of every known file."""
    for known in FILES:
        traced = known.run()
        for name, measured in measured_peaks(known.file).items():
            yield Outcome(
                family="snapshots",
                name=known.file,
                group=known.group,
                metric=f"max_memory_{name}",
                measured=measured,
                predicted=_peak(traced, name),
            )
    for file, why in UNKNOWN.items():
        for name, measured in measured_peaks(file).items():
            yield Outcome("snapshots", file, f"max_memory_{name}", measured, skipped=why)


def _peak(traced: Run, name: str) -> int | None:
    if name == "allocated":
        return traced.peak()
    return traced.reserved(-1)


def measured_peaks(file: str) -> dict[str, int]:
    """The peaks of the first device with events."""
    snapshot = load(FOLDER / f"{file}.pickle")
    trace = next(device for device in snapshot.devices if device.entries)
    try:
        replay = replay_device(trace, snapshot.settings)
    except ModelLoadError:  # it has no segments to compare with
        return {"allocated": recorded_allocated(trace, snapshot.settings)}
    return {
        "allocated": replay.replayed_allocated_bytes,
        "reserved": replay.replayed_reserved_bytes,
    }


def _meta(config: DecoderConfig) -> nn.Module:
    with torch.device("meta"):
        return decoder(config)[0]


def _ids(config: DecoderConfig, batch: int = 4, count: int = 1) -> tuple[Tensor, Tensor]:
    return batches(config.vocab, count, batch, config.context)


def _autocast(is_on: bool) -> Any:
    return torch.autocast("cuda", dtype=torch.bfloat16, enabled=is_on)


def _inference(context: int, autocast: bool) -> Callable[[], None]:
    config = dataclasses.replace(MEDIUM, context=context)
    model = _meta(config)

    def script() -> None:
        warm_up, ids = _ids(config, count=5)[0], _ids(config)[0]
        with torch.inference_mode(), _autocast(autocast):
            for row in warm_up:
                model(row)
            mark()
            output = model(ids[0])
            mark()
        assert output.dim() == 3  # alive until here

    return script


def _training(context: int, autocast: bool) -> Callable[[], None]:
    config = dataclasses.replace(MEDIUM, context=context)
    model = _meta(config)
    optimizer = DecoderAdamW(model.parameters())
    dtype = torch.bfloat16 if autocast else None

    def script() -> None:
        warm_up, measured = _ids(config, count=5), _ids(config)
        for ids, targets in zip(*warm_up, strict=True):  # as in training_loop
            with _autocast(autocast):
                output = model(ids)
                loss = cross_entropy(output, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        del output, loss
        mark()
        output, loss = training_step(model, optimizer, measured[0][0], measured[1][0], dtype)
        mark()
        assert output.dim() == 3  # both alive until here
        assert loss.dim() == 0

    return script


def _kept_forward(config: DecoderConfig, autocast: bool = False, warm: bool = False) -> Any:
    """Forwards that keep their graph until the output is dropped; ``warm``: one before."""
    model = _meta(config)

    def once(ids: Tensor) -> None:
        with _autocast(autocast):
            output = model(ids)
        assert output.dim() == 3

    def script() -> None:
        ids = _ids(config)[0][0]
        if warm:
            once(ids)
        mark()
        once(ids)
        mark()

    return script


def _full_step() -> Callable[[], None]:
    """One step from the weights alone."""
    model = _meta(SIZE_2_7B)
    optimizer = DecoderAdamW(model.parameters())

    def script() -> None:
        (ids,), (targets,) = _ids(SIZE_2_7B)
        mark()
        output, loss = training_step(model, optimizer, ids, targets)
        mark()
        assert output.dim() == 3
        assert loss.dim() == 0

    return script


def _accumulating() -> Callable[[], None]:
    """Forward and backward again and again: gradients add up, and the last logits stay."""
    config = dataclasses.replace(SMALL, context=256)
    model = _meta(config)

    def script() -> None:
        (ids,), (targets,) = _ids(config, batch=32)
        for _ in range(2):
            output = model(ids)
            cross_entropy(output, targets).backward()
        mark()
        output = model(ids)
        cross_entropy(output, targets).backward()
        mark()

    return script


def _toy_attention() -> None:
    q, k, v = (torch.randn(8, 4096, 16, requires_grad=True) for _ in range(3))
    mark()
    attend(q, k, v).mean().backward()
    mark()


def _linear() -> None:
    model = nn.Linear(10_000, 50_000)
    mark()
    for _ in range(3):
        x = torch.rand(5_000, 10_000)
        y = model(x)
    mark()
    assert y.dim() == 2  # alive until here


def _resnet18() -> Callable[[], None]:
    from torchvision.models import resnet18

    with torch.device("meta"):
        model = resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def script() -> None:
        images, labels = torch.rand(8, 3, 224, 224), torch.randint(1000, (8,))
        mark()
        optimizer.zero_grad()
        outputs = model(images)
        loss = nn.functional.cross_entropy(outputs, labels)
        loss.backward()
        optimizer.step()
        mark()

    return script


A100, H100 = "A100 40 GB (inferred)", "H100 80GB"

FILES = (
    Known("lm423m-ctx128-inference-fp32", "423 M fp32", A100, partial(_inference, 128, False)),
    Known("lm423m-ctx128-train-fp32", "423 M fp32", A100, partial(_training, 128, False)),
    Known("lm423m-ctx512-inference-bf16-autocast", "423 M", A100, partial(_inference, 512, True)),
    Known("lm423m-ctx512-train-bf16-autocast", "423 M", A100, partial(_training, 512, True)),
    Known("lm2700m-ctx128-forward-fp32", "decoders", H100, partial(_kept_forward, SIZE_2_7B)),
    Known("lm2700m-ctx128-fullstep-fp32", "decoders", H100, _full_step),
    Known("lm2b-xl-ctx128-forward-fp32", "decoders", A100, partial(_kept_forward, XL, warm=True)),
    Known(
        "lm2b-xl-ctx256-forward-bf16-autocast",
        "decoders",
        A100,
        partial(_kept_forward, dataclasses.replace(XL, context=256), autocast=True, warm=True),
    ),
    Known("lm-768x12-ctx256-fwd-bwd", "decoders", A100, _accumulating),
    Known("toy-attention-cold-start", "attention", A100, lambda: _toy_attention),
    Known("linear-grad-hopper", "linear", H100, lambda: _linear),
    Known("resnet18-b8-train-fp32-sgdm", "ResNet-18", A100, _resnet18),
)

UNKNOWN = {
    "opt125m-forward-only-cold-start": "the lengths of its texts are not known",
    "tinyllama-int8-lora-train": "bitsandbytes' int8 kernels are not modelled",
    "nca-inference-a": "its model is not known",
    "nca-inference-c-segment-free": "its model is not known",
    "nca2d-conv-workspaces": "its model is not known",
    "nca3d-batchnorm-forward": "its model is not known",
    "llama-ten-streams": "its script is not known",
    "gnn-expandable-segments-oom": "its model is not known",
}
