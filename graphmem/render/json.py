"""A report as JSON, schema ``graphmem.report/1``: integers of bytes, for programs."""

from __future__ import annotations

import json
from typing import Any

from graphmem.report import Report


def as_json(report: Report, comparison: dict[str, Any] | None = None) -> str:
    """A report as JSON text, two spaces of indentation, with a newline at its end.

    Args:
        comparison: what stands beside it, ``Comparison.to_dict()`` and the snapshot's name.
    """
    values = report.to_dict()
    if comparison is not None:
        values["comparison"] = comparison
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
