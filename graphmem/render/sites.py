"""Where a recorded block was asked for, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem.as_text import shorten, shorten_path


def where(site: Mapping[str, Any], width: int, *, older: bool = False) -> str:
    """``aten.sum_dim_IntList, gpu_reduce_kernel at model.py:12 (forward)``, shortened.

    Args:
        site: ``{op, kernel, node, source, function}``, each a text or None.
        older: the block is older than the recording.
    """
    what = ", ".join(filter(None, (site["op"], site["kernel"])))
    if site["source"]:
        return _at(what, site["source"], site["function"], width)
    if site["node"]:
        return shorten(f"{what} in {site['node']}" if what else site["node"], width)
    if what:
        return shorten(what, width)
    return "older than the recording" if older else "no source line recorded"


def _at(what: str, source: str, function: str | None, width: int) -> str:
    """The folders of the source go first, then the function, then the middle of the rest."""
    prefix = f"{what} at " if what else ""
    suffix = f" ({function})" if function and not function.startswith("<") else ""
    name = source.replace("\\", "/").split("/")[-1]
    if len(prefix) + len(name) + len(suffix) > width:
        suffix = ""
    room = width - len(prefix) - len(suffix)
    return shorten(f"{prefix}{shorten_path(source, max(room, len(name)))}{suffix}", width)
