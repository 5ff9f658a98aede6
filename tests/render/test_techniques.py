"""Tests of graphmem.render.techniques: sentences on checkpoints and the host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphmem.render.techniques import checkpoints, host
from graphmem.report import HostItem, RecomputationItem
from tests.render.samples import inference_report

MIB = 2**20
FOUND = RecomputationItem(
    modules=("h.0", "h.1"),
    count=2,
    flops=400,
    recomputed_flops=90,
    remade_bytes=6 * MIB,
    at_once_bytes=3 * MIB,
    largest="h.1",
    kept_bytes=MIB,
    saved_bytes=2 * MIB,
)


def said(found: RecomputationItem | None) -> list[str]:
    report = replace(inference_report(), recomputation=found)
    return [text for _, text in checkpoints(report, lambda name: f"`{name}`")]


def test_what_is_recomputed_is_told_in_two_sentences() -> None:
    assert said(FOUND) == [
        "2 modules; 22.5 % of the step's FLOPs are recomputation",  # 90 / 400
        "6.00 MiB are not kept from forward to backward but made anew, 3.00 MiB of them at once "
        "(of `h.1`); 1.00 MiB are kept only for that",
    ]


def test_nothing_is_said_without_checkpoints() -> None:
    assert said(None) == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (replace(FOUND, remade_bytes=0, saved_bytes=0), "nothing is made anew, as all"),
        (
            replace(FOUND, at_once_bytes=6 * MIB, saved_bytes=-MIB),
            "the recomputation of `h.1` holds at once all that it spared forward",
        ),
        (
            replace(FOUND, kept_bytes=3 * MIB, saved_bytes=0),
            "what a recomputation holds at once and what is kept for it are together as much",
        ),
    ],
)
def test_checkpoints_that_save_nothing_say_why(found: RecomputationItem, why: str) -> None:
    assert said(found)[-1].startswith(f"saves nothing: {why}")


def test_a_step_without_products_has_no_share() -> None:
    assert (
        said(replace(FOUND, recomputed_flops=0))[0]
        == "2 modules; none of the step's FLOPs is recomputed"
    )


def test_the_host_is_told_with_its_pinned_blocks() -> None:
    report = replace(inference_report(), host=HostItem(3 * MIB, None))
    assert list(host(report)) == [("Host", "3.00 MiB of tensors")]
    pinned = replace(report, host=HostItem(3 * MIB, 4 * MIB))
    assert list(host(pinned)) == [
        ("Host", "3.00 MiB of tensors, 4.00 MiB of pinned blocks for them")
    ]
    assert list(host(inference_report())) == []
