"""What a finished dictionary becomes: its JSON, or sections under a heading."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any


def framed(
    finished: dict[str, Any], subject: str, kind: str, sections: Callable[[str], Iterable[str]]
) -> str:
    """The text of a result.

    Args:
        finished: the result as JSON values.
        subject: the name of what it is of, the heading.
        kind: ``table``, ``markdown`` or ``json``.
        sections: the text below the heading, for a table style of ``tabulate``.
    """
    if kind == "json":
        return json.dumps(finished, indent=2) + "\n"
    style = "github" if kind == "markdown" else "simple"
    heading = f"## {subject}" if kind == "markdown" else subject
    return "\n\n".join([heading, *sections(style)]) + "\n"
