"""A report that a command is given: read from a file, or made of a SUBJECT."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from graphmem.commands.serving import target_of

if TYPE_CHECKING:
    from graphmem.report import Report


def is_report(name: str) -> bool:
    """Whether it names a report's file. ``hf:config.json`` does not."""
    return name.lower().endswith(".json") and not name.lower().startswith("hf:")


def read(name: str) -> Report:
    """The report in a file."""
    from graphmem.diffs import read_file

    return read_file(name)


def analyzed(subject: str, arguments: argparse.Namespace) -> Report:
    """The report on a SUBJECT, with the options of the command line."""
    from graphmem import collector
    from graphmem.commands.analyze import traced

    own = argparse.Namespace(**{**vars(arguments), "subject": subject, "timeline": False})
    own.target = target_of(own)
    with collector.off():
        report, _ = traced(own)
    return report
