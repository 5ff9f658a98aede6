"""Running steps under a session, and turning what fails into one clear line."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from dataclasses import replace as replace_unknown
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from graphmem import devices
from graphmem.errors import GraphmemError, InputError, TraceError, UsageError, one_line
from graphmem.options import Options, Precision, Target
from graphmem.schedule import TOP_LEVEL, Category, Schedule, Unknown, verify
from graphmem.sources.onnx import bounds
from graphmem.trace.adapters import adapted
from graphmem.trace.assumptions import Assuming, flipping
from graphmem.trace.dynamo import import_now, imported_if_asked
from graphmem.trace.evidence import Evidence
from graphmem.trace.gpu import WithoutNames, without_names
from graphmem.trace.graph import GraphBuilder
from graphmem.trace.inputs import Call, named, replace, stand_in
from graphmem.trace.layouts import image
from graphmem.trace.leaks import with_growths, without_graph
from graphmem.trace.offloading import SavedOnHost, lies_on_host
from graphmem.trace.optimizers import OptimizerChoice
from graphmem.trace.parallel import Alone
from graphmem.trace.place import is_user_file, short_path
from graphmem.trace.reach import Found, held, reachable
from graphmem.trace.recorder import Recorder
from graphmem.trace.session import Session
from graphmem.trace.step import Loop, Loss

if TYPE_CHECKING:
    from graphmem.trace.compiled import CompiledCalls

_DTYPES = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}


_FIXED_MODE = Unknown(
    "the mode (train or eval) of an exported program",
    "dropout, batch norm",
    "the mode that it was exported in",
)


_CACHE_IS_OFF = Unknown(
    "use_cache of a model of transformers whose modules are checkpointed",
    "",
    "off, as under its own checkpointing; without checkpoints it is what the configuration says",
)

_WITHOUT_GRADIENT = Unknown(
    "gradients of modules that a reentrant checkpoint calls without an input that requires one",
    "",
    "none, as in PyTorch",
)


def model_dtype(options: Options) -> torch.dtype | None:
    """The dtype that a precision converts the model to; None leaves it as it is."""
    return None if options.precision is None else _DTYPES.get(options.precision)


@dataclass(frozen=True)
class Trace:
    """A recorded run.

    ``call`` has the inputs as the model saw them; ``graph`` is there if it was asked for, and
    so is ``evidence``, unless kernels did something once, at the first call of certain sizes.
    """

    schedule: Schedule
    call: Call
    graph: fx.Graph | None
    evidence: Evidence | None = None
    compiled: int = 0


def trace_model(
    model: nn.Module,
    call: Call,
    options: Options,
    loss: Loss | None = None,
    optimizer: OptimizerChoice = "adamw",
    graph: bool = False,
    compiled: bool = False,
    evidence: bool = False,
) -> Trace:
    """Run a model's steps on hollow tensors.

    Args:
        graph: also build the ``torch.fx.Graph``.
        compiled: run the model as ``torch.compile`` would.
        evidence: also keep what the target's rules were asked.

    Raises:
        TraceError: and others of ``graphmem.errors``, in one line, if the model fails.
    """
    dtype = model_dtype(options)
    assuming = Assuming.of(options)
    model, options = adapted(model, options, dtype)
    _check_signature(model, *call)

    def run(context: AbstractContextManager[Any]) -> Trace:
        args, kwargs = replace(call, lambda leaf: _given(leaf, options))
        kept = Evidence() if evidence else None
        session = _session(options, assuming, dtype, kept)
        if graph:
            session.recorder.graph = GraphBuilder(session.recorder.ledger)
        loop = Loop(model, args, kwargs, options, loss, optimizer)
        _told(loop, session.recorder, options)
        compiling = _compiling(model, session) if compiled else nullcontext()
        with (
            explained(),
            spread_of(model, options) as ranks,
            session.active(),
            context,
            _bounded(session, options),
            compiling as call_,
            loop.changed(),
        ):
            session.checkpoints = tuple(loop.checkpoints)
            if loop.cache_is_off:
                session.recorder.ledger.note(_CACHE_IS_OFF)
            session.module(model, adopted=lambda: ranks.shard(session))
            for name, tensor in named((args, kwargs), parameter_names(model)):
                session.input(tensor, name)
            loop.called = ranks.called(model) if call_ is None else call_
            loop.optimizer = ranks.optimizer(optimizer)
            loop.prepare()
            loop.in_optimizer = session.recorder.moments.in_optimizer
            if loop.masters is not None:
                session.masters(loop.masters.copies)
            if loop.mode_is_fixed:
                session.recorder.ledger.note(_FIXED_MODE)
            schedule = _steps(session, options.steps, loop.step, loop.results, model)
            if not schedule.operations:
                raise TraceError("the model runs no operator: it gives its inputs back as they are")
        built = session.recorder.graph.finish(schedule) if session.recorder.graph else None
        told = None if session.context.begun else kept
        return Trace(schedule, (args, kwargs), built, told, call_.graphs if call_ else 0)

    return flipping(lambda: imported_if_asked(lambda: without_names(run)), assuming.flips)


def spread_of(model: nn.Module, options: Options) -> AbstractContextManager[Alone]:
    """The rank that a run is of, if it is one of several."""
    if options.wrapper is None:
        return nullcontext(Alone())
    if not torch.distributed.is_available():
        raise UsageError(f"ranks {options.ranks}: this torch is built without torch.distributed")
    from graphmem.trace.parallel.ranks import spread  # it imports parts of torch.distributed

    return spread(model, options)


def _given(leaf: Any, options: Options) -> torch.Tensor:
    """What the model is given for an input."""
    made = stand_in(leaf, model_dtype(options))
    return image(made) if options.channels_last else made


def _told(loop: Loop, recorder: Recorder, options: Options) -> None:
    """Let the loop tell what it offloads to the host's memory, which a CPU's run has anyway."""

    def without_gradient(path: str) -> None:
        recorder.ledger.note(replace_unknown(_WITHOUT_GRADIENT, where=path))

    loop.without_gradient = without_gradient
    loop.saved_on_host = lambda pinned: SavedOnHost(recorder, options.target, pinned=pinned)
    if options.target is Target.CUDA:
        loop.lies_on_host = partial(lies_on_host, recorder)


def _compiling(model: nn.Module, session: Session) -> AbstractContextManager[CompiledCalls]:
    from graphmem.trace.compiled import compiled_calls  # it imports parts of inductor

    return compiled_calls(model, session)


def _bounded(session: Session, options: Options) -> AbstractContextManager[None]:
    """Take bounds where an ONNX model's sizes depend on data, and note them; not if strict."""
    if options.strict:
        return nullcontext()
    return bounds.active(bounds.Bounds(options.trip_count, session.recorder.ledger.unknown))


def _session(
    options: Options,
    assuming: Assuming,
    dtype: torch.dtype | None = None,
    evidence: Evidence | None = None,
) -> Session:
    gpu = None if options.device is None else devices.find(options.device)
    return Session(
        target=options.target,
        dtype=dtype,
        channels_last=options.channels_last,
        assuming=assuming,
        gpu=gpu,
        evidence=evidence,
    )


def _steps(
    session: Session,
    count: int,
    step: Callable[[], Any],
    results: Callable[[], Any],
    owner: Any,
) -> Schedule:
    """Run steps in an active session, and freeze what it recorded.

    Args:
        results: what a step leaves referenced, its outputs.
        owner: the callable or model whose objects may keep what steps make.
    """

    def run(number: int) -> None:
        session.recorder.moments.step = number
        step()
        session.recorder.books.claim(results(), Category.OUTPUTS)
        session.end_step()

    def once_more() -> Schedule:
        with without_graph(session.recorder):
            run(count + 1)
        return session.schedule()

    for number in range(1, count + 1):
        run(number)
    session.recorder.assumptions.check_used()
    schedule = session.schedule()
    verify(schedule)
    return with_growths(schedule, session.recorder.ledger, lambda: held(owner), once_more)


def trace_callable(
    step: Callable[[], Any], options: Options, found: Found | None = None
) -> Schedule:
    """Run the user's own step on hollow tensors; see ``graphmem.record``.

    What a step returns stays referenced until the next one returns.

    Args:
        found: what ``reachable(step)`` gave, if it was asked already.
    """
    import_now()  # a step is not started again for it: it keeps what it did outside of modules
    found = reachable(step) if found is None else found
    returned: list[Any] = [None]
    assuming = Assuming.of(options)

    def once() -> None:
        returned[0] = step()

    def run(context: AbstractContextManager[Any]) -> Schedule:
        session = _session(options, assuming)
        with explained(), session.active(), context, _bounded(session, options):
            names_gpu = isinstance(context, WithoutNames)
            if isinstance(context, WithoutNames):
                session.copies_from_host(context)
            for name, module in found.modules:
                session.module(module, name if len(found.modules) > 1 else "")
            session.leaves(found.tensors, found.optimizers)
            for optimizer in found.optimizers:
                session.optimizer(optimizer)
            for name, tensor in found.tensors:
                host = names_gpu and id(tensor) in found.in_datasets
                session.input(tensor, name, foreign=True, host=host)
            return _steps(session, options.steps, once, lambda: returned, step)

    return flipping(lambda: without_names(run), assuming.flips)


def parameter_names(model: nn.Module) -> list[str]:
    """The names of a model's positional arguments."""
    try:
        return list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return []


def _check_signature(model: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Refuse a call that the model's forward can't take, naming what is missing."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(
            f"{type(model).__name__}.forward{signature}: {error}; "
            "give inputs as --input NAME=8x128:int64 or inputs= in Python"
        ) from None


@contextmanager
def explained() -> Iterator[None]:
    """Turn an exception of the user's own code into one line that says where it arose."""
    try:
        yield
    except GraphmemError:
        raise
    except Exception as error:
        module = getattr(error, "__graphmem_module__", None)
        inside = ""
        if module is not None:
            path, kind = module
            inside = f" in module {kind}" if path == TOP_LEVEL else f" in module {path} ({kind})"
        where = _user_line(error)
        at = f" at {where}" if where else ""
        raise TraceError(
            f"the model failed{inside}{at}: {type(error).__name__}: {one_line(error)}{_hint(error)}"
        ) from error


def _hint(error: Exception) -> str:
    """What to do where code reads a tensor's memory by itself."""
    if "data pointer" not in str(error):
        return ""
    return "; say what the function that reads it returns: graphmem.register_rule"


def _user_line(error: BaseException) -> str | None:
    """The innermost line of a traceback outside of torch and graphmem."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    if not frames:
        return None
    return f"{short_path(frames[-1].filename)}:{frames[-1].lineno}"
