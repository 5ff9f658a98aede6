"""What a process does with a chunk: its answers, and what they depend on."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphmem.errors import GraphmemError, one_line
from graphmem.sweeps.case import Case
from graphmem.sweeps.chunks import Chunk
from graphmem.sweeps.identity import Manifest, manifest, opened
from graphmem.sweeps.outcome import Answer, How, Outcome

if TYPE_CHECKING:
    from graphmem.instantiate import Family, Recorded
    from graphmem.options import Options
    from graphmem.schedule import Schedule

_ONE_AT_A_TIME = threading.Lock()
"""A trace patches torch for its time: threads of a process take turns."""

_MOST_FAMILIES = 2
_families: OrderedDict[tuple[Case, str, tuple[int, ...]], Family] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Done:
    """The outcomes of a chunk, and what they depend on besides their cases; None if they failed."""

    outcomes: tuple[Outcome, ...]
    manifest: Manifest | None


def run_chunk(chunk: Chunk) -> Done:
    """Analyze the cases of a chunk in this process; an error of one is its outcome."""
    with _ONE_AT_A_TIME, opened() as files:
        outcomes = tuple(_outcome(case, chunk) for case in chunk.cases)
        return Done(outcomes, manifest(files))


def _outcome(case: Case, chunk: Chunk) -> Outcome:
    start = time.perf_counter()
    try:
        options = _options(case)
        schedule, how = _schedule(case, chunk, options)
        answer = _answer(schedule, options)
    except GraphmemError as error:
        return Outcome(case, None, one_line(error), seconds=time.perf_counter() - start)
    except Exception as error:
        line = f"{type(error).__name__}: {one_line(error)}"
        return Outcome(case, None, line, seconds=time.perf_counter() - start)
    return Outcome(case, answer, how=how, seconds=time.perf_counter() - start)


def _schedule(case: Case, chunk: Chunk, options: Options) -> tuple[Schedule, How]:
    if chunk.axis is None:
        return _record(case, options).schedule, How.TRACED
    size = case.size(chunk.axis)
    assert size is not None  # that of a group is given
    family = _family(case, chunk.axis, chunk.sizes, options)
    schedule = family.at(size)
    return schedule, How.TRACED if size in family.traced else How.INSTANTIATED


def _family(case: Case, axis: str, sizes: tuple[int, ...], options: Options) -> Family:
    """The family of a group, kept from one chunk to the next."""
    from graphmem.instantiate import Family

    key = (case.at(axis, None), axis, sizes)
    if key not in _families:
        _families[key] = Family(lambda n: _record(case.at(axis, n), options), sizes)
    _families.move_to_end(key)
    if len(_families) > _MOST_FAMILIES:
        _families.popitem(last=False)
    return _families[key]


def _options(case: Case) -> Options:
    from graphmem.resolve import make_options
    from graphmem.trace.optimizers import find_optimizer

    others = dict(case.options)
    if "assume" in others:
        others["assume"] = dict(others["assume"])
    options = make_options(
        mode=case.runs_as, precision=case.precision, device=case.device, **others
    )
    find_optimizer(options.optimizer)
    return options


def _record(case: Case, options: Options) -> Recorded:
    """Trace a case."""
    from graphmem.instantiate import record_subject
    from graphmem.options import Mode
    from graphmem.sources import InputRequest
    from graphmem.trace.run import model_dtype

    request = InputRequest(
        inputs=case.inputs,
        batch=case.batch,
        seq=case.seq,
        task=case.task,
        dtype=model_dtype(options),
        labels=options.mode is Mode.TRAINING,
        dims=case.dims,
        default_dim=case.default_dim,
        rules=case.rules,
    )
    return record_subject(case.subject, request, options)


def _answer(schedule: Schedule, options: Options) -> Answer:
    from graphmem.summary import peak_and_fits

    peak, fits = peak_and_fits(schedule, options)
    fit = None if options.device is None else fits[options.device]
    ends = None if fit is None else fit.out_of_memory_at
    return Answer(
        requested_bytes=peak.requested_bytes,
        allocated_bytes=peak.allocated_bytes,
        reserved_bytes=peak.reserved_bytes,
        device_bytes=peak.device_bytes,
        step=peak.step,
        phase=peak.phase,
        op=peak.op,
        op_index=peak.op_index,
        module=peak.module,
        source=peak.source,
        unknown=len(schedule.unknown),
        fits=None if fit is None else fit.fits,
        headroom_bytes=None if fit is None else fit.headroom_bytes,
        out_of_memory_at=None if ends is None else ends.module,
    )
