"""What a person sees on stderr besides errors: one line that says what is being done.

A bar where the number of things to do is known (``progress.py``), else, for what takes longer
than two seconds, the seconds so far. Nothing where stderr is no terminal, or with ``--quiet``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from enum import IntEnum, unique

_PATIENCE = 2.0
"""Seconds for which nobody wants to be told that something is being done."""

_EVERY = 0.5
_CLEAR = "\r\x1b[K"


@unique
class Verbosity(IntEnum):
    """How much a person wants to be told."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


class Console:
    """The line on stderr. There is one, ``CONSOLE``."""

    def __init__(self) -> None:
        self.verbosity = Verbosity.NORMAL
        self._lock = threading.Lock()
        self._bars = 0
        self._is_drawn = False

    @property
    def is_shown(self) -> bool:
        """Whether somebody looks."""
        return self.verbosity > Verbosity.QUIET and sys.stderr.isatty()

    def draw(self, text: str) -> None:
        """Put a text in the place of the line's."""
        with self._lock:
            self._write(text)

    def clear(self) -> None:
        """Take the line away."""
        with self._lock:
            if self._is_drawn:
                print(_CLEAR, end="", file=sys.stderr, flush=True)
                self._is_drawn = False

    @contextlib.contextmanager
    def bar(self) -> Iterator[None]:
        """While a bar is drawn, nobody else draws."""
        self._bars += 1
        try:
            yield
        finally:
            self._bars -= 1
            self.clear()

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say how long something takes, if it takes long."""
        if not self.is_shown:
            yield
            return
        done = threading.Event()
        thread = threading.Thread(target=self._tell, args=(what, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.clear()

    def _tell(self, what: str, done: threading.Event) -> None:
        start = time.monotonic()
        wait = _PATIENCE
        while not done.wait(wait):
            wait = _EVERY
            if not self._bars:
                self.draw(f"{what}, {int(time.monotonic() - start)} s")

    def _write(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        print(f"{_CLEAR}{text[:width]}", end="", file=sys.stderr, flush=True)
        self._is_drawn = True

    @contextlib.contextmanager
    def told(self, verbosity: Verbosity, what: str) -> Iterator[None]:
        """Run a command as somebody wants to be told of it.

        With QUIET nothing but its result is written, not even what libraries have to say; with
        VERBOSE how long it took, and where an error comes from.
        """
        before, self.verbosity = self.verbosity, verbosity
        start = time.monotonic()
        try:
            with _silence() if verbosity is Verbosity.QUIET else self.waiting(what):
                yield
        except Exception:
            if verbosity is Verbosity.VERBOSE:
                traceback.print_exc()
            raise
        finally:
            self.verbosity = before
        if verbosity is Verbosity.VERBOSE:
            print(f"{what}: {time.monotonic() - start:.1f} s", file=sys.stderr)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Nothing on stderr by Python code."""
    with (
        open(os.devnull, "w") as nothing,  # noqa: PTH123  # no path
        contextlib.redirect_stderr(nothing),
        warnings.catch_warnings(action="ignore"),
    ):
        yield


CONSOLE = Console()
