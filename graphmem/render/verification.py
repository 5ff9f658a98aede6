"""A verification as text, markdown or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes
from graphmem.render.framed import framed


def rendered(verification: dict[str, Any], subject: str, kind: str) -> str:
    """The text of a verification.

    Args:
        verification: ``Verification.to_dict()``.
        subject: the name of what was verified.
        kind: ``table``, ``markdown`` or ``json``.
    """

    def sections(style: str) -> Iterator[str]:
        yield _peaks(verification, style)
        yield _verdict(verification)
        if any(row["bytes_at_peak"] for row in verification["explained"]):
            yield _scratch(verification, style)

    return framed(verification, subject, kind, sections)


def _peaks(verification: dict[str, Any], style: str) -> str:
    rows = [
        ("predicted peak", verification["predicted"]["peak_bytes"]),
        ("measured peak", verification["measured"]["peak_bytes"]),
        ("difference", verification["difference"]["peak_bytes"]),
    ]
    return tabulate(
        [(name, f"{nbytes:,}", format_bytes(nbytes)) for name, nbytes in rows],
        headers=("", "bytes", ""),
        tablefmt=style,
        colalign=("left", "right", "right"),
        disable_numparse=True,
    )


def _verdict(verification: dict[str, Any]) -> str:
    difference = verification["difference"]["peak_bytes"]
    unexplained = verification["difference"]["unexplained_bytes"]
    if difference == 0:
        return "The prediction is exact."
    if unexplained == 0:
        return (
            f"The difference of {difference:,} bytes is explained: without what the real kernels "
            "allocate for themselves the peaks are equal."
        )
    return f"{unexplained:,} bytes of the difference are not explained by any operator."


def _scratch(verification: dict[str, Any], style: str) -> str:
    rows = [
        (row["operator"], row["kind"], row["count"], f"{row['bytes_at_peak']:,}")
        for row in verification["explained"]
        if row["bytes_at_peak"]
    ]
    return tabulate(
        rows,
        headers=("operator", "", "times", "bytes at the peak"),
        tablefmt=style,
        colalign=("left", "left", "right", "right"),
        disable_numparse=True,
    )
