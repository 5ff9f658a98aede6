"""One rank of several: what torch's wrappers make of a model and its optimizer in a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from graphmem.options import Options, Target, Wrapper
from graphmem.schedule import Unknown
from graphmem.trace.optimizers import OptimizerChoice
from graphmem.trace.parallel import Alone, redundancy, replicated, sharded
from graphmem.trace.parallel.group import fake_ranks
from graphmem.trace.parallel.units import units_of
from graphmem.trace.session import Session

_NCCL = Unknown("the buffers of NCCL", "outside of the caching allocator", "nothing")


class Ranks(Alone):
    """A model on several GPUs, as one of them sees it."""

    def __init__(
        self, model: nn.Module, options: Options, mesh: DeviceMesh, stack: ExitStack
    ) -> None:
        self._model, self._options = model, options
        self._mesh, self._stack = mesh, stack
        self._really = False
        self._units = units_of(model, options.fsdp_units) if self._is(Wrapper.FSDP) else {}

    def _is(self, *wrappers: Wrapper) -> bool:
        return self._options.wrapper in wrappers

    def shard(self, session: Session) -> None:
        """Before the parameters are counted: let only shards of them stand there."""
        if self._options.target is Target.CUDA:
            session.recorder.ledger.note(_NCCL)
        if self._is(Wrapper.FSDP):
            if self._options.target is Target.CUDA:
                session.recorder.ledger.note(sharded.STREAMS)
            sharded.to_meta(self._model)
            self._shard()
            sharded.hollow(self._model)
            named = sharded.gathered_named(session.recorder, session.modules)
            self._stack.enter_context(named)

    def shard_really(self) -> None:
        """Shard the model's parameters as they are, for a run."""
        self._really = True
        self._shard()

    def _shard(self) -> None:
        if self._is(Wrapper.FSDP):
            shards = sharded.sharded(self._model, self._units, self._mesh, self._options)
            self._stack.enter_context(shards)

    def called(self, model: nn.Module) -> Callable[..., Any] | None:
        """DistributedDataParallel, where it is what spreads the model."""
        if not self._is(Wrapper.DDP, Wrapper.ZERO1):
            return None
        return replicated.replicated(model, self._options, really=self._really)

    def optimizer(self, choice: OptimizerChoice) -> OptimizerChoice:
        """What makes the optimizer: with ZeRO 1, of this rank's share."""
        if not self._is(Wrapper.ZERO1):
            return choice
        return redundancy.shared(choice, self._options)


@contextmanager
def spread(model: nn.Module, options: Options) -> Iterator[Alone]:
    """The rank that a trace is of, in a group for the time of the trace."""
    if options.wrapper is None:
        yield Alone()
        return
    assert options.ranks is not None  # make_options sees to it
    rank = redundancy.fullest(model, options.ranks) if options.wrapper is Wrapper.ZERO1 else 0
    with fake_ranks(options.ranks, rank) as mesh, ExitStack() as stack:
        yield Ranks(model, options, mesh, stack)
