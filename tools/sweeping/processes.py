"""A fork server: each case in a process of its own, forked from one that has imported all.

1. A case's process sends one line and ends. One that dies, takes too long or takes too much
   memory is ended, and its ending stands in the place of the line, with what it told by then;
   the others go on.
2. Time is the processor's, so that a busy machine changes no result; one that only waits is
   ended after twenty times as long.
3. Memory is the process's anonymous resident memory (``RssAnon`` of /proc/PID/status, Linux),
   looked at ten times a second, less what the server had when it was forked.

The server must not have started threads: what it imports may, what it runs may not.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tools.sweeping.outcome import CRASH, MEMORY, TIMEOUT

_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """What one case may take: seconds of a processor, and bytes of resident memory."""

    seconds: float = 300.0
    nbytes: int = 5 * 2**30

    @property
    def wall_seconds(self) -> float:
        """How long a case may wait."""
        return 20 * self.seconds


@dataclass(frozen=True, slots=True)
class Ended:
    """How a case ended: with its line, or with the kind of ending and what is known of it.

    ``told`` is what it told last.
    """

    case: str
    seconds: float
    line: str | None
    kind: str | None = None
    detail: str = ""
    told: str | None = None


@dataclass(slots=True)
class _Running:
    case: str
    process: BaseProcess
    results: Connection
    since: float
    inherited: int
    told: str | None = None

    def ended(self, limits: Limits) -> Ended | None:
        """The ending, if there is one by now."""
        pid, waited = self.process.pid, time.monotonic() - self.since
        while self.results.poll():
            if (ended := self._received(_processor_seconds(pid))) is not None:
                return ended
        seconds = _processor_seconds(pid)
        if seconds > limits.seconds:
            return self._stop(seconds, TIMEOUT, f"more than {limits.seconds:g} s")
        if waited > limits.wall_seconds:
            return self._stop(seconds, TIMEOUT, f"it waited for {waited:.0f} s")
        if _resident(pid) - self.inherited > limits.nbytes:
            return self._stop(seconds, MEMORY, f"more than {limits.nbytes / 2**30:g} GiB")
        return None

    def _received(self, seconds: float) -> Ended | None:
        """The ending that was sent; None if something was told."""
        try:
            is_last, line = self.results.recv()
        except EOFError:  # it died without a result
            self.process.join()
            return self._close(seconds, None, CRASH, f"exit code {self.process.exitcode}")
        if is_last:
            self.process.join()
            return self._close(seconds, line)
        self.told = line
        return None

    def _stop(self, seconds: float, kind: str, detail: str) -> Ended:
        self.process.kill()
        self.process.join()
        return self._close(seconds, None, kind, detail)

    def _close(
        self, seconds: float, line: str | None, kind: str | None = None, detail: str = ""
    ) -> Ended:
        self.results.close()
        return Ended(self.case, seconds, line, kind, detail, self.told)


def each_in_a_process(
    cases: Sequence[str], work: Callable[[str], str], limits: Limits, jobs: int
) -> Generator[Ended, None, None]:
    """Run ``work`` for each case, ``jobs`` at once, and give the endings as they come."""
    waiting, running = list(reversed(cases)), list[_Running]()
    gc.freeze()  # so that the collector of a fork writes on no page of the server's
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_started(waiting.pop(), work))
            wait([case.results for case in running], _LOOK_SECONDS)
            for case in tuple(running):
                ended = case.ended(limits)
                if ended is not None:
                    running.remove(case)
                    yield ended
    finally:
        gc.unfreeze()
        for case in running:
            case.process.kill()
            case.process.join()


def _started(case: str, work: Callable[[str], str]) -> _Running:
    context = multiprocessing.get_context("fork")
    results, sender = context.Pipe(duplex=False)
    inherited = _resident(os.getpid())
    process = context.Process(target=_run, args=(case, work, sender), daemon=True)
    process.start()
    sender.close()
    return _Running(case, process, results, time.monotonic(), inherited)


_OWN: list[Connection] = []
"""In a case's own process, where its results go."""


def tell(what: str | None) -> None:
    """From a case's own process: what is to be known of it if it ends without a line."""
    for sender in _OWN:
        sender.send((False, what))


def _run(case: str, work: Callable[[str], str], sender: Connection) -> None:
    """In the case's own process: what libraries print goes nowhere."""
    _OWN.append(sender)
    faulthandler.disable()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.stdout = sys.stderr = os.fdopen(nowhere, "w")
    sender.send((True, work(case)))
    sender.close()
    os._exit(0)


def _resident(pid: int | None) -> int:
    """Bytes of anonymous memory of a process that are resident; 0 if it has just ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _processor_seconds(pid: int | None) -> float:
    """Seconds that a process has computed, in user and system mode; 0 if it has just ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]  # fields 14 and 15 of proc(5)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
