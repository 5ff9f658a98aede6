"""``graphmem.plan``, and the same of any run that can be traced with other options."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from graphmem import parallelism
from graphmem.errors import UsageError
from graphmem.largest.memory import Memory, standing_bytes
from graphmem.options import Mode, Options, parse_bytes
from graphmem.plans.answer import Plan
from graphmem.plans.blocks import block_of, blocks_of
from graphmem.plans.candidates import techniques
from graphmem.plans.candidates.ranks import under_ddp
from graphmem.plans.search import Search, Trace
from graphmem.plans.technique import Run
from graphmem.resolve import make_options, optimizer_name
from graphmem.schedule import Category, Phase, Schedule
from graphmem.sources.inputs import ModelInputs
from graphmem.sources.overrides import with_batch
from graphmem.trace.flops import is_counted
from graphmem.trace.inputs import as_call
from graphmem.trace.lazy import materialized
from graphmem.trace.run import trace_model

ENOUGH = 5
SECONDS = 35.0
"""The last trace may take a fourth of a minute: less than a minute in all."""


def plan(
    model: nn.Module,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
    budget: int | str | None = None,
    gpus: int | None = None,
    batch: int | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: str = "adamw",
    enough: int = ENOUGH,
    seconds: float = SECONDS,
    **options: Any,
) -> Plan:
    """What to change so that a training fits: combinations of techniques, each simulated.

    Args:
        model: as for ``analyze``.
        inputs: as for ``analyze``.
        kwargs: as for ``analyze``.
        device: the GPU that it is to fit on.
        budget: the bytes that PyTorch's allocator may reserve, such as ``"20GiB"``.
        gpus: how many GPUs there are; None: one, and more of them are the last resort. With
            several the run as it is is that of DistributedDataParallel, unless options say how
            else it is spread.
        batch: the batch, if it may be cut into micro-batches: the first dimension of the inputs.
        loss: as for ``analyze``.
        optimizer: its name.
        enough: how many combinations are wanted.
        seconds: after so many no trace begins.
        options: others of ``analyze``.

    Raises:
        GraphmemError: in one line, if an argument or the model can't be used.
    """
    resolved = make_options(**options, device=device, optimizer=optimizer_name(optimizer))
    memory = Memory(resolved, None if budget is None else parse_bytes(budget, "budget"))
    call = as_call(inputs, kwargs)

    def trace(changed: Options, parts: int) -> Schedule:
        args, kwargs = call
        if parts > 1:
            assert batch is not None  # else there are no micro-batches
            cut = with_batch(type(model).__name__, ModelInputs(args, kwargs), batch // parts)
            args, kwargs = cut.args, cut.kwargs
        with materialized(model, (args, kwargs)):
            name = changed.optimizer
            return trace_model(model, (args, kwargs), changed, loss, name).schedule

    return made(type(model).__name__, trace, memory, gpus, batch, enough, seconds)


def made(
    subject: str,
    trace: Trace,
    memory: Memory,
    gpus: int | None = None,
    batch: int | None = None,
    enough: int = ENOUGH,
    seconds: float = SECONDS,
    on_trace: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Plan:
    """The plan of a run.

    Args:
        subject: its name.
        trace: the run with other options, its batch in so many parts.
        memory: what it has to fit into.
        gpus: as for ``plan``.
        batch: as for ``plan``.
        enough: as for ``plan``.
        seconds: as for ``plan``.
        on_trace: is told of each trace that begins.
        clock: the time, in seconds.

    Raises:
        UsageError: of an inference, which nothing here makes smaller.
        GraphmemError: as the trace of the run as it is raises it.
    """
    if memory.options.mode is not Mode.TRAINING:
        raise UsageError("plan: it makes trainings fit; for an inference see max-batch")
    memory = _over(memory, gpus)
    start = clock()
    search = Search(trace, memory, enough, seconds, on_trace, clock)
    base, schedule = search.base()
    run = _run(schedule, memory.options, gpus, batch)
    candidates = [] if base.fit.fits else techniques(run)
    found = search.find(base, run, candidates)
    return Plan(
        subject=subject,
        device=memory.options.device,
        budget_bytes=memory.budget,
        allowed_bytes=memory.allowed_bytes,
        gpus=gpus,
        standing_bytes=standing_bytes(schedule),
        searched=found,
        created_from=memory.options.to_dict(),
        seconds=clock() - start,
    )


def _over(memory: Memory, gpus: int | None) -> Memory:
    """With several GPUs a run that does not say how it is spread is DistributedDataParallel's.

    Raises:
        UsageError: for an option that does not go with it.
    """
    options = replace(memory.options, **under_ddp(memory.options, gpus or 1))
    parallelism.check(options)
    return replace(memory, options=options)


def _run(schedule: Schedule, options: Options, gpus: int | None, batch: int | None) -> Run:
    parameters = [s for s in schedule.storages if s.category is Category.PARAMETERS]
    fp32 = sum(s.nbytes for s in parameters if s.dtype == "float32")
    blocks = blocks_of(schedule.modules)
    return Run(
        options=options,
        schedule=schedule,
        blocks=blocks,
        batch=batch,
        gpus=gpus,
        fp32=2 * fp32 > sum(s.nbytes for s in parameters),
        products=_products(schedule, frozenset(blocks)),
    )


def _products(schedule: Schedule, blocks: frozenset[str]) -> tuple[str, ...]:
    """The operators in the blocks' forward whose FLOPs torch counts, as ``aten.mm``."""
    inside = {
        ".".join(op.target.split(".")[:2])
        for op in schedule.operations
        if op.phase is Phase.FORWARD and block_of(op.module, blocks)
    }
    return tuple(sorted(name for name in inside if is_counted(name)))
