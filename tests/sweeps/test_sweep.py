"""Sweeps: the answers of single analyses, streamed, kept, and safe from crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import graphmem
from graphmem.analysis import traced_call
from graphmem.errors import UsageError
from graphmem.resolve import make_options
from graphmem.sources import InputRequest, load_subject
from graphmem.sweeps import Outcome, cases, sweep
from graphmem.sweeps.outcome import How

FACTORIES = "tests/sweeps/factories.py"


def _analyzed(name: str, **values: Any) -> dict[str, Any]:
    """The peak of a whole analysis."""
    asked = {key: values.pop(key) for key in ("batch", "seq") if key in values}
    options = make_options(**values)
    subject = load_subject(f"{FACTORIES}:{name}", InputRequest(**asked, labels=True))
    report, _ = traced_call(subject.model, (subject.args, subject.kwargs), options)
    peak = report.to_dict()["peak"]
    found = {key: peak[key] for key in ("allocated_bytes", "reserved_bytes", "op", "module")}
    if options.device is not None:
        fit = report.fits[options.device]
        found |= {"fits": fit.fits, "headroom_bytes": fit.headroom_bytes}
    return found


def _answer(outcome: Outcome, like: dict[str, Any]) -> dict[str, Any]:
    assert outcome.answer is not None, outcome.error
    return {name: getattr(outcome.answer, name) for name in like}


@pytest.fixture(scope="module")
def in_threads() -> Any:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_the_answers_are_those_of_single_analyses(in_threads: Executor) -> None:
    made = cases(
        f"{FACTORIES}:plain", batch=range(1, 21), precision=["bf16", None], device=["L4", "T4"]
    )
    outcomes = list(sweep(made, in_threads, cache=None))
    assert {outcome.case for outcome in outcomes} == set(made)
    how = {outcome.how for outcome in outcomes}
    assert how == {How.TRACED, How.INSTANTIATED}
    for outcome in outcomes[::7]:
        case = outcome.case
        whole = _analyzed("plain", batch=case.batch, precision=case.precision, device=case.device)
        assert _answer(outcome, whole) == whole


def test_a_grid_of_batches_and_sequences(in_threads: Executor) -> None:
    made = cases(f"{FACTORIES}:language", batch=[1, 2, 3, 4, 6], seq=[8, 16])
    for outcome in list(sweep(made, in_threads, cache=None)):
        whole = _analyzed("language", batch=outcome.case.batch, seq=outcome.case.seq)
        assert _answer(outcome, whole) == whole


def test_a_size_that_fails_does_not_stop_the_others(in_threads: Executor) -> None:
    told: list[Outcome] = []
    made = cases(f"{FACTORIES}:picky", batch=range(1, 9))
    outcomes = list(sweep(made, in_threads, cache=None, on_outcome=told.append))
    assert told == outcomes
    failed = {o.case.batch: o.error for o in outcomes if o.answer is None}
    assert failed.keys() == {5, 6, 7, 8}
    assert all("four rows at most" in str(error) for error in failed.values())


def test_a_case_that_ends_its_process_does_not_stop_the_others() -> None:
    made = cases([f"{FACTORIES}:killer", f"{FACTORIES}:plain"], batch=range(1, 7))
    outcomes = {(o.case.subject[-5:], o.case.batch): o for o in sweep(made, jobs=2, cache=None)}
    assert len(outcomes) == 12
    failed = {key for key, outcome in outcomes.items() if outcome.answer is None}
    assert failed == {("iller", 3)}
    assert "the process that analyzed it ended" in str(outcomes["iller", 3].error)


def test_a_pool_of_the_users_that_breaks_is_told() -> None:
    made = cases(f"{FACTORIES}:killer", batch=3)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        (outcome,) = sweep(made, pool, cache=None)
    assert outcome.answer is None
    assert "BrokenProcessPool" in str(outcome.error)


def test_a_pool_that_breaks_among_many_fails_them_all_and_ends() -> None:
    made = cases(f"{FACTORIES}:killer", batch=range(1, 6))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        outcomes = list(sweep(made, pool, cache=None))
    assert len(outcomes) == 5
    assert any(o.case.batch == 3 and o.answer is None for o in outcomes)


# -- kept answers


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which ``factories.counted`` leaves a line for each build."""
    path = tmp_path / "counted"
    path.touch()
    monkeypatch.setenv("COUNTED", str(path))
    return path


def _builds(path: Path) -> int:
    return len(path.read_text().split())


class _Cluster(Executor):
    """Runs what it is given, and with a case that fails those that were given with it."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, fn, args))
        threading.Timer(0.05, self._run).start()
        return future

    def _run(self) -> None:
        taken, self._waiting = self._waiting, []
        ends = any(case.batch == 3 for _, _, (chunk,) in taken for case in chunk.cases)
        for future, fn, args in taken:
            if ends:
                future.set_exception(RuntimeError("the worker ended"))
            else:
                future.set_result(fn(*args))


def test_a_case_that_failed_for_anothers_sake_is_asked_once_more_alone() -> None:
    outcomes = list(sweep(cases(f"{FACTORIES}:plain", batch=range(1, 6)), _Cluster(), cache=None))
    assert {o.case.batch for o in outcomes if o.answer is None} == {3}
    assert len(outcomes) == 5


def test_a_second_sweep_builds_nothing(counted: Path, tmp_path: Path, in_threads: Executor) -> None:
    made = cases(f"{FACTORIES}:counted", batch=range(1, 13))
    first = list(sweep(made, in_threads, cache=tmp_path / "kept"))
    builds = _builds(counted)
    assert 0 < builds < 12
    again = list(sweep(made, in_threads, cache=tmp_path / "kept"))
    assert _builds(counted) == builds
    assert {o.how for o in again} == {How.CACHED}
    assert {o.case: o.answer for o in again} == {o.case: o.answer for o in first}


def test_what_other_threads_open_is_nothing_of_the_answers(
    counted: Path, tmp_path: Path, in_threads: Executor
) -> None:
    over = threading.Event()

    def open_files() -> None:
        count = 0
        while not over.is_set():
            (tmp_path / "busy").write_text(str(count := count + 1))

    thread = threading.Thread(target=open_files)
    thread.start()
    try:
        list(sweep(cases(f"{FACTORIES}:counted", batch=3), in_threads, cache=tmp_path / "kept"))
    finally:
        over.set()
        thread.join()
    (again,) = sweep(cases(f"{FACTORIES}:counted", batch=3), in_threads, cache=tmp_path / "kept")
    assert again.how is How.CACHED


def test_changed_code_is_analyzed_anew(tmp_path: Path) -> None:
    """Also that of a module which the subject's file imports."""
    (tmp_path / "widths.py").write_text("WIDTH = 4\n")
    (tmp_path / "model.py").write_text(
        "from torch import nn\nimport graphmem\nimport widths\n"
        "def build():\n    return nn.Linear(8, widths.WIDTH), graphmem.spec('2x8')\n"
    )
    made = cases(f"{tmp_path}/model.py:build")
    (first,) = sweep(made, jobs=1, cache=tmp_path / "kept")
    (same,) = sweep(made, jobs=1, cache=tmp_path / "kept")
    (tmp_path / "widths.py").write_text("WIDTH = 4096\n")
    (other,) = sweep(made, jobs=1, cache=tmp_path / "kept")
    assert [o.how for o in (first, same, other)] == [How.TRACED, How.CACHED, How.TRACED]
    assert first.answer is not None
    assert other.answer is not None
    assert first.answer == same.answer
    assert other.answer.allocated_bytes > first.answer.allocated_bytes


def test_other_options_have_answers_of_their_own(tmp_path: Path, in_threads: Executor) -> None:
    kept = tmp_path / "kept"
    for optimizer in ("sgd", "adamw"):
        (outcome,) = sweep(cases(f"{FACTORIES}:plain", optimizer=optimizer), in_threads, cache=kept)
        assert outcome.how is How.TRACED


def test_a_spoilt_file_counts_as_absent(tmp_path: Path, in_threads: Executor) -> None:
    kept, made = tmp_path / "kept", cases(f"{FACTORIES}:plain")
    assert [o.how for o in sweep(made, in_threads, cache=kept)] == [How.TRACED]
    (file,) = kept.iterdir()
    for text in ("", "[]", '{"layout": 1}', file.read_text()[:-9]):
        file.write_text(text)
        assert [o.how for o in sweep(made, in_threads, cache=kept)] == [How.TRACED]


def test_a_sweep_that_was_killed_goes_on_where_it_was(counted: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    command = [sys.executable, "-m", "graphmem", "sweep", f"{FACTORIES}:counted"]
    command += ["--batch", "1:40", "--jobs", "1", "--cache", str(kept)]
    running = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not any(kept.glob("*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    had = {path.name for path in kept.glob("*.json")}
    with ThreadPoolExecutor(1) as executor:
        outcomes = list(
            sweep(cases(f"{FACTORIES}:counted", batch=range(1, 41)), executor, cache=kept)
        )
    assert len(outcomes) == 40
    assert all(outcome.answer is not None for outcome in outcomes)
    cached = [outcome for outcome in outcomes if outcome.how is How.CACHED]
    assert len(cached) == len(had) > 0


# -- what it is called with


def test_it_is_lazy_and_can_be_left_early() -> None:
    outcomes = sweep(cases(f"{FACTORIES}:plain", batch=range(1, 30)), jobs=1, cache=None)
    assert next(outcomes).answer is not None
    outcomes.close()  # type: ignore[attr-defined]


def test_jobs_are_for_own_processes(in_threads: Executor) -> None:
    with pytest.raises(UsageError, match="leave them out"):
        sweep([], in_threads, jobs=2)
    with pytest.raises(UsageError, match="1 or more"):
        sweep([], jobs=0)


def test_it_is_graphmems_own(in_threads: Executor) -> None:
    (outcome,) = graphmem.sweep(
        graphmem.cases(f"{FACTORIES}:plain"), executor=in_threads, cache=None
    )
    assert isinstance(outcome.case, graphmem.Case)
