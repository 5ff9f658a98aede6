"""Techniques: what is written is what is simulated, and no bound is above what is needed."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import graphmem
from graphmem.commands.arguments import add_run, add_subject, options_of
from graphmem.largest.memory import requested_bytes
from graphmem.options import Options, Precision
from graphmem.plans import search
from graphmem.plans.api import _run
from graphmem.plans.bound import Bound
from graphmem.plans.candidates import techniques
from graphmem.plans.candidates.ranks import under_ddp
from graphmem.plans.technique import Loses, Run, Technique
from graphmem.resolve import make_options
from graphmem.schedule import Schedule
from graphmem.sources.packages import missing
from graphmem.trace.inputs import as_call
from graphmem.trace.lazy import materialized
from graphmem.trace.run import trace_model
from tests.plans.test_plan import Stack

ROWS = 512


def _traced(options: Options) -> Schedule:
    model, call = Stack(), as_call(graphmem.spec(f"{ROWS}x64"), None)
    with materialized(model, call):
        return trace_model(model, call, options, None, options.optimizer).schedule


@pytest.fixture(scope="module")
def traced() -> Callable[[Options], Schedule]:
    known: dict[Options, Schedule] = {}

    def once(options: Options) -> Schedule:
        if options not in known:
            known[options] = _traced(options)
        return known[options]

    return once


BASES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "with fp32 copies": {"precision": "bf16", "master_weights": True},
    "gradients filled with zeros": {"set_to_none": False},
    "Adafactor": {"optimizer": "adafactor"},
    "on a T4": {"device": "T4"},
}

_FLAGS: dict[str, list[str]] = {
    "bf16": ["--precision", "bf16"],
    "with fp32 copies": ["--precision", "bf16", "--master-weights"],
    "gradients filled with zeros": ["--zero-grad", "zero"],
    "Adafactor": ["--optimizer", "adafactor"],
    "on a T4": ["--device", "T4"],
}


def _parsed(text: list[str]) -> Options:
    parser = argparse.ArgumentParser()
    add_subject(parser)
    add_run(parser)
    return options_of(parser.parse_args(["file.py:model", *text]), "cuda")


@pytest.mark.parametrize("gpus", [None, 1, 4])
@pytest.mark.parametrize("name", BASES)
def test_the_flags_are_those_of_the_change(
    name: str, gpus: int | None, traced: Callable[[Options], Schedule]
) -> None:
    options = make_options(**BASES[name])
    schedule = traced(options)
    options = replace(options, **under_ddp(options, gpus or 1))
    run = _run(schedule, options, gpus, ROWS)
    found = techniques(run)
    assert found
    for technique in found:
        if search._changed(options, [technique]) is None:
            continue
        words = shlex.split(technique.flag)
        given = _parsed([*_FLAGS.get(name, []), *words])
        changed = replace(options, **technique.change)
        if technique.apart:  # peft's settings are put in form
            changed = make_options(**changed.to_dict())
        if gpus == 4 and "--ranks" not in words:
            changed = replace(changed, ddp=False, ranks=None)
        if "--zero 1" in technique.flag:
            changed = replace(changed, ddp=False)
        assert given == changed, technique.name


def test_no_bound_is_above_what_is_needed(traced: Callable[[Options], Schedule]) -> None:
    options = make_options()
    run = _run(traced(options), options, None, ROWS)
    scopes = [t.scope for t in techniques(run) if t.scope]
    bound = Bound(run.schedule, scopes)
    seen = 0
    for technique in techniques(run):
        if technique.micro_batches > 1 or technique.name.startswith("tensor"):
            continue
        if technique.needs is not None and missing(technique.needs) is not None:
            continue
        schedule = traced(replace(options, **technique.change))
        seen += 1
        assert bound.bytes_of([technique]) <= requested_bytes(schedule), technique.name
    assert seen > 15


def test_the_losses_come_in_the_order_of_the_issue() -> None:
    assert [loss.words for loss in sorted(Loses)] == [
        "nothing",
        "recomputation",
        "transfer",
        "precision",
        "another optimizer",
        "fewer weights trained",
        "more GPUs",
    ]


@pytest.fixture(scope="module")
def run(traced: Callable[[Options], Schedule]) -> Run:
    options = make_options()
    return _run(traced(options), options, None, ROWS)


def _named(run: Run, name: str) -> Technique:
    return next(t for t in techniques(run) if t.name == name)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("LoRA", "QLoRA", False),  # one family
        ("LoRA", "upper 3 blocks trained", False),  # LoRA freezes all
        ("checkpoint all but products", "checkpoint every block", False),
        ("ZeRO 2 over 2 GPUs", "FSDP2 over 2 GPUs", False),
        ("fused optimizer", "8-bit AdamW", False),
        ("LoRA", "checkpoint every block", True),
        ("bf16 with fp32 copies", "all in bf16", False),
    ],
)
def test_what_goes_together(run: Run, one: str, other: str, together: bool) -> None:
    pair = (_named(run, one), _named(run, other))
    possible = search._go_together(*pair)
    assert (possible and search._changed(run.options, pair) is not None) is together


def test_what_a_policy_keeps_are_the_products_of_the_blocks(run: Run) -> None:
    selective = _named(run, "checkpoint all but products")
    assert selective.change["checkpoint_save"] == "aten.addmm"
    assert selective.change["checkpoint"] == "layers.*"


def test_lora_is_of_the_linear_layers_in_the_blocks(run: Run) -> None:
    assert _named(run, "LoRA").change["lora"] == "r=16,alpha=16,targets=up+down"


def test_a_gpu_without_bf16_has_autocast_to_fp16(
    traced: Callable[[Options], Schedule],
) -> None:
    options = make_options(device="T4")
    found = techniques(_run(traced(options), options, 1, None))
    precisions = {t.change["precision"] for t in found if "precision" in t.change}
    assert precisions == {Precision.AMP_FP16}
