"""The sweep: from cases to outcomes, as they finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from pathlib import Path

from graphmem.errors import UsageError, one_line
from graphmem.sweeps.cache import Cache, default_folder
from graphmem.sweeps.case import Case
from graphmem.sweeps.chunks import Chunk, chunks
from graphmem.sweeps.local import LocalProcesses, cpu_count
from graphmem.sweeps.outcome import Outcome
from graphmem.sweeps.work import Done, run_chunk

_DEFAULT = Path()


def sweep(
    cases: Iterable[Case],
    executor: Executor | None = None,
    *,
    jobs: int | None = None,
    cache: str | Path | None = _DEFAULT,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Iterator[Outcome]:
    """Analyze many cases; their outcomes come as they finish.

    Args:
        cases: such as those of ``graphmem.cases``.
        executor: any of ``concurrent.futures``, such as ``client.get_executor()`` of Dask; by
            default processes of this machine, which end with the sweep. Where a process ends, or
            the executor fails, the cases that it had together are tried again one by one.
        jobs: how many processes of this machine; by default as many as it has CPUs, and no
            more than there are runs that differ in more than a size.
        cache: the folder of kept answers, by default ``~/.cache/graphmem/sweep``; None keeps
            and takes none.
        on_outcome: is called with each outcome, before it is given.

    Returns:
        The outcomes, first those that were kept. Nothing runs before the first is asked for;
        a sweep that is left early ends what it started.

    Raises:
        UsageError: for an executor and jobs, or fewer than one job.
    """
    if executor is not None and jobs is not None:
        raise UsageError("sweep: jobs are processes of this machine; leave them out, or executor")
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be 1 or more, not {jobs}")
    folder = default_folder() if cache is _DEFAULT else cache
    kept = None if folder is None else Cache(Path(folder))
    return _told(_outcomes(list(dict.fromkeys(cases)), executor, jobs, kept), on_outcome)


def _told(
    outcomes: Iterator[Outcome], on_outcome: Callable[[Outcome], None] | None
) -> Iterator[Outcome]:
    for outcome in outcomes:
        if on_outcome is not None:
            on_outcome(outcome)
        yield outcome


def _outcomes(
    cases: list[Case], executor: Executor | None, jobs: int | None, cache: Cache | None
) -> Iterator[Outcome]:
    missing = []
    for case in cases:
        found = None if cache is None else cache.find(case)
        if found is None:
            missing.append(case)
        else:
            yield found
    work = chunks(missing)
    apart = len({one.lane or one for one in work})
    if jobs is not None and jobs > apart > 0:
        work = chunks(missing, lanes=-(-jobs // apart))
    with _executor(executor, jobs or min(cpu_count(), max(apart, 1))) as running:
        for done in _run(running, work):
            for outcome in done.outcomes:
                if cache is not None and done.manifest is not None:
                    cache.keep(outcome, done.manifest)
                yield outcome


@contextmanager
def _executor(given: Executor | None, jobs: int) -> Iterator[Executor]:
    """The user's executor, or processes that end here, whatever they are doing."""
    if given is not None:
        yield given
        return
    local = LocalProcesses(jobs)
    try:
        yield local
    finally:
        local.shutdown(cancel_futures=True)


def _run(executor: Executor, work: list[Chunk]) -> Iterator[Done]:
    """The chunks as they are done; the cases of one that failed come alone, then fail.

    A worker of a cluster that ends takes along what waits for it, so that a case may fail for
    another's sake. Such cases are asked once more at the end, with none beside them.
    """
    pending: dict[Future[Done], Chunk] = {_submitted(executor, one): one for one in work}
    suspects: list[Chunk] = []
    try:
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                chunk = pending.pop(future)
                error = future.exception()
                if error is None:
                    yield future.result()
                elif chunk.axis is not None:
                    for one in chunk.singles():
                        pending[_submitted(executor, one)] = one
                elif work != [chunk] and not isinstance(executor, LocalProcesses):
                    suspects.append(chunk)
                else:
                    yield _failed(chunk, error)
        for chunk in suspects:
            yield _alone(executor, chunk)
    finally:
        for future in pending:
            future.cancel()


def _submitted(executor: Executor, chunk: Chunk) -> Future[Done]:
    """A chunk that was handed over; a failed one where the executor takes no more."""
    try:
        return executor.submit(run_chunk, chunk)
    except Exception as error:  # a broken pool
        failed: Future[Done] = Future()
        failed.set_exception(error)
        return failed


def _alone(executor: Executor, chunk: Chunk) -> Done:
    """A case with no other beside it: if it fails now, the fault is its own."""
    future = _submitted(executor, chunk)
    error = future.exception()
    return future.result() if error is None else _failed(chunk, error)


def _failed(chunk: Chunk, error: BaseException) -> Done:
    line = f"the process that analyzed it ended: {type(error).__name__}: {one_line(error)}"
    return Done(tuple(Outcome(case, None, line) for case in chunk.cases), None)
