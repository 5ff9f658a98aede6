"""``--format`` and ``-o``: what a command prints, and where to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from graphmem.errors import UsageError
from graphmem.options import nearest

REPORT_KINDS = {".txt": "table", ".md": "markdown", ".json": "json"}
"""What a report can be printed as: suffix of a file -> kind."""


def add_output(
    parser: argparse.ArgumentParser, kinds: Mapping[str, str]
) -> argparse._ArgumentGroup:
    """``--format`` and ``-o``, of the kinds that a command can print.

    Args:
        kinds: suffix of a file -> kind.
    """
    group = parser.add_argument_group("output")
    names, suffixes = (", ".join(texts) for texts in (kinds.values(), kinds))
    group.add_argument("--format", help=f"one of {names} (table)")
    group.add_argument("-o", "--output", metavar="FILE", help=f"write to a file: {suffixes}")
    return group


def write(content: str | bytes, path: str | None) -> None:
    """Print a result, or write it to a file whose suffix names its kind.

    A result that can't be written is not lost: it is printed.

    Raises:
        UsageError: if the file can't be written.
    """
    data = content.encode() if isinstance(content, str) else content
    if path is None:
        _print(content)
        return
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        is_shown = isinstance(content, str) or not sys.stdout.isatty()
        if is_shown:
            _print(content)
        where = "; the result was printed instead" if is_shown else ""
        raise UsageError(f"-o {path}: {error.strerror}{where}") from error


def _print(content: str | bytes) -> None:
    if isinstance(content, str):
        print(content, end="", flush=True)
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()


def kind_of(format_: str | None, path: str | None, kinds: Mapping[str, str]) -> str:
    """The kind of output: ``--format``, else the suffix of ``-o``, else a table.

    Args:
        kinds: suffix of a file -> kind.

    Raises:
        UsageError: for a suffix or format that is none, with the nearest.
    """
    if format_ is not None:
        if format_ not in kinds.values():
            names = list(dict.fromkeys(kinds.values()))
            raise UsageError(
                f"--format {format_}: not one of {', '.join(names)}{nearest(format_, names)}"
            )
        return format_
    if path is None:
        return "table"
    suffix = next((s for s in _longest_first(kinds) if path.endswith(s)), Path(path).suffix)
    if suffix not in kinds:
        raise UsageError(
            f"-o {path}: the suffix must be one of {', '.join(kinds)}{nearest(suffix, kinds)}"
        )
    return kinds[suffix]


def _longest_first(suffixes: Mapping[str, str]) -> list[str]:
    """So that ``.trace.json`` is seen before ``.json``."""
    return sorted(suffixes, key=len, reverse=True)
