"""The known GPUs as a table or JSON."""

from __future__ import annotations

import json
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes

_HEADERS = ("name", "kind", "architecture", "capacity", "context")
_NOTES = """\
capacity: what PyTorch reports as the GPU's memory
context: what a process holds besides PyTorch's allocator, in public reports
* not measured on this model: the range of its architecture, or of all GPUs"""


def rendered(result: dict[str, Any], kind: str) -> str:
    """The text of a list of GPUs, at most 80 characters wide.

    Args:
        result: ``{devices: [{name, kind, architecture, capacity_bytes, context_bytes,
            context_source, ...}]}``.
        kind: ``table`` or ``json``.
    """
    if kind == "json":
        return json.dumps(result, indent=2) + "\n"
    table = tabulate(
        [_row(gpu) for gpu in result["devices"]],
        headers=_HEADERS,
        tablefmt="simple",
        colalign=("left", "left", "left", "right", "left"),
        disable_numparse=True,
    )
    lines = (line.rstrip() for line in table.split("\n"))
    return "\n".join((*lines, "", _NOTES, ""))


def _row(gpu: dict[str, Any]) -> tuple[str, ...]:
    mark = "" if gpu["context_source"] == "measured" else " *"
    return (
        gpu["name"],
        gpu["kind"],
        gpu["architecture"],
        format_bytes(gpu["capacity_bytes"]),
        _range(**gpu["context_bytes"]) + mark,
    )


def _range(low: int, high: int) -> str:
    """Two sizes of whole MiB: ``512 to 531 MiB``, and ``712 MiB`` where they are the same."""
    least, most = (format_bytes(size).replace(".00", "") for size in (low, high))
    return most if low == high else f"{least.split()[0]} to {most}"
