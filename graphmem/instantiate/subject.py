"""Tracing what the command line names, for a template."""

from __future__ import annotations

from graphmem.errors import ValueNeededError
from graphmem.fits import gpu_of
from graphmem.instantiate.template import Recorded
from graphmem.options import Options
from graphmem.sources import InputRequest, LoadedSubject, load_subject
from graphmem.trace.run import trace_model


def record_subject(text: str, request: InputRequest, options: Options) -> Recorded:
    """Build a subject with the inputs that are asked for, and trace it.

    It is built with values where its code needs one, and this machine has the memory.

    Raises:
        GraphmemError: in one line, if the subject or an input can't be used.
    """
    subject = load_subject(text, request)
    try:
        return _recorded(subject, options)
    except ValueNeededError:
        really = subject.with_values()
        if really is None:
            raise
        return _recorded(really, options)


def _recorded(subject: LoadedSubject, options: Options) -> Recorded:
    call = (subject.args, subject.kwargs)
    trace = trace_model(subject.model, call, options, optimizer=options.optimizer, evidence=True)
    return Recorded(trace.schedule, trace.evidence, options.target, gpu_of(options))
