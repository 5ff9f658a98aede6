"""Sentences about checkpoints and what is offloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphmem.as_text import format_bytes
from graphmem.report import RecomputationItem, Report

Mark = Callable[[str], str]


def checkpoints(report: Report, mark: Mark) -> Iterator[tuple[str, str]]:
    """What checkpoints compute again, what they remake and keep, and if that saves nothing, why."""
    found = report.recomputation
    if found is None:
        return
    count = len(found.modules)
    modules = f"{count} module{'s' if count != 1 else ''}"
    again = "none of the step's FLOPs is recomputed"
    if found.recomputed_flops:
        share = 100 * found.recomputed_flops / found.flops
        again = f"{share:.1f} % of the step's FLOPs are recomputation"
    yield "Recompute", f"{modules}; {again}"
    if found.remade_bytes:
        remade, at_once, kept = map(
            format_bytes, (found.remade_bytes, found.at_once_bytes, found.kept_bytes)
        )
        yield (
            "Recompute",
            f"{remade} are not kept from forward to backward but made anew, {at_once} of them at "
            f"once (of {mark(found.largest or '')}); {kept} are kept only for that",
        )
    if found.saved_bytes <= 0:
        yield "Recompute", f"saves nothing: {_why(found, mark)}"


def _why(found: RecomputationItem, mark: Mark) -> str:
    if not found.remade_bytes:
        return (
            "nothing is made anew, as all that these modules save for backward is what they are "
            "given, and their checkpoints keep that too; checkpoint larger parts"
        )
    if found.at_once_bytes == found.remade_bytes:
        return (
            f"the recomputation of {mark(found.largest or '')} holds at once all that it spared "
            "forward; checkpoint smaller parts, one after another"
        )
    return (
        "what a recomputation holds at once and what is kept for it are together as much as is "
        "made anew; checkpoint parts that make more and are given less"
    )


def host(report: Report) -> Iterator[tuple[str, str]]:
    """What lies in the host's memory."""
    if report.host is None:
        return
    text = f"{format_bytes(report.host.peak_bytes)} of tensors"
    if report.host.pinned_bytes is not None:
        text += f", {format_bytes(report.host.pinned_bytes)} of pinned blocks for them"
    yield "Host", text
