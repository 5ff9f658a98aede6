"""A report as JSON, schema ``graphmem.report/1``: integers of bytes, for programs."""

from __future__ import annotations

import json

from graphmem.report import Report


def as_json(report: Report) -> str:
    """A report as JSON text, two spaces of indentation, with a newline at its end."""
    return json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n"
