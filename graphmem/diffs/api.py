"""``graphmem.diff``."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from graphmem.diffs.compare import compare
from graphmem.diffs.whole import Diff
from graphmem.errors import ModelLoadError
from graphmem.report import Report, read_report

Given = Report | str | PathLike[str]


def diff(base: Given, head: Given) -> Diff:
    """What a change did to a run's memory, module by module.

    Args:
        base: the report before, or the path of its JSON.
        head: the report after, or the path of its JSON.

    Raises:
        GraphmemError: in one line, if a file can't be read or is no report of this version.
    """
    (one, first), (other, second) = _read(base), _read(head)
    return compare(one, other, (first, second))


def read_file(path: str | PathLike[str]) -> Report:
    """The report of a JSON file.

    Raises:
        ModelLoadError: in one line, if it can't be read or is no report of this version.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelLoadError(
            f"{path}: {error.strerror}; graphmem analyze SUBJECT -o {path} makes a report"
        ) from error
    return read_report(content, str(path))


def _read(given: Given) -> tuple[Report, str]:
    """A report, and what it is called."""
    if isinstance(given, Report):
        return given, given.subject.name
    return read_file(given), str(given)
