"""The baseline: the report of each model as it was, in a folder that is kept with the code.

A file for each model, its name with what a file system may not like replaced, in the form of
``graphmem analyze -o``: ``graphmem diff`` reads it too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from graphmem.errors import UsageError
from graphmem.report import Report, read_report

_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@-]+")


class Baseline:
    """The reports in a folder; it need not be there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """The file of a model's report."""
        return self.folder / f"{_UNSAFE.sub('-', name).strip('-.') or 'model'}.json"

    def read(self, name: str) -> Report | None:
        """The report of a model as it was; None where there is none.

        Raises:
            UsageError: if the file is there and can't be read.
            ModelLoadError: if it is no report.
        """
        path = self.path(name)
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        return read_report(text, str(path))

    def write(self, name: str, report: Report) -> Path:
        """Keep a report as the one to compare with from now on.

        Raises:
            UsageError: if the file can't be written.
        """
        path = self.path(name)
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        return path
