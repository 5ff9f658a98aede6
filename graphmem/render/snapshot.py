"""A replayed snapshot as text or JSON."""

from __future__ import annotations

import json
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes

MOST_MISMATCHES = 10


def rendered(result: dict[str, Any], name: str, kind: str) -> str:
    """The text of a replay.

    Args:
        result: ``{devices: [{device, events, recorded, replayed, mismatches}]}``.
        name: the file's.
        kind: ``table`` or ``json``.
    """
    if kind == "json":
        return json.dumps(result, indent=2) + "\n"
    return "\n\n".join([name, *map(_device, result["devices"])]) + "\n"


def _device(device: dict[str, Any]) -> str:
    rows = [
        (title, *(_both(device[key][f"{what}_bytes"]) for what in ("allocated", "reserved")))
        for key, title in (
            ("recorded", "recorded"),
            ("replayed", "replayed"),
            ("under_other_settings", "under other settings"),
        )
        if key in device
    ]
    table = tabulate(
        rows,
        headers=(f"device {device['device']}", "peak allocated", "peak reserved"),
        tablefmt="simple",
        colalign=("left", "right", "right"),
        disable_numparse=True,
    )
    return f"{table}\n\n{_verdict(device)}"


def _both(nbytes: int) -> str:
    return f"{nbytes:,} ({format_bytes(nbytes)})"


def _verdict(device: dict[str, Any]) -> str:
    mismatches = device["mismatches"]
    if not mismatches:
        return f"{device['events']:,} events replayed: every decision and address is the same."
    shown = [
        f"  event {m['event']}: {m['kind']}, {m['size']:,} bytes: {m['difference']}"
        for m in mismatches[:MOST_MISMATCHES]
    ]
    more = len(mismatches) - len(shown)
    tail = [f"  and {more} more"] if more else []
    head = f"{device['events']:,} events replayed, {len(mismatches)} differences:"
    return "\n".join([head, *shown, *tail])
