"""``graphmem.max_batch``, and the same of any run that can be traced at a size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from graphmem.errors import UsageError
from graphmem.fits import gpu_of
from graphmem.instantiate import Recorded
from graphmem.largest.answer import MaxBatch, Sized
from graphmem.largest.curve import Curve, Point, curve
from graphmem.largest.memory import Memory
from graphmem.largest.search import Search, default_step, first_sizes
from graphmem.largest.stopping import limited_by
from graphmem.options import parse_bytes
from graphmem.resolve import make_options, optimizer_name
from graphmem.sources.inputs import ModelInputs
from graphmem.sources.overrides import with_batch
from graphmem.trace.inputs import Call, as_call
from graphmem.trace.lazy import materialized
from graphmem.trace.optimizers import OptimizerChoice
from graphmem.trace.run import trace_model


def max_batch(
    model: nn.Module,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dim: str = "batch",
    device: str | None = None,
    budget: int | str | None = None,
    multiple_of: int | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerChoice = "adamw",
    **options: Any,
) -> MaxBatch:
    """The largest batch that fits, with its peak, the next one's, and what stops that.

    Args:
        model: as for ``analyze``.
        inputs: as for ``analyze``; their first dimension is the batch. Or a callable of the
            size that gives them, for any other dimension.
        kwargs: as for ``analyze``.
        dim: what the size is called in the answer.
        device: the GPU that it is to fit on.
        budget: the bytes that PyTorch's allocator may reserve, such as ``"20GiB"``; with
            ``device`` at most that much of its memory.
        multiple_of: only multiples of it are tried; by default 1 of a batch and 64 of any other
            size: kernels pad lengths, so that others than multiples of 64 take many traces.
        loss: as for ``analyze``.
        optimizer: as for ``analyze``.
        options: others of ``analyze``.

    Raises:
        GraphmemError: in one line, if an argument or the model can't be used, or the
            parameters alone are too much.
    """
    resolved = make_options(**options, device=device, optimizer=optimizer_name(optimizer))
    memory = Memory(resolved, None if budget is None else parse_bytes(budget, "budget"))

    def trace(size: int) -> Recorded:
        call = _sized(type(model).__name__, inputs, kwargs, size)
        with materialized(model, call):
            ran = trace_model(model, call, resolved, loss, optimizer, evidence=True)
        return Recorded(ran.schedule, ran.evidence, resolved.target, gpu_of(resolved))

    return largest(type(model).__name__, trace, memory, dim, multiple_of)


def _sized(name: str, inputs: Any, kwargs: Mapping[str, Any] | None, size: int) -> Call:
    """The call of a size: of the callable, or with the batch in the place of the inputs' own."""
    if callable(inputs) and not isinstance(inputs, Tensor):
        return as_call(inputs(size), kwargs)
    made = with_batch(name, ModelInputs(*as_call(inputs, kwargs)), size)
    return made.args, made.kwargs


def largest(
    subject: str,
    trace: Callable[[int], Recorded],
    memory: Memory,
    dimension: str = "batch",
    multiple_of: int | None = None,
    on_trace: Callable[[int], None] = lambda _: None,
) -> MaxBatch:
    """The largest size of a run that fits.

    Args:
        subject: its name.
        trace: the run at a size.
        memory: what it has to fit into.
        dimension: what the size is called.
        multiple_of: as for ``max_batch``.
        on_trace: is told of each size that is traced.

    Raises:
        GraphmemError: as ``Search.find``, and as the trace.
    """
    step = default_step(dimension) if multiple_of is None else multiple_of
    if step < 1:
        raise UsageError(f"multiple_of: {step} is not a whole number of 1 or more")
    search = Search(trace, memory, tuple(first_sizes(dimension)), step, on_trace)
    found = search.find()
    following = found.size + step
    is_limit = found.refusal is None and found.size < search.largest
    best = _at(search, memory, found.size) if found.size else None
    after = _at(search, memory, following) if is_limit else None
    stopped = None
    if after is not None:
        fitting = search.at(found.size) if found.size else None
        stopped = limited_by(after.fit, search.at(following), fitting)
    return MaxBatch(
        subject=subject,
        dimension=dimension,
        device=memory.options.device,
        budget_bytes=memory.budget,
        allowed_bytes=memory.allowed_bytes,
        size=found.size,
        peak=best,
        next=after,
        limited_by=stopped,
        refusal=found.refusal,
        curve=_curve(search, memory, following if is_limit else found.size, step),
        exceptions=found.exceptions,
        looked_to=found.looked_to,
        traced=tuple(search.traced),
        multiple_of=step,
        created_from=memory.options.to_dict(),
    )


def _at(search: Search, memory: Memory, size: int) -> Sized:
    peak, breakdown = memory.peak(search.at(size))
    return Sized(size, peak, breakdown, memory.fit(search.at(size)))


def _curve(search: Search, memory: Memory, highest: int, step: int) -> Curve:
    def point(size: int) -> Point:
        peak, breakdown = memory.peak(search.at(size))
        return Point(size, peak.allocated_bytes, peak.reserved_bytes, breakdown)

    lowest = min(search.lowest, highest)
    return curve(point, lowest, highest, step) if highest else Curve((), ())
