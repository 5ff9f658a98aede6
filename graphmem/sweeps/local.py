"""Processes of this machine, each of which may crash for itself.

A pool of ``concurrent.futures`` breaks as a whole where one of its processes dies. Here every
worker is a pool of one process; where that dies, its task alone fails, and the next task gets
a new process.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any


def cpu_count() -> int:
    """The CPUs that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Task:
    future: Future[Any]
    lane: Hashable
    call: Callable[[ProcessPoolExecutor], Future[Any]]


class LocalProcesses(Executor):
    """An executor whose tasks run in ``jobs`` fresh processes, started when they are needed.

    Tasks whose first argument has the same ``lane`` run in the same process, one after
    another, for what it keeps from one to the next; those without one run anywhere.
    """

    def __init__(self, jobs: int) -> None:
        self._tasks: list[_Task] = []
        self._lanes: dict[Hashable, int] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._processes: list[ProcessPoolExecutor | None] = [None] * jobs
        self._threads = [
            threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(jobs)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in one of the processes."""
        lane = getattr(args[0], "lane", None) if args else None
        task = _Task(Future(), lane, lambda process: process.submit(fn, *args, **kwargs))
        with self._changed:
            self._tasks.append(task)
            self._changed.notify_all()
        return task.future

    def _work(self, number: int) -> None:
        """What a thread does: the tasks of its process, which is replaced where it dies."""
        while (task := self._next(number)) is not None:
            if not task.future.set_running_or_notify_cancel():
                continue
            process = self._processes[number] = self._processes[number] or _process()
            try:
                task.future.set_result(task.call(process).result())
            except BaseException as error:
                if isinstance(error, BrokenProcessPool):
                    process.shutdown(wait=False)
                    self._processes[number] = None
                task.future.set_exception(error)

    def _next(self, number: int) -> _Task | None:
        """The first task that is for a process; None at the end."""
        with self._changed:
            while True:
                for task in self._tasks:
                    if self._lanes.get(task.lane, number) == number:
                        if task.lane is not None:
                            self._lanes[task.lane] = number
                        self._tasks.remove(task)
                        return task
                if self._ended:
                    return None
                self._changed.wait()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with ``cancel_futures`` without waiting for what they do."""
        with self._changed:
            self._ended = True
            if cancel_futures:
                for task in self._tasks:
                    task.future.cancel()
            self._changed.notify_all()
        processes = [process for process in self._processes if process is not None]
        if cancel_futures:
            for process in processes:
                for child in list((process._processes or {}).values()):
                    child.terminate()
        for thread in self._threads if wait else ():
            thread.join()
        for process in processes:
            process.shutdown(wait)


def _process() -> ProcessPoolExecutor:
    """A pool of one process that shares nothing with this one."""
    spawned = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=spawned, initializer=_begin)


def _begin() -> None:
    """Python's collector finds nothing in an analysis, which collects between its steps."""
    gc.disable()
