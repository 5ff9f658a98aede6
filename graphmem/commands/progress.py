"""A progress bar on stderr, for a person who waits; nothing where stderr is no terminal."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

_BAR = 24


class Progress:
    """How many of ``total`` are done; use it as a context, and call ``step`` for each."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._done = 0
        self._start = time.monotonic()
        self._is_shown = sys.stderr.isatty() and total > 1

    def __enter__(self) -> Progress:
        self._show()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def step(self, last: str = "") -> None:
        """One more is done; ``last`` says which."""
        self._done += 1
        self._total = max(self._total, self._done)
        self._show(last)

    def _show(self, last: str = "") -> None:
        if not self._is_shown:
            return
        seconds = int(time.monotonic() - self._start)
        from graphmem.render.bars import bar

        filled = bar(self._done, self._total, _BAR).ljust(_BAR)
        text = f"{filled} {self._done}/{self._total} {self._what}, {seconds} s  {last}"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)
