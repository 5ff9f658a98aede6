"""Rows that no family predicts, each with the reason why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row

BARS: Sequence[Bar] = ()

REASONS = {
    "huggingface/transformers docs": "torch 1.10, and the optimizer that transformers had in 2022",
    "pytorch/torchtitan": "ranks of FSDP with torchtitan's own selective checkpoints, and the "
    "buffers of streams, reserved",
}


def takes(row: Row) -> bool:
    """Rows of a source in ``REASONS``."""
    return any(row.source.startswith(source) for source in REASONS)


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Skip every row."""
    for row in rows:
        reason = next(why for source, why in REASONS.items() if row.source.startswith(source))
        yield outcome.of("others", row, skipped=reason)
