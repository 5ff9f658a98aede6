"""A progress bar on stderr, for a person who waits; nothing where stderr is no terminal."""

from __future__ import annotations

import time
from types import TracebackType

from graphmem.commands.console import CONSOLE

_BAR = 24


class Progress:
    """How many of ``total`` are done; use it as a context, and call ``step`` for each."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._done = 0
        self._start = time.monotonic()
        self._is_shown = CONSOLE.is_shown and total > 1
        self._bar = CONSOLE.bar()

    def __enter__(self) -> Progress:
        if self._is_shown:
            self._bar.__enter__()
            self._show()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_shown:
            self._bar.__exit__(kind, error, traceback)

    def step(self, last: str = "") -> None:
        """One more is done; ``last`` says which."""
        self._done += 1
        self._total = max(self._total, self._done)
        self._show(last)

    def _show(self, last: str = "") -> None:
        if not self._is_shown:
            return
        from graphmem.render.bars import bar

        seconds = int(time.monotonic() - self._start)
        filled = bar(self._done, self._total, _BAR).ljust(_BAR)
        CONSOLE.draw(f"{filled} {self._done}/{self._total} {self._what}, {seconds} s  {last}")
