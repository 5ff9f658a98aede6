"""Renderers: a finished report in, text out. They compute nothing but collapsed rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmem.render.json import as_json
    from graphmem.render.markdown import as_markdown
    from graphmem.render.table import as_text

__all__ = ["as_json", "as_markdown", "as_text"]

# A command that needs one of them does not wait for the others.
_LAZY = {
    "as_json": "graphmem.render.json",
    "as_markdown": "graphmem.render.markdown",
    "as_text": "graphmem.render.table",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'graphmem.render' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
