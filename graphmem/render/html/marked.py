"""The sentences of ``render.facts`` as HTML: escaped, with names as ``<code>``."""

from __future__ import annotations

import html
import re

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Around a name, while the text around it is not escaped yet (for private use in Unicode)."""


def mark(name: str) -> str:
    """A name, to be found again by ``marked``."""
    return f"{_OPEN}{name}{_CLOSE}" if name else ""


def marked(text: str) -> str:
    """A text with marked names as HTML; a path may break after its slashes and dots."""
    escaped = html.escape(text)
    return re.sub(f"{_OPEN}(.*?){_CLOSE}", lambda found: _code(found[1]), escaped, flags=re.DOTALL)


def _code(name: str) -> str:
    breakable = re.sub(r"([/._])", r"\1<wbr>", name)
    return f"<code>{breakable}</code>"
