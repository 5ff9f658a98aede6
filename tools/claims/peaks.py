"""Claims about when the peak is, what holds it and how much beside it must stay free."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

import graphmem
from graphmem.allocator import parse_alloc_conf, place
from graphmem.errors import UsageError
from graphmem.largest import MaxBatch
from graphmem.report import Report
from graphmem.schedule import Schedule, Storage
from tools.claims.section import Row, Section, gb, percent, times
from tools.claims.training import (
    A100,
    GPT2,
    RESNET50,
    VIT_B,
    Training,
    backward_done,
    loaded,
    runs,
    trained,
)

_PRECISIONS = ("fp32, GB", "bf16 autocast, GB", "times")
_EXPANDABLE = parse_alloc_conf("expandable_segments:True")
START = 0.1
"""Of backward's operations: what counts as its start."""


def start_of_backward() -> Section:
    """Where the peaks of several trainings are."""
    return Section(
        "The peak is at the start of backward",
        f"Held if less than {START:.0%} of backward's operators have run.",
        "It is there where activations are most of the memory. Else it is in the optimizer's"
        " step, whose temporaries are as large as all parameters (`foreach`); or further on in"
        " backward, as for VGG-16, whose wide linear layers come last and have their gradients"
        " while most activations are still there, or where a convolution takes its workspace; or"
        " in forward, at the loss, while the training loop still holds the last step's logits.",
        ("peak, GB", "phase", "operator", "of backward done"),
        tuple(_moment(*run) for run in runs()),
    )


def _moment(training: Training, report: Report, schedule: Schedule) -> Row:
    done = backward_done(report, schedule)
    peak = report.peak
    backward = peak.phase == "backward"
    share = f"{100 * done:.0f} %" if backward else "-"
    cells = (gb(peak.allocated_bytes), peak.phase, f"`{peak.op}`", share)
    return Row(training.title, cells, backward and done < START)


def turns() -> Section:
    """At which batch something else than the optimizer's states holds the most."""
    cases = (
        ("GPT-2, 128 tokens", GPT2, 128),
        ("GPT-2, 1,024 tokens", GPT2, 1024),
        ("ResNet-50", RESNET50, None),
    )
    return Section(
        "The optimizer dominates at small batches, activations at large ones",
        "Held if AdamW's states hold the most at batch 1, and what is saved for backward at the"
        " largest.",
        "AdamW, fp32, A100-80GB: the largest term at the peak, and from which batch on it is"
        " another one (`graphmem max-batch`). Long sequences leave no small batch.",
        ("largest at batch 1", "turns at batch", "to", "largest batch that fits"),
        tuple(_turn(*case) for case in cases),
    )


def _turn(name: str, subject: str, seq: int | None) -> Row:
    one = trained(subject, 1, seq)[0].breakdown
    first = max(one, key=lambda term: one[term])
    found = _max_batch(subject, seq)
    turned = found.curve.turns
    holds = first == "optimizer_states" and found.curve.points[-1].term == "saved_for_backward"
    at = ", ".join(str(turn.size) for turn in turned) or "-"
    to = ", ".join(_words(turn.to) for turn in turned) or "-"
    return Row(name, (_words(first), at, to, str(found.size)), holds)


def _max_batch(subject: str, seq: int | None) -> MaxBatch:
    model = loaded(subject, 2, seq)
    return graphmem.max_batch(model.model, model.args, model.kwargs, device=A100)


def _words(term: str) -> str:
    return term.replace("_", " ")


def halved() -> Section:
    """Peaks of whole models under autocast beside those in fp32."""
    cases = (
        ("GPT-2, 8 x 1,024 tokens", _whole(GPT2, 8, 1024)),
        ("ResNet-50, batch 64", _whole(RESNET50, 64, None)),
        ("ViT-B/16, batch 64", _whole(VIT_B, 64, None)),
    )
    return Section(
        "Mixed precision halves the memory",
        "Held if the peak under bf16 autocast is 0.4 to 0.6 of that in fp32.",
        "Autocast keeps the parameters, gradients and states in fp32, adds bf16 copies of the"
        " weights, and leaves layer norms, what is added up from block to block, and the loss"
        " of a language model with its logits in fp32.",
        _PRECISIONS,
        tuple(_compared(name, *peaks, 0.4, 0.6) for name, peaks in cases),
    )


def autocast() -> Section:
    """Where autocast takes more than fp32."""
    small, large = "16x8192", "16384x8192"
    cases = (
        ("batch 16, SGD", wide(small, optimizer="sgd")),
        ("batch 16, SGD, 2 micro-batches", wide(small, optimizer="sgd", accumulate=2)),
        ("batch 16, AdamW", wide(small)),
        ("batch 16, inference", wide(small, mode="inference")),
        ("batch 16,384, SGD", wide(large, optimizer="sgd")),
    )
    return Section(
        "Mixed precision can take more than fp32",
        "Held where it does.",
        "4 x `nn.Linear(8192, 8192)` and ReLU. The bf16 copy of a weight stays until backward has"
        " used it (in inference as long as the context), and in backward a weight's bf16 gradient"
        " stands beside the fp32 one that is made of it. At batch 16 there are few activations to"
        " save that much. With AdamW both peaks are in the optimizer's step, where autocast has"
        " no part.",
        _PRECISIONS,
        tuple(_compared(name, *peaks, 1) for name, peaks in cases),
    )


def _compared(name: str, plain: int, mixed: int, above: float, to: float = math.inf) -> Row:
    holds = above * plain < mixed <= to * plain
    return Row(name, (gb(plain), gb(mixed), times(mixed, plain)), holds)


def _whole(subject: str, batch: int, seq: int | None) -> tuple[int, int]:
    plain, mixed = (
        trained(subject, batch, seq, precision=precision)[0] for precision in ("fp32", "amp-bf16")
    )
    return plain.peak.allocated_bytes, mixed.peak.allocated_bytes


def wide(shape: str, **options: Any) -> tuple[int, int]:
    """Peaks of four wide layers in fp32 and under autocast."""
    with torch.device("meta"):
        layers = (layer for _ in range(4) for layer in (nn.Linear(8192, 8192), nn.ReLU()))
        model = nn.Sequential(*layers)
    plain, mixed = (
        graphmem.analyze(model, graphmem.spec(shape), precision=precision, device=A100, **options)
        for precision in ("fp32", "amp-bf16")
    )
    return plain.peak.allocated_bytes, mixed.peak.allocated_bytes


def headroom() -> Section:
    """What of a GPU is not for tensors."""
    return Section(
        "20 % head-room is enough",
        "Held if reserved memory and the CUDA context leave at least 80 % for what is allocated.",
        "*Reserved* are the caching allocator's segments, with what fragmentation leaves free in"
        " them; *device* is that and the most that a CUDA context was seen to take, as `nvidia-smi`"
        " shows. Head-room is the part of it beside the allocated peak; the last number is that"
        " with `expandable_segments:True`. VGG-16's convolutions take workspaces that are larger"
        " than any of its activations. An allocator that comes near the GPU's end gives free"
        " segments back, so that a run may fit all the same: `graphmem analyze --device` simulates"
        " that too.",
        ("allocated, GB", "reserved, GB", "device, GB", "head-room", "expandable"),
        tuple(_headroom(*run) for run in runs()),
    )


def _headroom(training: Training, report: Report, schedule: Schedule) -> Row:
    peak = report.peak
    allocated, reserved = peak.allocated_bytes, peak.reserved_bytes
    if reserved is None or peak.device_bytes is None:
        raise UsageError(f"{training.title}: no GPU is named")
    device = peak.device_bytes[1]
    other = max(place(schedule, _on_gpu, _EXPANDABLE).reserved_bytes) + device - reserved
    needed = (percent(whole - allocated, whole) for whole in (device, other))
    cells = (gb(allocated), gb(reserved), gb(device), *needed)
    return Row(training.title, cells, allocated >= 0.8 * device)


def _on_gpu(storage: Storage) -> bool:
    return not storage.host


SECTIONS = (start_of_backward, turns, halved, autocast, headroom)
