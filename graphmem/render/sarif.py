"""Checked models as SARIF 2.1.0, which code hosts show beside the lines of a change.

Source of the form: OASIS, Static Analysis Results Interchange Format 2.1.0, sections 3.13 (log),
3.14 (run), 3.27 (result), 3.28 (location), 3.49 (rule).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

Row = Mapping[str, Any]
Place = tuple[str, int]
"""A file, relative to the project, and a line of it."""

_RULES = {
    "over-budget": "A model takes more GPU memory than its budget",
    "does-not-fit": "A model does not fit on a GPU that it is to fit on",
    "grown": "A model's peak of GPU memory grew by more than is allowed",
    "no-baseline": "A model's growth is limited, and nothing is known of what it was",
    "not-analyzed": "A model can't be analyzed",
}
_SOURCE = re.compile(r"(.+\.py):(\d+)")


def as_sarif(rows: Sequence[Row], places: Mapping[str, Place], version: str) -> str:
    """A log with one run, and a result for each broken rule.

    Args:
        places: of each model by name, where it is set up; where the peak is, is a location
            beside it.
        version: graphmem's.
    """
    driver = {
        "name": "graphmem",
        "version": version,
        "rules": [
            {"id": kind, "shortDescription": {"text": text}} for kind, text in _RULES.items()
        ],
    }
    results = [
        _result(row, failure, places.get(row["name"]))
        for row in rows
        for failure in row["failures"]
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _result(row: Row, failure: Mapping[str, Any], place: Place | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": failure["kind"],
        "ruleIndex": list(_RULES).index(failure["kind"]),
        "level": "error",
        "message": {"text": f"{row['name']}: {failure['text']}"},
        "partialFingerprints": {"model/v1": f"{row['name']}/{failure['kind']}"},
    }
    peak = _peak(row)
    where = [at for at in (place, peak) if at is not None]
    if where:
        result["locations"] = [_location(*where[0])]
    if len(where) > 1:
        result["relatedLocations"] = [
            {"id": 1, **_location(*where[1]), "message": {"text": "the peak is here"}}
        ]
    return result


def _peak(row: Row) -> Place | None:
    """The source line of the peak, where it is in a file below the project."""
    source = (row["moment"] or {}).get("source")
    found = _SOURCE.fullmatch(source or "")
    if found is None or PurePosixPath(found[1]).is_absolute() or found[1].startswith(".."):
        return None
    return found[1], int(found[2])


def _location(file: str, line: int) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": PurePosixPath(file).as_posix()},
            "region": {"startLine": line},
        }
    }
