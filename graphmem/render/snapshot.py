"""A replayed snapshot as text or JSON."""

from __future__ import annotations

import json
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes
from graphmem.errors import UsageError
from graphmem.render.columns import BYTES_WIDTH, GAP, NOTHING, size_cell
from graphmem.render.grid import grid, screen_width
from graphmem.render.sites import where

MOST_MISMATCHES = 10


def rendered(result: dict[str, Any], name: str, kind: str, holders: int = 10) -> str:
    """The text of a replay.

    Args:
        result: ``{devices: [{device, events, recorded, replayed, mismatches, peak, holders,
            call_sites, fragmentation}]}``.
        name: the file's.
        kind: ``table`` or ``json``.
        holders: how many call sites and blocks to list in a table.

    Raises:
        UsageError: for a negative number of holders.
    """
    if holders < 0:
        raise UsageError(f"holders: {holders} is not 0 or more")
    if kind == "json":
        return json.dumps(result, indent=2) + "\n"
    width = screen_width()
    sections = [name]
    for device in result["devices"]:
        sections += _device(device, width, holders)
    return "\n\n".join(sections) + "\n"


def _device(device: dict[str, Any], width: int, holders: int) -> list[str]:
    parts = [_peaks(device), _verdict(device)]
    if holders and device["call_sites"]:
        parts += [f"{_moment(device)}, by call site", _sites(device, width, holders)]
    if holders and device["holders"]:
        parts += ["Largest blocks at the peak, and their events", _blocks(device, width, holders)]
    if device["fragmentation"] is not None:
        parts += ["Reserved bytes at the peak", _fragmentation(device["fragmentation"])]
    return parts


def _peaks(device: dict[str, Any]) -> str:
    rows = [
        (title, *(_both(device[key][f"{what}_bytes"]) for what in ("allocated", "reserved")))
        for key, title in (
            ("recorded", "recorded"),
            ("replayed", "replayed"),
            ("under_other_settings", "under other settings"),
        )
        if device.get(key) is not None
    ]
    return tabulate(
        rows,
        headers=(f"device {device['device']}", "peak allocated", "peak reserved"),
        tablefmt="simple",
        colalign=("left", "right", "right"),
        disable_numparse=True,
    )


def _both(nbytes: int | None) -> str:
    return "not recorded" if nbytes is None else f"{nbytes:,} ({format_bytes(nbytes)})"


def _verdict(device: dict[str, Any]) -> str:
    if device["replayed"] is None:
        return f"{device['events']:,} events. No segments were recorded: nothing to replay."
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


# -- the peak


def _moment(device: dict[str, Any]) -> str:
    peak = device["peak"]
    event = "before any event" if peak["event"] is None else f"event {peak['event']:,}"
    return f"{format_bytes(peak['allocated_bytes'])} allocated at the peak, {event}"


def _sites(device: dict[str, Any], width: int, most: int) -> str:
    sites, whole = device["call_sites"], device["peak"]["allocated_bytes"]
    counts = max(len("blocks"), *(len(f"{site['blocks']:,}") for site in sites))
    room = width - BYTES_WIDTH - counts - 2 * GAP
    rows = [
        (
            format_bytes(site["bytes"]),
            f"{site['blocks']:,}",
            where(site, room, older=site["older"]),
        )
        for site in sites[:most]
    ]
    others = sites[most:]
    if others:
        rest = sum(site["bytes"] for site in others), sum(site["blocks"] for site in others)
        places = "1 other place" if len(others) == 1 else f"{len(others):,} other places"
        rows.append((format_bytes(rest[0]), f"{rest[1]:,}", places))
    total = (format_bytes(whole), f"{sum(site['blocks'] for site in sites):,}", "total")
    return "\n".join(grid(("bytes", "blocks", "from"), rows, total, ("right", "right", "left")))


def _blocks(device: dict[str, Any], width: int, most: int) -> str:
    shown = device["holders"][:most]
    lives = [(_event(holder["born"]), _event(holder["freed"])) for holder in shown]
    headers = ("bytes", "born", "freed", "from")
    taken = [max(map(len, texts)) for texts in zip(headers[1:3], *lives, strict=True)]
    room = width - BYTES_WIDTH - sum(taken) - 3 * GAP
    rows = [
        (format_bytes(holder["bytes"]), *life, where(holder, room, older=holder["born"] is None))
        for holder, life in zip(shown, lives, strict=True)
    ]
    rest = device["peak"]["allocated_bytes"] - sum(holder["bytes"] for holder in shown)
    total = (format_bytes(rest), "", "", "everything else")
    return "\n".join(grid(headers, rows, total, ("right", "right", "right", "left")))


def _event(index: int | None) -> str:
    return NOTHING if index is None else f"{index:,}"


_ROOMS = (
    ("requested", "requested_bytes"),
    ("slack in blocks", "slack_bytes"),
    ("freed, waits for a stream", "pending_bytes"),
    ("free in used segments", "free_in_split_segments_bytes"),
    ("free segments", "free_segments_bytes"),
)


def _fragmentation(pools: dict[str, Any]) -> str:
    names = ("small", "large", "total")
    rows = [
        (title, *(size_cell(pools[name][key]) for name in names))
        for title, key in _ROOMS
        if pools["total"][key]
    ]
    total = ("reserved", *(size_cell(pools[name]["reserved_bytes"]) for name in names))
    headers = ("", "small pool", "large pool", "both")
    lines = grid(headers, rows, total, ("left", "right", "right", "right"))
    largest = format_bytes(pools["total"]["largest_free_block_bytes"])
    return "\n".join([*lines, "", f"The largest free block has {largest}."])
