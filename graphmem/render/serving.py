"""A verification in ONNX Runtime as text, markdown or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tabulate import tabulate

from graphmem.render.framed import framed

_NAMES = {
    "requested_peak_bytes": "requested, peak",
    "in_use_peak_bytes": "in use, peak",
    "arena_bytes": "held by the arena",
}
_RUNS = {"first_run": "first run", "later_runs": "later runs"}


def rendered(verification: dict[str, Any], subject: str, kind: str) -> str:
    """The text of a verification.

    Args:
        verification: ``ServingVerification.to_dict()``.
        subject: the name of what was verified.
        kind: ``table``, ``markdown`` or ``json``.
    """

    def sections(style: str) -> Iterator[str]:
        yield _peaks(verification, style)
        yield _verdict(verification)
        if "nodes" in verification:
            yield _nodes(verification["nodes"], style)

    return framed(verification, subject, kind, sections)


def _peaks(verification: dict[str, Any], style: str) -> str:
    sides = ("predicted", "measured", "difference")
    rows = [
        (run, what, *(f"{verification[side][key][name]:,}" for side in sides))
        for key, run in _RUNS.items()
        for name, what in _NAMES.items()
    ]
    return _table(rows, ("", "bytes", *sides), style, names=2)


def _verdict(verification: dict[str, Any]) -> str:
    differences = [verification["difference"][key][name] for key in _RUNS for name in _NAMES]
    if not any(differences):
        return "The prediction is exact."
    reasons = verification["explained"]
    return "\n".join(["The prediction differs."] + [f"- {reason}" for reason in reasons])


def _nodes(nodes: list[dict[str, Any]], style: str) -> str:
    rows = [
        (str(pair["run"]), pair["node"], pair["op"], *_cells(pair), "" if _is_same(pair) else "*")
        for pair in nodes
    ]
    headers = ("run", "node", "operator", "requested", "measured", "in use", "measured", "")
    return _table(rows, headers, style, names=3)


def _cells(pair: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        "-" if pair[side] is None else f"{pair[side][name]:,}"
        for name in ("requested_peak_bytes", "in_use_peak_bytes")
        for side in ("predicted", "measured")
    )


def _is_same(pair: dict[str, Any]) -> bool:
    return bool(pair["predicted"] == pair["measured"])


def _table(rows: list[tuple[str, ...]], headers: tuple[str, ...], style: str, names: int) -> str:
    align = ("left",) * names + ("right",) * (len(headers) - names)
    return tabulate(rows, headers, tablefmt=style, colalign=align, disable_numparse=True)
