"""A diff in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphmem.as_text import format_bytes, format_share
from graphmem.diffs.groups import concentrated
from graphmem.diffs.items import Change, Difference, FitChange, LayerChange, Status
from graphmem.diffs.tree import TOP

_MOST_TIMES = 99
"""A growth by more than so many times is not told exactly: what was before is next to nothing."""


def summary(
    totals: Mapping[str, Change],
    breakdown: Mapping[str, Change],
    layers: Sequence[LayerChange],
    fits: Sequence[FitChange],
    differences: Sequence[Difference],
) -> str:
    """``Peak grows by 1.20 GiB (+8.1%) to 16.00 GiB, mostly ...; it still fits on L4``."""
    allocated = totals["allocated_bytes"]
    reasons = [
        _mostly(breakdown, allocated.change),
        _where(layers, allocated.change),
    ]
    first = ", ".join(filter(None, (_peak(totals), *reasons)))
    parts = [first, *filter(None, map(_fit, fits)), _unlike(differences)]
    return "; ".join(filter(None, parts))


def percent(change: Change) -> str:
    """``+8.1%``, empty where there was nothing, or nothing changed."""
    if not change.before or not change.change:
        return ""
    sign = "+" if change.change > 0 else "-"
    if abs(change.change) > _MOST_TIMES * change.before:
        return f">{_MOST_TIMES * 100}%"
    return f"{sign}{format_share(abs(change.change), change.before)}"


def _peak(totals: Mapping[str, Change]) -> str:
    allocated, reserved = totals["allocated_bytes"], totals["reserved_bytes"]
    now = format_bytes(allocated.after or 0)
    if allocated.change:
        return f"Peak {_grows(allocated)} to {now}"
    text = f"Peak is unchanged at {now}"
    if None not in (reserved.before, reserved.after) and reserved.change:
        text += f", but reserved memory {_grows(reserved)} to {format_bytes(reserved.after or 0)}"
    return text


def _grows(change: Change) -> str:
    word = "grows" if change.change > 0 else "shrinks"
    share = percent(change)
    return f"{word} by {format_bytes(abs(change.change))}" + (f" ({share})" if share else "")


def _mostly(breakdown: Mapping[str, Change], whole: int) -> str:
    """The category that has half of the change or more, else the two that have most."""
    sign = 1 if whole > 0 else -1
    along = [(c.change * sign, name) for name, c in breakdown.items() if c.change * sign > 0]
    along.sort(key=lambda item: -item[0])
    if not along or whole == 0:
        return ""
    enough = 1 if 2 * along[0][0] >= abs(whole) else 2
    texts = [f"{name.replace('_', ' ')} ({_signed(size * sign)})" for size, name in along[:enough]]
    return "mostly " + " and ".join(texts)


def _where(layers: Sequence[LayerChange], whole: int) -> str:
    changes = {
        layer.module: layer.live.change for layer in layers if layer.status is not Status.GONE
    }
    for layer in layers:
        if layer.status is Status.GONE:
            changes[layer.module] = changes.get(layer.module, 0) + layer.live.change
    found = concentrated(changes, whole)
    texts = [
        f"{'the top level' if label == TOP else label} ({_signed(size)})" for label, size in found
    ]
    return f"mostly in {' and '.join(texts)}" if texts else ""


def _signed(nbytes: int) -> str:
    return format_bytes(nbytes, signed=True)


def _fit(fit: FitChange) -> str:
    """Whether it fits after all; nothing of a GPU that the head says nothing about."""
    if fit.after is None:
        return ""
    spare = fit.headroom_bytes.after or 0
    short = "" if fit.after else f", {format_bytes(-spare)} too much"
    words = {
        (True, True): "still fits",
        (False, True): "now fits",
        (True, False): "no longer fits",
        (False, False): "still does not fit",
        (None, True): "fits",
        (None, False): "does not fit",
    }
    return f"it {words[fit.before, fit.after]} on {fit.device}{short}"


_KINDS = {
    "input": "inputs",
    "option": "options",
    "device": "devices",
    "version": "versions",
}


def _unlike(differences: Sequence[Difference]) -> str:
    """What is different besides the model, so that a reader sees what is compared."""
    kinds = list(dict.fromkeys(_KINDS[d.kind] for d in differences if d.kind in _KINDS))
    listed = ", ".join(kinds[:-1])
    return f"{listed} and {kinds[-1]} differ" if listed else f"{kinds[0]} differ" if kinds else ""
