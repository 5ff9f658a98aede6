"""Answers on disk: one small file each, written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from graphmem.sweeps.case import Case
from graphmem.sweeps.identity import Manifest, key
from graphmem.sweeps.outcome import Outcome, cached

_LAYOUT = 1
"""Of the files; another number makes the old ones unread."""


def default_folder() -> Path:
    """``$XDG_CACHE_HOME/graphmem/sweep``, by default below ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "graphmem", "sweep")


class Cache:
    """The answers in a folder.

    What can't be read counts as absent, and where nothing can be written nothing is kept: a
    cache is never a reason to fail.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, case: Case) -> Outcome | None:
        """The kept outcome of a case, if all that it depends on is as it was."""
        try:
            kept = json.loads(self._file(case).read_text("utf-8"))
            files, packages = (tuple(map(tuple, kept[name])) for name in ("files", "packages"))
            if kept["layout"] != _LAYOUT or not Manifest(files, packages).still_holds():
                return None
            return cached(case, kept["answer"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, outcome: Outcome, manifest: Manifest) -> None:
        """Keep an answer; an error is asked for again next time."""
        if outcome.answer is None:
            return
        kept = {
            "layout": _LAYOUT,
            "case": outcome.case.to_dict(),
            "answer": asdict(outcome.answer),
            **asdict(manifest),
        }
        with contextlib.suppress(OSError):
            self._write(self._file(outcome.case), json.dumps(kept, default=str))

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise

    def _file(self, case: Case) -> Path:
        return self._folder / f"{key(case)}.json"
