"""The layers as comma-separated values: a row for each module, all sizes in bytes."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, fields

from graphmem.report import Layer, Report


def as_csv(report: Report) -> str:
    """The rows of ``report.layers`` under the names of the JSON; nothing where it has None."""
    names = [field.name for field in fields(Layer)]
    text = io.StringIO()
    rows = csv.DictWriter(text, names, lineterminator="\n")
    rows.writeheader()
    rows.writerows(asdict(layer) for layer in report.layers)
    return text.getvalue()
